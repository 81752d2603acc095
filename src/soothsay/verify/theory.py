"""What to expect: tokens a step, speedup, and how often coupled draws agree."""

import numpy as np

from soothsay.sampling import Law


def expected_tokens(acceptance: float, gamma: int) -> float:
    """Give the expected tokens per step, (1 - a^(gamma+1)) / (1 - a), at a constant acceptance a.

    Leviathan, Kalman and Matias, arXiv 2211.17192, equation 1. Written as the sum, which a = 1 does not upset.
    """
    return sum(acceptance**kept for kept in range(gamma + 1))


def speedup(acceptance: float, gamma: int, draft_cost: float, pass_cost: float = 1.0) -> float:
    """Give the speedup over plain decoding: tokens per step over the price of a step, in one-row target passes.

    `draft_cost` is c, the price of one drafted token; `pass_cost` is v(gamma + 1), that of a target pass over
    gamma + 1 rows. With v = 1 it is theorem 3.8 of arXiv 2211.17192.
    """
    return expected_tokens(acceptance, gamma) / (gamma * draft_cost + pass_cost)


def coupled_agreement(p: Law, q: Law) -> float:
    """Give the probability that coupled draws from p and q are equal.

    It is the sum over x of 1 / sum over y of max(p(y)/p(x), q(y)/q(x)): Daliri, Musco and Suresh, arXiv 2408.07978.
    In the order of p/q the inner sum is a head of q and a tail of p: O(S log S) for S shared tokens.
    """
    _, in_p, in_q = np.intersect1d(p.ids, q.ids, assume_unique=True, return_indices=True)
    order = np.argsort(p.log_probabilities[in_p] - q.log_probabilities[in_q])
    ps, qs = np.exp(p.log_probabilities[in_p])[order], np.exp(q.log_probabilities[in_q])[order]
    tail_p = 1 - (ps.cumsum() - ps)
    head_q = 1 - qs[::-1].cumsum()[::-1]
    return float((ps * qs / (tail_p * qs + head_q * ps)).sum())
