"""Token verification: the founding rule (Leviathan, Kalman and Matias, arXiv 2211.17192, algorithm 1)."""

import math
from collections.abc import Sequence

from soothsay.sampling import Law
from soothsay.verify.base import Verdict
from soothsay.verify.noise import Stream
from soothsay.verify.rejection import Uniform, draw, draw_residual, drawn_from, log_ratio


def token(laws: Sequence[Law], tokens: Sequence[int], draft_laws: Sequence[Law] | None, uniform: Uniform) -> Verdict:
    """Keep each drafted token with probability min(1, p/q); at the first rejection draw from norm(max(p - q, 0)).

    `laws` has D+1 entries, the target's law at each position; it is read in order, up to the first rejection.
    `draft_laws` has D, each the law that its token was really drawn from; None stands for point masses.
    """
    for index, (drafted, q) in enumerate(zip(tokens, drawn_from(tokens, draft_laws), strict=True)):
        p = laws[index]
        # Strict, so that a token of probability 0 is never kept.
        if not uniform(index, Stream.ACCEPT) < math.exp(min(0.0, log_ratio(p, q, drafted))):
            correction = draw_residual(p, q, 1.0, uniform(index, Stream.RESIDUAL))
            return Verdict((*tokens[:index], correction), index)
    bonus = draw(laws[len(tokens)], uniform(len(tokens), Stream.RESIDUAL))
    return Verdict((*tokens, bonus), len(tokens))
