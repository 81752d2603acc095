"""What the controller is shown and what it answers: requests, choices, and what came of them."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Source:
    """A drafter that could guess for a request now: what it must read first, and its hint (a match length; 0: none)."""

    lag_tokens: int = 0
    confidence: int = 0


@dataclass(frozen=True, slots=True)
class View:
    """A request before a step: tokens held, the longest legal draft, tokens it may still emit, and who could guess."""

    request: Hashable
    context: int
    reach: int
    remaining: int
    sources: Mapping[str, Source]


@dataclass(frozen=True, slots=True)
class Choice:
    """Ask `drafter` (None: nobody) for `gamma` tokens.

    `speedup` is that expected of the whole step. `value`: of a token more, in the request's shares of a plain step.
    `curious`: the draft is expected to lose, and made to learn.
    """

    view: View
    drafter: str | None
    gamma: int
    speedup: float
    value: float = 1.0
    curious: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a choice; `read_tokens`: read by the drafter beyond its lag (older parts of a prompt)."""

    choice: Choice
    drafted: int
    accepted: int
    emitted: int
    read_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """A finished step: seconds of the target's pass with its verification, and of each drafter that was asked."""

    outcomes: Sequence[Outcome]
    target_seconds: float
    draft_seconds: Mapping[str, float] = field(default_factory=dict)
    other_rows: int = 0
