"""What a pass costs here, beside what the machine could do: v(rows), and how near the passes come to its limits."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from soothsay.bench.passes import Pass, passes_of, some_tokens, time_rows
from soothsay.errors import OptionError, Unsupported
from soothsay.hub import resolve
from soothsay.model.architectures import describe
from soothsay.model.gguf import GGUFFile

if TYPE_CHECKING:
    from soothsay.model.native import NativeModel, Work

ROWS = (1, 2, 3, 4, 5, 6, 8, 16)
CONTEXT_TOKENS = 128
ROUNDS = 15

PROMPT_TOKENS = 512
PROMPT_ROUNDS = 3

READ_BYTES = 1 << 29
"""Of a plain read: far more than any cache holds."""


@dataclass(frozen=True, slots=True)
class RowCost:
    """A pass of so many rows: median seconds, v (over those of one row), multiply-adds a second.

    `roofline_share` is the larger of bytes over bandwidth and products over peak, over the seconds: 1 is the machine's
    limit.
    """

    rows: int
    seconds: float
    v: float
    products_per_second: float
    roofline_share: float


@dataclass(frozen=True, slots=True)
class CostReport:
    """What passes of a model cost after `context` tokens, and what the same threads could do in the same run.

    `bytes_per_pass` are the packed weights, the output included and the embedding not, and the keys and values of the
    context. `prompt_tokens_per_second` is the pace of a prompt of 512 tokens, or of the longest that the model takes.
    """

    model: str
    isa: str
    threads: int
    context: int
    rows: tuple[RowCost, ...]
    bytes_per_pass: int
    read_bandwidth_bytes_per_second: float
    peak_products_per_second: float
    prompt_tokens_per_second: float


@dataclass(frozen=True, slots=True)
class Limits:
    """Medians of what the machine did meanwhile: bytes a second of a plain read, products a second from registers."""

    bandwidth: float
    peak: float


def measure(
    name: str | Path,
    *,
    context: int = CONTEXT_TOKENS,
    rows: Sequence[int] = ROWS,
    threads: int | None = None,
    rounds: int = ROUNDS,
) -> CostReport:
    """Time passes of each number of rows, and of one row, in `rounds` in which they and the limits take turns.

    The first round only warms up. Raises OptionError for what does not fit into the model's context, Unsupported where
    the compiled runtime is missing, and ModelError for a model that cannot be used.
    """
    counts = _checked(rows, rounds)
    model = _model(name, threads)
    _check_room(context, max(counts), model.max_length)
    read = passes_of(model)
    prompt = some_tokens(min(PROMPT_TOKENS, model.max_length), model.vocab_size)
    pace = len(prompt) / _prompt_seconds(read, prompt)
    seconds, limits = _rounds(model, read, context, counts, rounds)
    return CostReport(
        model=Path(name).name,
        isa=model.runtime.isa,
        threads=model.runtime.threads,
        context=context,
        rows=tuple(_row_cost(count, seconds, model.work, context, limits) for count in counts),
        bytes_per_pass=_bytes(model.work, context),
        read_bandwidth_bytes_per_second=limits.bandwidth,
        peak_products_per_second=limits.peak,
        prompt_tokens_per_second=pace,
    )


def _checked(rows: Sequence[int], rounds: int) -> list[int]:
    if wrong := [count for count in rows if count < 1]:
        raise OptionError(f"rows has {wrong[0]}; each must be at least 1")
    if rounds < 1:
        raise OptionError(f"rounds is {rounds}; it must be at least 1")
    return sorted({1, *rows})


def _check_room(context: int, rows: int, max_length: int) -> None:
    if context < 0 or context + rows > max_length:
        legal = f"0 to {max_length - rows}" if rows <= max_length else "none"
        raise OptionError(f"context is {context}; with {rows} rows in {max_length} tokens, legal is {legal}")


def _model(name: str | Path, threads: int | None) -> "NativeModel":
    if find_spec("soothsay._native") is None:
        raise Unsupported("the compiled runtime is missing; only its passes are worth timing")
    from soothsay.model.native import NativeModel, runtime

    file = GGUFFile.open(resolve(name))
    model = NativeModel(describe(file), runtime(threads))
    file.leave_memory()
    return model


def _prompt_seconds(read: Pass, prompt: Sequence[int]) -> float:
    return median([read(prompt, 0, 1) for _ in range(1 + PROMPT_ROUNDS)][1:])


def _rounds(
    model: "NativeModel", read: Pass, context: int, rows: Sequence[int], rounds: int
) -> tuple[dict[int, float], Limits]:
    """Give the median seconds by rows, and the limits."""
    from soothsay._native import Probe

    probe = Probe(model.runtime, READ_BYTES)
    tokens = some_tokens(max(context, *rows), model.vocab_size)
    seconds: dict[int, list[float]] = defaultdict(list)
    bandwidths, peaks = [], []
    for turn in range(1 + rounds):
        timed = time_rows({"": read}, tokens, context, rows if turn % 2 else rows[::-1])
        bandwidth, peak = probe.read_bandwidth(), probe.peak_products()
        if turn > 0:
            for (_, count), elapsed in timed.items():
                seconds[count].append(elapsed)
            bandwidths.append(bandwidth)
            peaks.append(peak)
    return {count: median(found) for count, found in seconds.items()}, Limits(median(bandwidths), median(peaks))


def _row_cost(rows: int, seconds: dict[int, float], work: "Work", context: int, limits: Limits) -> RowCost:
    least = max(_bytes(work, context) / limits.bandwidth, rows * work.products / limits.peak)
    elapsed = seconds[rows]
    return RowCost(rows, elapsed, elapsed / seconds[1], rows * work.products / elapsed, least / elapsed)


def _bytes(work: "Work", context: int) -> int:
    return work.weight_bytes + context * work.token_bytes
