"""How far are an engine's logits from the model's own? Against transformers in float32, with llama.cpp beside.

Usage: python -m bench.accuracy --model MODEL [--prompts FILE.jsonl] [--positions 2000]

All three read the same file and the same token ids: windows of prose (chapters of Python's language reference and the
long prompts of a file) and of code (classes of Python's standard library). At each position, the divergence
KL(float32 || engine) in nats. The first positions of a text are outliers (attention sinks), and so are counted apart.

The bar: soothsay's median and its 99th percentile are at most 1.1 times llama.cpp's. The status is 1 when it is missed.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.llama_peer import LlamaPeer
from bench.texts import code, prose, windows
from soothsay import hub
from soothsay.model.architectures import describe
from soothsay.model.base import Feed
from soothsay.model.gguf import GGUFFile
from soothsay.model.native import NativeModel, runtime
from soothsay.text.tokenizer import Tokenizer
from tests.twins import Twin

OUTLIERS = 8
BAR = 1.1

Reader = Callable[[Sequence[int]], NDArray[np.float32]]
Figures = dict[str, float]


def main() -> int:
    options = _options()
    file = GGUFFile.open(hub.resolve(options.model))
    texts = _texts(file, options)
    print(f"{file.path.name}: {len(texts)} windows of {options.window} tokens, half prose, half code")
    found = _measure(file, texts, options)
    figures = {name: _figures(*_joined(results)) for name, results in found.items()}
    _print(figures, found)
    ratios = {
        name: figures["soothsay"][name] / figures["llama.cpp"][name] for name in ("median", "mean", "percentile_99")
    }
    passed = max(ratios["median"], ratios["percentile_99"]) <= BAR
    print(f"soothsay / llama.cpp: {_line(ratios)}; the bar is {BAR}: {'passed' if passed else 'MISSED'}")
    print(json.dumps({"model": file.path.stem, "positions": options.positions} | figures | {"ratios": ratios}))
    return 0 if passed else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="an alias or the path of a .gguf file")
    parser.add_argument(
        "--prompts", type=Path, help="a file of prompts, one JSON object a line; its long ones are prose"
    )
    parser.add_argument("--positions", type=int, default=2000, help="counted positions in all")
    parser.add_argument("--window", type=int, default=208, help="tokens a text")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--llama-python", default=sys.executable, help="an interpreter that has llama-cpp-python")
    return parser.parse_args()


def _texts(file: GGUFFile, options: argparse.Namespace) -> list[Sequence[int]]:
    tokenizer = Tokenizer.from_metadata(file.metadata)
    each = -(-options.positions // (2 * (options.window - OUTLIERS)))

    def encode(text: str) -> Sequence[int]:
        return tokenizer.encode(text, special=False)

    return [
        *windows(encode, prose(options.prompts), options.window, each),
        *windows(encode, code(), options.window, each),
    ]


def _measure(
    file: GGUFFile, texts: Sequence[Sequence[int]], options: argparse.Namespace
) -> dict[str, list[tuple[NDArray[np.float64], NDArray[np.bool_]]]]:
    """For each engine and each window, the divergences and whether the likeliest token agrees, [window] each."""
    twin, native = Twin(file), _native(file, options.threads)
    with LlamaPeer(options.llama_python, file.path, context=options.window, threads=options.threads) as llama:
        print(f"llama-cpp-python {llama.version}, {options.threads} threads")
        engines: dict[str, Reader] = {"soothsay": native, "llama.cpp": llama.logits}
        found: dict[str, list[tuple[NDArray[np.float64], NDArray[np.bool_]]]] = {name: [] for name in engines}
        for tokens in texts:
            exact = twin.logits(tokens)
            for name, read in engines.items():
                found[name].append(_compare(exact, read(tokens)))
    return found


def _native(file: GGUFFile, threads: int) -> Reader:
    model = NativeModel(describe(file), runtime(threads))

    def read(tokens: Sequence[int]) -> NDArray[np.float32]:
        slot = model.open()
        [logits] = model.forward([Feed(slot, tokens, len(tokens))])
        model.close(slot)
        return logits

    return read


def _compare(exact: NDArray[np.float32], found: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    divergences = np.array([_divergence(p, q) for p, q in zip(exact, found, strict=True)])
    return divergences, exact.argmax(axis=1) == found.argmax(axis=1)


def _divergence(exact: NDArray[np.float32], found: NDArray[np.float32]) -> float:
    """KL(exact || found) in nats of two rows of logits, [V] each, in float64."""
    log_p, log_q = _log_softmax(exact), _log_softmax(found)
    return float(np.exp(log_p) @ (log_p - log_q))


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - float(logits.max())
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


def _joined(
    results: Sequence[tuple[NDArray[np.float64], NDArray[np.bool_]]], cut: slice = slice(OUTLIERS, None)
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    divergences, agreements = zip(*((each[cut], same[cut]) for each, same in results), strict=True)
    return np.concatenate(divergences), np.concatenate(agreements)


def _figures(divergences: NDArray[np.float64], agreements: NDArray[np.bool_]) -> Figures:
    return {
        "median": float(np.median(divergences)),
        "mean": float(divergences.mean()),
        "percentile_99": float(np.percentile(divergences, 99)),
        "same_top": float(agreements.mean()),
    }


def _print(figures: dict[str, Figures], found: dict[str, list[tuple[NDArray[np.float64], NDArray[np.bool_]]]]) -> None:
    for name, results in found.items():
        half = len(results) // 2
        print(f"{name:10} all     {_line(figures[name])}")
        print(f"{name:10} prose   {_line(_figures(*_joined(results[:half])))}")
        print(f"{name:10} code    {_line(_figures(*_joined(results[half:])))}")
        print(f"{name:10} first {OUTLIERS} {_line(_figures(*_joined(results, slice(OUTLIERS))))}")


def _line(figures: Figures) -> str:
    return "  ".join(f"{name} {value:.6f}" for name, value in figures.items())


if __name__ == "__main__":
    sys.exit(main())
