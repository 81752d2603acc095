"""What one step of an engine did, for those who measure and for those who want to see it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from soothsay.completion import FinishReason, Own, Piece
from soothsay.draft.base import Draft
from soothsay.request import Request
from soothsay.sampling import Laws
from soothsay.verify.base import Verdict


@dataclass(frozen=True, slots=True)
class Kept:
    """A sequence's verdict, None where its options failed, the tokens emitted by it, and how long it took.

    `laws` are the target's at each place of the draft and after it, as far as the verdict has asked for them.
    """

    laws: Laws
    verdict: Verdict | None
    pieces: tuple[Piece, ...]
    verify_seconds: float

    @property
    def accepted(self) -> int:
        """How many drafted tokens the verdict keeps."""
        return self.verdict.accepted if self.verdict is not None else 0


@dataclass(frozen=True, slots=True)
class Details:
    """What one sequence's draft and verdict were made of, in the step that began at absolute position `position`.

    `gamma` tokens were asked for. `debt_seconds` is what speculation has cost the request so far, below 0 where it
    saved; None where nobody keeps the books.
    """

    request: Request
    position: int
    gamma: int
    draft: Draft
    kept: Kept
    debt_seconds: float | None

    @property
    def p(self) -> tuple[float | None, ...]:
        """The target's probability of each drafted token, None where the verdict came without it."""
        laws = self.kept.laws
        return tuple(
            laws[place].probability(token) if laws.known(place) else None
            for place, token in enumerate(self.draft.tokens)
        )

    @property
    def q(self) -> tuple[float, ...]:
        """The probability of each drafted token in the law that it was drawn from: 1 where there was no chance."""
        return tuple(self.draft.probability(place) for place in range(len(self.draft.tokens)))

    @property
    def own(self) -> Own | None:
        """What the target's own token is; None where it was not emitted."""
        last = self.kept.pieces[-1].origin if self.kept.pieces else None
        return None if last is None else last.own

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the answer ended with this step, if it did."""
        done = self.kept.pieces[-1].completion if self.kept.pieces else None
        return None if done is None else done.finish_reason


@dataclass(frozen=True, slots=True)
class Drafted:
    """What became of one sequence's draft: tokens by `drafter` (None: nobody was asked), kept, and emitted in all."""

    drafter: str | None
    drafted: int
    accepted: int
    emitted: int
    details: Details | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One step: `rows` that the target read, the drafts of the sequences that emitted, and seconds of each part.

    `draft_seconds` of all drafters, `target_seconds` of the target's pass, `verify_seconds` of the verdicts.
    """

    rows: int
    drafts: tuple[Drafted, ...]
    draft_seconds: float
    target_seconds: float
    verify_seconds: float

    def brief(self) -> "Record":
        """Give the same without details, which hold logits."""
        return replace(self, drafts=tuple(replace(draft, details=None) for draft in self.drafts))


Watch: TypeAlias = Callable[[Record], None]
"""Hears of each step when it is over; what it raises ends the request that asked for the step."""


def by_position(drafts: Iterable[Drafted]) -> tuple[float, ...]:
    """Give the share of drafted tokens that were kept, at each position of a draft."""
    tried: list[int] = []
    kept: list[int] = []
    for draft in drafts:
        for counts, length in ((tried, draft.drafted), (kept, draft.accepted)):
            counts += [0] * (draft.drafted - len(counts))
            for place in range(length):
                counts[place] += 1
    return tuple(accepted / drafted for accepted, drafted in zip(kept, tried, strict=True))
