"""What the steps as they were drafted could have saved, had nothing but passes taken time."""

import time
from collections import defaultdict
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from statistics import median

from soothsay.model.base import Feed, Model, Slot
from soothsay.record import Record

CONTEXT_TOKENS = 128
REPETITIONS = 3


class QuietPasses:
    """Passes of a draft model over one token of each sequence, timed while nothing else is at work."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._held = min(CONTEXT_TOKENS, model.max_length - 1)
        self._slots: list[Slot] = []

    def seconds(self, widths: AbstractSet[int]) -> dict[int, float]:
        """Give the median seconds of a pass over each number of sequences."""
        while len(self._slots) < max(widths, default=0):
            self._slots.append(self._model.open())
            self._model.forward([Feed(self._slots[-1], [0] * self._held, rows=0)])
        return {width: median(self._once(width) for _ in range(REPETITIONS)) for width in widths}

    def _once(self, width: int) -> float:
        feeds = [Feed(slot, [0], rows=1) for slot in self._slots[:width]]
        begun = time.perf_counter()
        self._model.forward(feeds)
        elapsed = time.perf_counter() - begun
        for feed in feeds:
            self._model.truncate(feed.slot, self._held)
        return elapsed


def widths(step: Record, drafter: str) -> list[int]:
    """Give the number of sequences in each pass that the drafter's model cannot do without: one pass a position."""
    depths = [draft.drafted for draft in step.drafts if draft.drafter == drafter]
    return [sum(depth > place for depth in depths) for place in range(max(depths, default=0))]


def pass_seconds(steps: Sequence[Record]) -> float:
    """Sum the target's passes, each taken as the median of those of its width: T(rows) of the run itself."""
    by_rows: dict[int, list[float]] = defaultdict(list)
    for step in steps:
        by_rows[step.rows].append(step.target_seconds)
    return sum(len(found) * median(found) for found in by_rows.values())


def bound(plain: Sequence[Record], drafted: Sequence[Record], draft_seconds: float) -> float | None:
    """Give the speedup that the drafted steps would have had if passes alone took time; None without steps.

    It is the plain steps' passes over the drafted ones' and the draft model's. For one sequence that is
    E[tokens] / (gamma c + v), with each step's own gamma, tokens and rows; in it are no reading of a prompt by the
    draft model, no sampling and no bookkeeping. Plain decoding's own sampling is left out too, so that a share of the
    bound a little above 1 is possible.
    """
    ideal = pass_seconds(drafted) + draft_seconds
    return pass_seconds(plain) / ideal if ideal > 0 else None
