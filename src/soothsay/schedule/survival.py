"""How likely drafts are to survive: by drafter, by its own hint, by position, and by how this request has fared."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

POSITIONS = 16
"""Positions of a draft that are counted apart, and the most that are planned; later ones count as the last."""

LEAST = 0.05
"""A position that is reached less often is not worth a thought."""

RECORD_STRENGTH = 4.0
"""Observations that a prior is worth, against those of all requests together."""

RECORD_MEMORY = 0.995
"""What a step leaves of the counts of all requests: a new kind of work is known after a few hundred steps."""

FORM_STRENGTH = 2.0
"""Successes and failures that "as the others" is worth, against what one request itself has shown."""

FORM_MEMORY = 0.92
"""What a drafted step leaves of a request's counts: a dozen steps, since one text turns from prose to code."""

IDLE_MEMORY = 0.99
"""What a step without a draft leaves of them: unseen is not unchanged."""


@dataclass(slots=True)
class _Record:
    """How a kind of draft has fared in all requests: discounted counts, by position and (last) in all."""

    prior: float
    tried: list[float] = field(default_factory=lambda: [0.0] * (POSITIONS + 1))
    accepted: list[float] = field(default_factory=lambda: [0.0] * (POSITIONS + 1))

    def acceptance(self, position: int) -> float:
        """Give the chance of a position whose predecessors were accepted; one that was not reached is as the rest."""
        overall = (self.accepted[-1] + RECORD_STRENGTH * self.prior) / (self.tried[-1] + RECORD_STRENGTH)
        return (self.accepted[position] + RECORD_STRENGTH * overall) / (self.tried[position] + RECORD_STRENGTH)

    def add(self, tried: int, accepted: int) -> None:
        self.tried = [RECORD_MEMORY * count for count in self.tried]
        self.accepted = [RECORD_MEMORY * count for count in self.accepted]
        for place in range(tried):
            for counted in (min(place, POSITIONS - 1), POSITIONS):
                self.tried[counted] += 1
                self.accepted[counted] += place < accepted


@dataclass(slots=True)
class _Form:
    """How one request has fared with a drafter, beside what was expected of it: discounted counts."""

    accepted: float = 0.0
    rejected: float = 0.0
    expected: float = 0.0
    unexpected: float = 0.0

    @property
    def odds(self) -> float:
        """Give the factor from the odds of all requests to this one's: a smoothed ratio, 1 without evidence."""
        better = (self.accepted + FORM_STRENGTH) / (self.expected + FORM_STRENGTH)
        worse = (self.rejected + FORM_STRENGTH) / (self.unexpected + FORM_STRENGTH)
        return better / worse

    def fade(self, memory: float) -> None:
        self.accepted *= memory
        self.rejected *= memory
        self.expected *= memory
        self.unexpected *= memory


class Survival:
    """Estimates s_k, the chance that the first k drafted tokens are all accepted.

    The acceptance at a position is that of all requests, for this drafter and this size of its hint, with the odds
    shifted by how this request has fared lately: a request is easy or hard as a whole, and the shape by position is
    learned from all. `priors` gives each drafter's acceptance before anything was seen.
    """

    def __init__(self, priors: Mapping[str, float]) -> None:
        self._priors = priors
        self._records: dict[tuple[str, int], _Record] = {}
        self._forms: dict[Hashable, dict[str, _Form]] = defaultdict(lambda: defaultdict(_Form))

    def curve(self, request: Hashable, drafter: str, confidence: int, reach: int) -> list[float]:
        """Give s_1, s_2, ... for up to `reach` tokens; `confidence` is the drafter's hint (a match length), 0: none."""
        record, odds = self._record(drafter, confidence), self._forms[request][drafter].odds
        curve, survival = [], 1.0
        for place in range(min(reach, POSITIONS)):
            survival *= _shifted(record.acceptance(place), odds)
            if survival < LEAST:
                break
            curve.append(survival)
        return curve

    def observe(self, request: Hashable, drafter: str, confidence: int, drafted: int, accepted: int) -> None:
        """Learn from one verdict: the positions up to and including the first rejected one were tried."""
        tried = min(drafted, accepted + 1)
        record, form = self._record(drafter, confidence), self._forms[request][drafter]
        expected = sum(record.acceptance(min(place, POSITIONS - 1)) for place in range(tried))
        form.fade(FORM_MEMORY)
        form.accepted += accepted
        form.rejected += tried - accepted
        form.expected += expected
        form.unexpected += tried - expected
        record.add(tried, accepted)

    def idle(self, request: Hashable, drafters: Iterable[str]) -> None:
        """Let what is known of a request's drafters that were not tried grow old."""
        for drafter in drafters:
            self._forms[request][drafter].fade(IDLE_MEMORY)

    def forget(self, request: Hashable) -> None:
        self._forms.pop(request, None)

    def _record(self, drafter: str, confidence: int) -> _Record:
        size = confidence.bit_length()
        if (drafter, size) not in self._records:
            self._records[drafter, size] = _Record(_hinted(self._priors[drafter], size))
        return self._records[drafter, size]


def _shifted(acceptance: float, odds: float) -> float:
    return odds * acceptance / (1 - acceptance + odds * acceptance)


def _hinted(prior: float, size: int) -> float:
    """Give the prior at a hint of 2^(size - 1) or more: the chance to fail falls as the reciprocal of the size."""
    return 1 - (1 - prior) / max(1.0, size / 2)
