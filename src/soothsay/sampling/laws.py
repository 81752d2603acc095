"""The one road from logits to probabilities.

The NumPy here takes every row. Native code takes its place for whole rows of a real vocabulary: one pass, no arrays of
that size. The scores are the same to the last bit, masses and logarithms to a few units in the last place, so the two
draw the same token but for about one draw in 10^14. Instruction sets and threads make no difference at all.
"""

import math
import os
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from soothsay.errors import ModelError
from soothsay.sampling.options import Sampling

try:
    import soothsay._native as _native
except ModuleNotFoundError:
    _ISAS = []
else:
    _ISAS = _native.instruction_sets()

_ISA = next(iter({os.environ.get("SOOTHSAY_ISA")}.intersection(_ISAS) or _ISAS), None)
NATIVE_TOKENS = 1024  # in shorter rows there is nothing to gain

_LEVELS = (*np.arange(-3.0, -30.0, -3.0).tolist(), -math.inf)


@dataclass(frozen=True, slots=True)
class Law:
    """A probability law over token ids.

    `ids`, int64 of shape (S,), is the support in ascending order; `log_probabilities`, float64 of shape (S,), is
    normalised over it. A point mass has S = 1.
    """

    ids: NDArray[np.int64]
    log_probabilities: NDArray[np.float64]

    @classmethod
    def point(cls, token: int) -> Self:
        """Give the law that always says `token`."""
        return cls(np.array([token], np.int64), np.zeros(1))

    def log_probability(self, token: int) -> float:
        """Give log p(token): minus infinity outside the support."""
        place = int(self.ids.searchsorted(token))
        inside = place < len(self.ids) and self.ids[place] == token
        return float(self.log_probabilities[place]) if inside else -math.inf

    def probability(self, token: int) -> float:
        """Give p(token) to about six digits, which may take less time than all of them."""
        return math.exp(self.log_probability(token))

    def likeliest(self) -> int:
        """Give the token with the highest probability, the lowest id on ties."""
        return int(self.ids[self.log_probabilities.argmax()])

    def top(self, count: int) -> tuple[tuple[int, float], ...]:
        """Give the `count` likeliest tokens and their log-probabilities, the likeliest first, the lowest id on ties."""
        return _ranked(self.ids, self.log_probabilities, count)


class WholeLaw(Law):
    """The law of a whole row of logits, from which nothing was cut: native code draws from it as it is.

    Its arrays are written out anew each time that they are asked for.
    """

    __slots__ = ("_row",)
    _row: "_native.Softmax"

    def __init__(self, row: "_native.Softmax") -> None:
        object.__setattr__(self, "_row", row)

    @property
    def ids(self) -> NDArray[np.int64]:
        return self._row.above(-math.inf)[0]

    @property
    def log_probabilities(self) -> NDArray[np.float64]:
        return self._row.above(-math.inf)[1] - math.log(self._row.mass())

    def log_probability(self, token: int) -> float:
        return self._row.score(token) - math.log(self._row.mass())

    def probability(self, token: int) -> float:
        return math.exp(self._row.score(token)) / self._row.mass_near()

    def likeliest(self) -> int:
        return self._row.best

    def top(self, count: int) -> tuple[tuple[int, float], ...]:
        for level in _LEVELS:
            ids, scores = self._row.above(level)
            if len(ids) >= count:
                break
        return _ranked(ids, scores - math.log(self._row.mass()), count)

    def draw_gumbel(self, start: int) -> int:
        """Draw by Gumbel noise: argmax of log p(x) - log(-log u(x)), lowest id on ties.

        u(x) comes from the SplitMix64 word of the state `start` plus x steps, as in `Noise.gumbel`.
        """
        return self._row.draw_gumbel(start)

    def draw(self, unit: float) -> int:
        """Draw with one uniform number: the token in whose cell of the cumulated probabilities it lies."""
        return self._row.draw_owed(1.0, np.zeros(0, np.int64), np.zeros(0), unit)

    def owed(self, q: Law, survival: float) -> float:
        """Give the sum of max(survival p - q, 0) over the support."""
        return self._row.owed(survival, q.ids, np.exp(q.log_probabilities))

    def draw_owed(self, q: Law, survival: float, unit: float) -> int | None:
        """Draw from max(survival p - q, 0), scaled to 1, with one uniform number; None where all of it is 0."""
        token = self._row.draw_owed(survival, q.ids, np.exp(q.log_probabilities), unit)
        return None if token < 0 else token


