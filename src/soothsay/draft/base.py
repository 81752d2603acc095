"""Who guesses: the protocol of a drafter, and the draft that it hands to verification."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NewType, Protocol, runtime_checkable

from soothsay.model.base import Slot
from soothsay.patience import ENDLESS, Patience
from soothsay.sampling import Law, Row, Sampling

Reader = NewType("Reader", int)
"""A drafter's own handle on one sequence."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a drafter could do for a sequence now.

    `lag_tokens` of the context are unread, beside its last one; its last `match` tokens were seen before, a hint of how
    good a draft will be (0: none).
    """

    lag_tokens: int = 0
    match: int = 0


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for up to `gamma` tokens that continue `context` (prompt and output so far; read only).

    `draw(law, position)` is the only source of chance: it draws the token at an absolute position from a law.
    Of a lag beyond `window` only so many tokens are read, the latest ones (None: all). `patience` says when a further
    token is not worth its time. In `slot` the target itself holds the context but for its last token; a drafter on the
    target's own cache may fork it, and feeds the fork alone. `adjust(logits, drafted)` makes of a model's logits, those
    of the lowest ids at least, what the request's options make of the target's; None when they leave nothing to draw.
    """

    reader: Reader
    context: Sequence[int]
    gamma: int
    sampling: Sampling
    draw: Callable[[Law, int], int]
    window: int | None = None
    patience: Patience = ENDLESS
    slot: Slot | None = None
    adjust: Callable[[Row, Sequence[int]], Row | None] | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """Drafted tokens and the law that each was really drawn from.

    `laws` has one entry a token, or is None when the tokens were chosen without chance (every law a point mass).
    `confidences`, one a token, is how sure the drafter was of each, from 0 to 1; empty when it cannot tell.
    """

    tokens: tuple[int, ...] = ()
    laws: tuple[Law, ...] | None = None
    confidences: tuple[float, ...] = ()

    def probability(self, place: int) -> float:
        """Give q of a drafted token: 1 where it was chosen without chance."""
        return 1.0 if self.laws is None else self.laws[place].probability(self.tokens[place])


@runtime_checkable
class Drafter(Protocol):
    """Guesses the continuation of many sequences at once."""

    def open(self) -> Reader:
        """Start to follow a sequence."""
        ...

    def outlook(self, reader: Reader, context: Sequence[int]) -> Outlook | None:
        """Tell what a draft for the sequence would take; None when there is nothing to guess from."""
        ...

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """Answer each ask with 0 to `gamma` tokens, in order.

        A reader's context only ever grows by committed tokens; drafts that were rejected never appear in it.
        """
        ...

    def close(self, reader: Reader) -> None:
        """Forget the sequence."""
        ...
