"""What does a pass over M rows cost? v(M) = its time over that of one row, logits after every row.

Usage: python -m bench.passes --model MODEL [--context 256] [--llama-python PYTHON]

Row counts take turns, and so do the engines, so that a busy moment of the machine falls on all of them; the figures are
medians. With an interpreter that has llama-cpp-python, llama.cpp runs beside, on the same token ids.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench.llama_peer import LlamaPeer
from soothsay import hub
from soothsay.bench.passes import Pass, passes_of, some_tokens, time_rows
from soothsay.model.architectures import describe
from soothsay.model.gguf import GGUFFile
from soothsay.model.native import NativeModel, runtime

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 16, 64)
PROMPT_TOKENS = 256

Figures = dict[str, float]
"""Median milliseconds of a pass and v by number of rows, and the pace of a prompt."""


def main() -> int:
    options = _options()
    path = Path(hub.resolve(options.model))
    figures = measure(
        path,
        context=options.context,
        prompt_tokens=options.prompt_tokens,
        repetitions=options.repetitions,
        threads=options.threads,
        llama_python=options.llama_python,
    )
    for name, found in figures.items():
        _print(name, found)
    print(json.dumps({"model": path.stem, "context": options.context, "threads": options.threads} | figures))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="an alias or the path of a .gguf file")
    parser.add_argument("--context", type=int, default=256, help="tokens in the cache before the pass")
    parser.add_argument("--prompt-tokens", type=int, default=PROMPT_TOKENS, help="tokens of the prompt that is timed")
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--llama-python", help="an interpreter that has llama-cpp-python")
    return parser.parse_args()


def measure(
    path: Path, *, context: int, prompt_tokens: int, repetitions: int, threads: int, llama_python: str | None
) -> dict[str, Figures]:
    """Time soothsay's passes and, with an interpreter that has it, llama.cpp's."""
    model = NativeModel(describe(GGUFFile.open(path)), runtime(threads))
    engines: dict[str, Pass] = {"soothsay": passes_of(model)}
    room = max(context + max(ROWS), prompt_tokens)
    with ExitStack() as stack:
        if llama_python:
            peer = LlamaPeer(llama_python, path, context=room, threads=threads)
            engines["llama.cpp"] = stack.enter_context(peer).seconds
        return _figures(engines, some_tokens(room, model.vocab_size), context, prompt_tokens, repetitions)


def _figures(
    engines: Mapping[str, Pass], tokens: Sequence[int], context: int, prompt_tokens: int, repetitions: int
) -> dict[str, Figures]:
    prompts: dict[str, list[float]] = {name: [] for name in engines}
    passes: dict[tuple[str, int], list[float]] = {(name, count): [] for name in engines for count in ROWS}
    for _ in range(repetitions):
        for name, read in engines.items():
            prompts[name].append(read(tokens[:prompt_tokens], 0, 1))
        for key, seconds in time_rows(engines, tokens, context, ROWS).items():
            passes[key].append(seconds)
    return {
        name: _by_rows({count: median(passes[name, count]) for count in ROWS})
        | {"prompt_tokens_per_second": prompt_tokens / median(prompts[name])}
        for name in engines
    }


def _by_rows(seconds: Mapping[int, float]) -> Figures:
    passes = {f"milliseconds_{rows}": 1000 * seconds[rows] for rows in ROWS}
    return passes | {f"v_{rows}": seconds[rows] / seconds[1] for rows in ROWS}


def _print(name: str, found: Figures) -> None:
    print(f"{name}: prompt {found['prompt_tokens_per_second']:.0f} tokens/s")
    for rows in ROWS:
        print(f"  {rows:2} rows {found[f'milliseconds_{rows}']:8.2f} ms  v {found[f'v_{rows}']:.2f}")


if __name__ == "__main__":
    sys.exit(main())
