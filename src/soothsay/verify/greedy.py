"""Greedy verification: keep what the target would have said by itself."""

from collections.abc import Callable, Sequence

from soothsay.sampling import Law
from soothsay.verify.base import Verdict


def greedy(laws: Sequence[Law], tokens: Sequence[int]) -> Verdict:
    """Keep the drafted tokens that are the likeliest of their law, the lowest id on ties.

    `laws` has D+1 entries, the target's law at each position; it is read in order, up to the first mismatch.
    """
    return match(lambda index: laws[index].likeliest(), tokens)


def match(choose: Callable[[int], int], tokens: Sequence[int]) -> Verdict:
    """Keep drafted tokens as long as they equal `choose(index)`, the target's own choice, then add that choice."""
    for index, token in enumerate(tokens):
        chosen = choose(index)
        if chosen != token:
            return Verdict((*tokens[:index], chosen), index)
    return Verdict((*tokens, choose(len(tokens))), len(tokens))
