"""What verification returns."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """The tokens to emit: the first `accepted` of the draft, then one correction or bonus.

    `len(tokens) == accepted + 1`, always.
    """

    tokens: tuple[int, ...]
    accepted: int
