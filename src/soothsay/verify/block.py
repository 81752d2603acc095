"""Block verification: the draft is judged as a whole (Sun et al., arXiv 2403.10444v3, algorithm 2).

No rule that sees one draft and shares no noise with the drafter keeps more tokens on average.
"""

import math
from collections.abc import Sequence

from soothsay.sampling import Law
from soothsay.verify.base import Verdict
from soothsay.verify.noise import Stream
from soothsay.verify.rejection import Uniform, draw, draw_residual, drawn_from, log_ratio, residual_mass


def block(laws: Sequence[Law], tokens: Sequence[int], draft_laws: Sequence[Law] | None, uniform: Uniform) -> Verdict:
    """Keep the longest prefix of the draft that passes its test, whether or not shorter ones do.

    `laws` has D+1 entries, the target's law at each position; the last is read after full acceptance only.
    `draft_laws` has D, each the law that its token was really drawn from; None stands for point masses.
    """
    ps = [laws[index] for index in range(len(tokens))]
    qs = drawn_from(tokens, draft_laws)
    survivals = _survivals(ps, qs, tokens)
    accepted = _longest(ps, qs, survivals, uniform)
    unit = uniform(accepted, Stream.RESIDUAL)
    if accepted == len(tokens):
        return Verdict((*tokens, draw(laws[accepted], unit)), accepted)
    correction = draw_residual(ps[accepted], qs[accepted], survivals[accepted], unit)
    return Verdict((*tokens[:accepted], correction), accepted)


def _survivals(ps: Sequence[Law], qs: Sequence[Law], tokens: Sequence[int]) -> list[float]:
    """Give P_0..P_D: P_0 = 1, P_i = min(1, P_{i-1} p/q of the i-th token)."""
    logs = [0.0]
    for p, q, drafted in zip(ps, qs, tokens, strict=True):
        logs.append(min(0.0, logs[-1] + log_ratio(p, q, drafted)))
    return [math.exp(log) for log in logs]


def _longest(ps: Sequence[Law], qs: Sequence[Law], survivals: Sequence[float], uniform: Uniform) -> int:
    """Give the largest length that passes; a failure says nothing about shorter ones, so each has its own number."""
    for length in range(len(ps), 0, -1):
        last = length == len(ps)
        chance = survivals[length] if last else _chance(ps[length], qs[length], survivals[length])
        if uniform(length - 1, Stream.ACCEPT) < chance:
            return length
    return 0


def _chance(p: Law, q: Law, survival: float) -> float:
    """Give Z / (Z + 1 - P) where Z is the residual mass, p and q the laws that follow the prefix; 1 where P is 1."""
    if survival == 1:
        return 1.0
    mass = residual_mass(p, q, survival)
    return mass / (mass + 1 - survival)
