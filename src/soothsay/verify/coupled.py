"""Coupled verification: target and drafter draw with the same Gumbel noise and agree as often as their laws let them.

The target's token depends on its own law and the noise alone, so the output is the same for a seed whatever was
drafted (Daliri, Musco and Suresh, "Coupling without communication and drafter-invariant speculative decoding",
arXiv 2408.07978).
"""

from collections.abc import Sequence

from soothsay.sampling import Law, WholeLaw
from soothsay.verify.base import Verdict
from soothsay.verify.greedy import match
from soothsay.verify.noise import Noise


def draw_coupled(law: Law, noise: Noise, position: int) -> int:
    """Draw the token at an absolute position: argmax of log p + Gumbel noise over the support, lowest id on ties."""
    if isinstance(law, WholeLaw):
        return law.draw_gumbel(noise.stream(position))
    if len(law.ids) == 1:
        return int(law.ids[0])
    return int(law.ids[(law.log_probabilities + noise.gumbel(position, law.ids)).argmax()])


def coupled(laws: Sequence[Law], tokens: Sequence[int], noise: Noise, start: int) -> Verdict:
    """Keep the drafted tokens that the target draws too.

    `laws` has D+1 entries, the target's law at each position from the absolute position `start` on; it is read in
    order, up to the first mismatch. How the draft was made plays no part.
    """
    return match(lambda index: draw_coupled(laws[index], noise, start + index), tokens)
