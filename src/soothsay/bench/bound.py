"""What the steps as they were drafted could have saved, had nothing but passes taken time."""

import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from statistics import median

from soothsay.draft.model import COMMON_TOKENS
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
        feeds = [Feed(slot, [0], 1, COMMON_TOKENS) for slot in self._slots[:width]]
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


def bound(plain: Sequence[Record], drafted: Sequence[Record], draft_seconds: float) -> float | None:
    """Give the speedup that the drafted steps would have had if passes alone took time; None without steps.

    It is the seconds of the plain steps' passes over those of the drafted steps' and the draft model's. For one
    sequence that is E[tokens] / (gamma c + v), with each step's own gamma, tokens and rows. Reading of the prompt by
    the draft model, sampling and bookkeeping are not in it; plain decoding's own neither, so that a share of the bound
    a little above 1 is possible.
    """
    ideal = _pass_seconds(drafted) + draft_seconds
    return _pass_seconds(plain) / ideal if ideal > 0 else None


def _pass_seconds(steps: Sequence[Record]) -> float:
    return sum(step.target_seconds for step in steps)
