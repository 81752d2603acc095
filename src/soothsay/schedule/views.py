"""What the controller is shown and what it answers: requests, choices, and what came of them."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from soothsay.patience import ENDLESS, Patience


@dataclass(frozen=True, slots=True)
class Source:
    """A drafter that could guess for a request now: what it has not read, and its hint (a match length; 0: none)."""

    lag_tokens: int = 0
    match: int = 0


@dataclass(frozen=True, slots=True)
class View:
    """A request before a step: tokens held, the longest legal draft, tokens it may still emit, and who could guess.

    `gamma` tokens are to be drafted where the request has fixed that itself.
    """

    request: Hashable
    context: int
    reach: int
    remaining: int
    sources: Mapping[str, Source]
    gamma: int | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """Ask `drafter` (None: nobody) for up to `gamma` tokens, or fewer by `patience`, having read a `window` at most."""

    view: View
    drafter: str | None = None
    gamma: int = 0
    window: int | None = None
    patience: Patience = ENDLESS

    @property
    def read_tokens(self) -> int:
        """How much is read before the first guess, beside the last token."""
        if self.drafter is None:
            return 0
        lag = self.view.sources[self.drafter].lag_tokens
        return lag if self.window is None else min(lag, self.window)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a choice; `confidences`: of the drafted tokens, where the drafter can tell."""

    choice: Choice
    drafted: int
    accepted: int
    emitted: int
    confidences: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """A finished step: seconds of the target's pass with its verification, and of each drafter that was asked."""

    outcomes: Sequence[Outcome]
    target_seconds: float
    draft_seconds: Mapping[str, float] = field(default_factory=dict)
    other_rows: int = 0