def law(logits: NDArray[np.floating], sampling: Sampling, *, limit: int | None = None) -> Law:
    """Turn one row of logits, shape (V,), into the law that its token is drawn from, in float64.

    The order is that of transformers: temperature, top-k, top-p, min-p. Top-p keeps a token while the mass of the
    likelier ones is below top_p; min-p keeps those with at least min_p times the highest probability. Tokens that
    tie at the border of top-k or top-p are kept from the lowest id up. A logit of minus infinity is no support.
    Temperature 0 is a point mass whatever the cuts.

    `limit` keeps that many likeliest tokens of the result and renormalises: for a draft model, whose law may be any
    as long as it is the one that its tokens are drawn from.

    The law may refer to the row, which must not change while it is in use. Raises ModelError for a row with NaN or
    plus infinity, or with no finite entry.
    """
    best = _likeliest(logits)
    if sampling.temperature == 0:
        return Law.point(best)
    row = _row(logits, sampling, best, _first_cut(sampling, limit))
    floor = math.log(sampling.min_p) if sampling.min_p > 0 else -math.inf
    if floor == -math.inf and sampling.top_p == 1 and not isinstance(row, _Row):
        return WholeLaw(row)
    ids, scores = _nucleus(row, sampling.top_p, floor) if sampling.top_p < 1 else row.above(floor)
    if limit is not None:
        ids, scores = _keep(_top(scores, limit), ids, scores)
    return Law(ids, scores - math.log(np.exp(scores).sum()))


def _likeliest(logits: NDArray[np.floating]) -> int:
    best = int(logits.argmax())
    if not math.isfinite(logits[best]):  # argmax stops at the first NaN
        raise ModelError(f"the model gave logits with no finite maximum: {logits[best]} at token {best}")
    return best


def _first_cut(sampling: Sampling, limit: int | None) -> int | None:
    """Give how many of the highest logits can matter: only top-p weighs them against the rest before `limit` cuts."""
    cuts = [sampling.top_k or None, limit if sampling.top_p == 1 else None]
    return min((cut for cut in cuts if cut is not None), default=None)


@dataclass(frozen=True, slots=True)
class _Row:
    """Tokens with their scores, (logit - best) / temperature: what `_native.Softmax` is for a whole row."""

    ids: NDArray[np.int64]
    scores: NDArray[np.float64]

    def mass(self) -> float:
        """Give the sum of e^score."""
        return float(np.exp(self.scores).sum())

    def above(self, floor: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Give the ids and scores of the tokens whose finite score is at least `floor`."""
        kept = (self.scores >= floor) & (self.scores > -math.inf)
        return (self.ids, self.scores) if kept.all() else _keep(kept, self.ids, self.scores)


def _row(logits: NDArray[np.floating], sampling: Sampling, best: int, count: int | None) -> "_Row | _native.Softmax":
    """Give the scores of the `count` highest logits, or of all."""
    if _ISA and count is None and len(logits) >= NATIVE_TOKENS and logits.dtype == np.float32:
        return _native.Softmax(np.ascontiguousarray(logits), best, float(sampling.temperature), _ISA)
    ids = np.arange(len(logits)) if count is None else _top(logits, count)
    scores = (logits if count is None else logits[ids]).astype(np.float64)
    with np.errstate(over="ignore"):  # to minus infinity, where it belongs
        scores -= logits[best]
        scores /= sampling.temperature
    return _Row(ids, scores)


def _keep(
    chosen: NDArray[np.bool_] | NDArray[np.int64], ids: NDArray[np.int64], scores: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    return ids[chosen], scores[chosen]


def _top(scores: NDArray[np.floating], k: int) -> NDArray[np.int64]:
    """Give the ascending indices of the k highest scores, the lowest indices on ties."""
    if k >= len(scores):
        return np.arange(len(scores))
    candidates = np.flatnonzero(scores >= _floor(scores, k))
    values = scores[candidates]
    border = np.partition(values, -k)[-k]
    above, tied = candidates[values > border], candidates[values == border]
    return np.sort(np.concatenate([above, tied[: k - len(above)]]))


def _ranked(
    ids: NDArray[np.int64], log_probabilities: NDArray[np.float64], count: int
) -> tuple[tuple[int, float], ...]:
    """Give the `count` likeliest pairs, the likeliest first."""
    if count == 0:
        return ()
    ids, values = _keep(_top(log_probabilities, count), ids, log_probabilities)
    order = np.argsort(-values, kind="stable")
    return tuple(zip(ids[order].tolist(), values[order].tolist(), strict=True))


def _floor(scores: NDArray[np.floating], k: int) -> float:
    """Give a cheap lower bound of the k-th highest score: the k-th highest of the maxima of 64-entry groups."""
    groups = len(scores) // 64
    if groups < k:
        return -math.inf
    maxima = scores[: 64 * groups].reshape(64, groups).max(axis=0)
    return float(np.partition(maxima, -k)[-k])


def _nucleus(
    row: "_Row | _native.Softmax", top_p: float, floor: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Give the fewest highest scores whose mass reaches top_p, the lowest ids on ties, without those below `floor`."""
    wanted = top_p * row.mass()
    ids, scores = _enough(row, wanted, floor)
    ranked = np.argsort(-scores, kind="stable")
    count = np.exp(scores[ranked]).cumsum().searchsorted(wanted) + 1
    return _keep(np.sort(ranked[:count]), ids, scores)


def _enough(
    row: "_Row | _native.Softmax", wanted: float, floor: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Give all scores above some level whose mass reaches `wanted`, or all from `floor` up: few need to be ranked."""
    for level in _LEVELS:
        ids, scores = row.above(max(level, floor))
        if level <= floor or np.exp(scores).sum() >= wanted:
            break
    return ids, scores
