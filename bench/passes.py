"""What does a pass over M rows cost? v(M) = its time over that of one row, logits after every row.

Usage: python -m bench.passes --model MODEL [--context 256] [--llama-python PYTHON]

Row counts take turns, and so do the engines, so that a busy moment of the machine falls on all of them; each timed pass
follows an untimed one of the same engine; the figures are medians. With an interpreter that has llama-cpp-python,
llama.cpp runs beside, on the same token ids.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import numpy as np

from bench.llama_peer import LlamaPeer
from soothsay import hub
from soothsay.model.architectures import describe
from soothsay.model.base import Feed
from soothsay.model.gguf import GGUFFile
from soothsay.model.native import NativeModel, runtime

ROWS = (1, 2, 3, 4, 5, 6, 8, 16, 64)
PROMPT_TOKENS = 256

Pass = Callable[[Sequence[int], int, int], float]
"""Reads tokens after the first `start` of a cache, logits after the last `rows`; gives seconds."""


def main() -> int:
    options = _options()
    path = Path(hub.resolve(options.model))
    with ExitStack() as stack:
        engines: dict[str, Pass] = {"soothsay": _native(path, options.threads)}
        if options.llama_python:
            room = max(options.context + max(ROWS), PROMPT_TOKENS)
            peer = LlamaPeer(options.llama_python, path, context=room, threads=options.threads)
            engines["llama.cpp"] = stack.enter_context(peer).seconds
        figures = _figures(engines, options)
    for name, found in figures.items():
        _print(name, found)
    print(json.dumps({"model": path.stem, "context": options.context, "threads": options.threads} | figures))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="an alias or the path of a .gguf file")
    parser.add_argument("--context", type=int, default=256, help="tokens in the cache before the pass")
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--llama-python", help="an interpreter that has llama-cpp-python")
    return parser.parse_args()


def _native(path: Path, threads: int) -> Pass:
    model = NativeModel(describe(GGUFFile.open(path)), runtime(threads))
    slot = model.open()

    def read(tokens: Sequence[int], start: int, rows: int) -> float:
        model.truncate(slot, start)
        begun = time.perf_counter()
        model.forward([Feed(slot, tokens, rows)])
        return time.perf_counter() - begun

    return read


def _figures(engines: dict[str, Pass], options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Median milliseconds of a pass by row count and the pace of a prompt, by engine."""
    tokens = np.random.default_rng(0).integers(1000, size=max(options.context, PROMPT_TOKENS)).tolist()
    seconds: dict[tuple[str, int], list[float]] = {}
    for _ in range(options.repetitions):
        for name, read in engines.items():
            seconds.setdefault((name, 0), []).append(read(tokens[:PROMPT_TOKENS], 0, 1))
            read(tokens[: options.context], 0, 1)
        for rows in ROWS:
            for name, read in engines.items():
                read(tokens[:rows], options.context, rows)  # the other engine's threads may still spin
                seconds.setdefault((name, rows), []).append(read(tokens[:rows], options.context, rows))
    return {name: _by_rows({rows: median(seconds[name, rows]) for rows in (0, *ROWS)}) for name in engines}


def _by_rows(seconds: dict[int, float]) -> dict[str, float]:
    passes = {f"milliseconds_{rows}": 1000 * seconds[rows] for rows in ROWS}
    shapes = {f"v_{rows}": seconds[rows] / seconds[1] for rows in ROWS}
    return passes | shapes | {"prompt_tokens_per_second": PROMPT_TOKENS / seconds[0]}


def _print(name: str, found: dict[str, float]) -> None:
    print(f"{name}: prompt {found['prompt_tokens_per_second']:.0f} tokens/s")
    for rows in ROWS:
        print(f"  {rows:2} rows {found[f'milliseconds_{rows}']:8.2f} ms  v {found[f'v_{rows}']:.2f}")


if __name__ == "__main__":
    sys.exit(main())
