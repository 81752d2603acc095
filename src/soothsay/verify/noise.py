"""Randomness that is a pure function of its key: nothing to seed, nothing to advance, nothing to roll back.

A key is hashed word by word with the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
number generators", OOPSLA 2014), and the last word walks the generator's own stream.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import reduce

import numpy as np
from numpy.typing import NDArray

_WORD = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio: the step between two states of SplitMix64
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_CELL = 2.0**-52  # centres of cells of this width are exact in float64, and none of them is 0 or 1


class Stream(IntEnum):
    """What a number is for; each purpose draws from numbers of its own."""

    GUMBEL = 0
    DRAFT = 1
    ACCEPT = 2
    RESIDUAL = 3


@dataclass(frozen=True, slots=True)
class Noise:
    """All the randomness of one sample of one request. `seed` is 0 to 2**64 - 1; `sample` counts answers to it."""

    seed: int
    sample: int = 0

    def gumbel(self, position: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Give standard Gumbel noise, shape of `ids`, one number for each (position, token id).

        Target and drafter see the same number for the same token at the same position, whatever the step.
        """
        words = _mix_all(np.uint64(self.stream(position)) + ids.astype(np.uint64) * np.uint64(_GOLDEN))
        cells = (words >> np.uint64(12)).view(np.int64).astype(np.float64)  # unsigned words convert ten times slower
        return -np.log(-np.log((cells + 0.5) * _CELL))

    def stream(self, position: int) -> int:
        """Give the state of the generator whose n-th step from there makes the Gumbel noise of token id n."""
        return self._hash((Stream.GUMBEL, position))

    def uniform(self, start: int, index: int, stream: Stream) -> float:
        """Give a uniform number strictly between 0 and 1 for the step that begins at absolute position `start`.

        `index` counts positions from there. The start of the step is part of the key for a reason: block
        verification looks at drafts that it then discards. If the next step drew its drafts with the same numbers,
        they would depend on that decision and the output would no longer follow the target's law.
        """
        return ((self._hash((stream, start, index)) >> 12) + 0.5) * _CELL

    def _hash(self, words: Iterable[int]) -> int:
        return reduce(lambda state, word: _mix(state + (word + 1) * _GOLDEN), (self.seed, self.sample, *words), 0)


def _mix(state: int) -> int:
    """Apply the finaliser of SplitMix64 to one word."""
    state &= _WORD
    for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
        state = (state ^ (state >> shift)) * multiplier & _WORD
    return state ^ (state >> 31)


def _mix_all(states: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply the same finaliser to every word of an array."""
    for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
        states = (states ^ (states >> np.uint64(shift))) * np.uint64(multiplier)
    return states ^ (states >> np.uint64(31))
