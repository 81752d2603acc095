"""What token and block verification share: point masses, the residual law, and draws from uniform numbers."""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from soothsay.sampling import Law, WholeLaw
from soothsay.verify.noise import Stream

Uniform: TypeAlias = Callable[[int, Stream], float]
"""A number strictly between 0 and 1 for (index in the step, purpose): the same one whenever it is asked for."""


def drawn_from(tokens: Sequence[int], draft_laws: Sequence[Law] | None) -> Sequence[Law]:
    """Give the law that each drafted token was drawn from: point masses when there was no chance in it."""
    return draft_laws if draft_laws is not None else [Law.point(token) for token in tokens]


def log_ratio(p: Law, q: Law, token: int) -> float:
    """Give log p(token)/q(token); ValueError when q cannot have drawn the token."""
    drafted = q.log_probability(token)
    if drafted == -math.inf:
        raise ValueError(f"drafted token {token} is outside the law that it is said to be drawn from")
    return p.log_probability(token) - drafted


def residual(p: Law, q: Law, survival: float) -> NDArray[np.float64]:
    """Give max(survival p - q, 0) over the support of p, shape (S,): what the target still owes after a rejection.

    The mass outside q's support is in it entry by entry: survival (1 - p(support of q)) would cancel.
    """
    owed = survival * np.exp(p.log_probabilities)
    places = np.minimum(p.ids.searchsorted(q.ids), len(p.ids) - 1)
    shared = p.ids[places] == q.ids
    owed[places[shared]] -= np.exp(q.log_probabilities[shared])
    return np.maximum(owed, 0)


def residual_mass(p: Law, q: Law, survival: float) -> float:
    """Give the sum of the residual."""
    return p.owed(q, survival) if isinstance(p, WholeLaw) else float(residual(p, q, survival).sum())


def draw(law: Law, unit: float) -> int:
    """Draw a token from a law with one uniform number."""
    if isinstance(law, WholeLaw):
        return law.draw(unit)
    return pick(law.ids, np.exp(law.log_probabilities), unit)


def draw_residual(p: Law, q: Law, survival: float, unit: float) -> int:
    """Draw the correction after a rejection.

    Where rounding leaves no residual at all the draw is from p: p and q then agree to the last bits, and a rejection
    there has a probability of that order.
    """
    token = p.draw_owed(q, survival, unit) if isinstance(p, WholeLaw) else _pick_residual(p, q, survival, unit)
    return draw(p, unit) if token is None else token


def _pick_residual(p: Law, q: Law, survival: float, unit: float) -> int | None:
    owed = residual(p, q, survival)
    return pick(p.ids, owed, unit) if owed.any() else None


def pick(ids: NDArray[np.int64], weights: NDArray[np.float64], unit: float) -> int:
    """Pick the id in whose cell of the cumulated weights, scaled to 1, `unit` lies; a weight of 0 has no cell."""
    bounds = weights.cumsum()
    bounds /= bounds[-1]
    return int(ids[bisect_right(bounds, unit)])
