"""Which tokens a text has, and how often its answer has each: what penalties count."""

from array import array
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Counts(NamedTuple):
    """The distinct tokens of prompt and answer, int64 of shape (D,), and how often the answer has each, float32."""

    ids: NDArray[np.int64]
    said: NDArray[np.float32]


class Tally:
    """Counts along a context that grows by committed tokens; each of them is read once."""

    def __init__(self, context: Sequence[int], prompt_tokens: int) -> None:
        self._context = context
        self._prompt_tokens = prompt_tokens
        self._read = 0
        self._places: dict[int, int] = {}
        self._ids, self._said = array("q"), array("f")

    def after(self, drafted: Sequence[int]) -> Counts:
        """Count the context as if `drafted` were part of its answer."""
        self._follow()
        ids, said = np.array(self._ids), np.array(self._said)
        if not drafted:
            return Counts(ids, said)
        times = Counter(drafted)
        new = {token: count for token, count in times.items() if token not in self._places}
        for token in times.keys() - new.keys():
            said[self._places[token]] += times[token]
        return Counts(
            np.concatenate([ids, np.fromiter(new, np.int64)]),
            np.concatenate([said, np.fromiter(new.values(), np.float32)]),
        )

    def _follow(self) -> None:
        for position in range(self._read, len(self._context)):
            token = self._context[position]
            place = self._places.setdefault(token, len(self._ids))
            if place == len(self._ids):
                self._ids.append(token)
                self._said.append(0)
            self._said[place] += position >= self._prompt_tokens
        self._read = len(self._context)
