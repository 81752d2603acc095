"""Passes timed one by one: those of a native model, or of any engine that reads the same tokens."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from soothsay.model.base import Feed

if TYPE_CHECKING:
    from soothsay.model.native import NativeModel

Pass = Callable[[Sequence[int], int, int], float]
"""Reads tokens after the first `start` of a cache, logits after the last `rows`; gives seconds."""


def passes_of(model: "NativeModel") -> Pass:
    """Give the timed passes of a model, in a slot of their own."""
    slot = model.open()

    def read(tokens: Sequence[int], start: int, rows: int) -> float:
        model.truncate(slot, start)
        begun = time.perf_counter()
        model.forward([Feed(slot, tokens, rows)])
        return time.perf_counter() - begun

    return read


def some_tokens(count: int, vocab_size: int) -> list[int]:
    """Give token ids without meaning, the same ones each time."""
    tokens: list[int] = np.random.default_rng(0).integers(min(vocab_size, 1000), size=count).tolist()
    return tokens


def time_rows(
    engines: Mapping[str, Pass], tokens: Sequence[int], context: int, rows: Sequence[int]
) -> dict[tuple[str, int], float]:
    """Time a pass of each number of rows after `context` tokens; give seconds by engine and rows.

    Engines take turns, so that a busy moment of the machine falls on all of them. The threads of one may still spin
    when another begins: where there are several, an untimed pass of the same engine goes before each.
    """
    seconds: dict[tuple[str, int], float] = {}
    for read in engines.values():
        if context > 0:
            read(tokens[:context], 0, 0)
    for count in rows:
        for name, read in engines.items():
            if len(engines) > 1:
                read(tokens[:count], context, count)
            seconds[name, count] = read(tokens[:count], context, count)
    return seconds
