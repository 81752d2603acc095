"""How long a draft goes on: what a drafter is told of the price of a further token."""

from dataclasses import dataclass

PARTS = 10
"""Equal parts of 0 to 1 in which confidences are told apart."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Draft on while the chance that the whole draft is accepted is `least` or more.

    `chances[part(confidence)]` is the chance of a token that its drafter has so much confidence in. Deciding with the
    tokens drafted so far and with what they were drawn from, none of them dropped, keeps the law of the output under
    every rule of verification.
    """

    least: float = 0.0
    chances: tuple[float, ...] = (1.0,) * PARTS

    def chance(self, confidence: float) -> float:
        """Give the chance that a token is accepted when those before it are."""
        return self.chances[part(confidence)]


ENDLESS = Patience()


def part(confidence: float) -> int:
    """Give the part, from 0 to PARTS - 1, that a confidence lies in."""
    return min(int(confidence * PARTS), PARTS - 1)
