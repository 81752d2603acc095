"""A trace in figures: by drafter, by position of a draft, and by where tokens came from."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from soothsay.record import Drafted, by_position
from soothsay.trace.reader import UNTOLD, Trace, Turn


@dataclass(frozen=True, slots=True)
class DrafterSummary:
    """How one drafter fared: steps in which it guessed, tokens drafted and accepted.

    `acceptance_by_position` has, for each position of a draft, the share that was kept of those drafted there.
    """

    steps: int
    drafted: int
    accepted: int
    acceptance_by_position: tuple[float, ...]

    @property
    def acceptance_rate(self) -> float:
        """Accepted over drafted."""
        return self.accepted / self.drafted


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """Requests, steps of the engine, tokens emitted, `tokens_per_step` of a request, and seconds of each part.

    `origins` counts tokens by where they came from: a drafter, or the target's own correction, bonus or plain step.
    """

    requests: int
    steps: int
    tokens: int
    tokens_per_step: float | None
    draft_seconds: float
    verify_seconds: float
    sample_seconds: float
    origins: dict[str, int]
    drafters: dict[str, DrafterSummary]


def summarise(trace: Trace) -> TraceSummary:
    """Give the figures of a trace."""
    turns = [turn for step in trace.steps for turn in step.turns if turn.emitted]
    tokens = sum(len(turn.emitted) for turn in turns)
    origins = Counter(origin for turn in turns for origin in turn.origins)
    return TraceSummary(
        requests=len({turn.request for turn in turns}),
        steps=len(trace.steps),
        tokens=tokens,
        tokens_per_step=tokens / len(turns) if turns else None,
        draft_seconds=sum(step.draft_seconds for step in trace.steps),
        verify_seconds=sum(step.verify_seconds for step in trace.steps),
        sample_seconds=sum(step.sample_seconds for step in trace.steps),
        origins=dict(origins.most_common()),
        drafters=dict(_drafters(turns)),
    )


def _drafters(turns: list[Turn]) -> Iterator[tuple[str, DrafterSummary]]:
    guessed = [turn for turn in turns if turn.drafted]
    for name in sorted({turn.drafter or UNTOLD for turn in guessed}):
        drafts = [
            Drafted(turn.drafter, len(turn.drafted), turn.accepted, len(turn.emitted))
            for turn in guessed
            if (turn.drafter or UNTOLD) == name
        ]
        drafted, accepted = sum(draft.drafted for draft in drafts), sum(draft.accepted for draft in drafts)
        yield name, DrafterSummary(len(drafts), drafted, accepted, by_position(drafts))
