"""What one step of an engine did, for those who measure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Drafted:
    """What became of one sequence's draft: tokens by `drafter` (None: nobody was asked), kept, and emitted in all."""

    drafter: str | None
    drafted: int
    accepted: int
    emitted: int


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
