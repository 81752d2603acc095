"""How likely drafted tokens are to be accepted: by drafter, by what it says itself, and by how a request has fared."""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from soothsay.patience import PARTS, part

STRENGTH = 8.0
"""Tokens that a prior is worth, against those of all requests, and all requests against a single one."""

RECORD_MEMORY, FORM_MEMORY = 0.995, 0.95
"""What a draft leaves of the counts of all requests and of one: a text turns from prose to code in a few drafts."""

IDLE_MEMORY = 0.998
"""What a step without a draft leaves of them: unseen is not unchanged, and what was put aside gets another try."""

SIZES = 32
"""Of matches, each twice the one before."""


@dataclass(slots=True)
class _Counts:
    """Tokens tried and accepted, discounted."""

    tried: float = 0.0
    accepted: float = 0.0

    def rate(self, prior: float) -> float:
        return (self.accepted + STRENGTH * prior) / (self.tried + STRENGTH)

    def add(self, tried: float, accepted: float, memory: float) -> None:
        self.tried = memory * self.tried + tried
        self.accepted = memory * self.accepted + accepted

    def fade(self) -> None:
        self.add(0.0, 0.0, IDLE_MEMORY)


@dataclass(slots=True)
class _Form:
    """How one request has fared with a drafter: what was promised of the tokens tried, and how the word was kept."""

    promised: _Counts = field(default_factory=_Counts)
    kept: _Counts = field(default_factory=_Counts)

    def rate(self, prior: float) -> float:
        return min(1.0, self.promised.rate(prior) * self.kept.rate(1.0))

    def add(self, tried: float, promised: float, accepted: float) -> None:
        self.promised.add(tried, promised, FORM_MEMORY)
        self.kept.add(promised, accepted, FORM_MEMORY)

    def fade(self) -> None:
        self.promised.fade()
        self.kept.fade()


class Survival:
    """Estimates the chance of a drafted token to be accepted when those before it are.

    While drafting it is that of tokens of the same confidence, in all requests. Before a draft it is what was promised
    of this request's latest drafts, times how far that came true; while they are few, what was promised in all, for
    this drafter and this size of its match. A promise tells more of a text than the luck of a few drafts. A drafter
    without confidence promises what comes. `priors`: each drafter's acceptance before anything was seen.
    """

    def __init__(self, priors: Mapping[str, float]) -> None:
        self._priors = priors
        self._confidences = {name: [_Counts() for _ in range(PARTS)] for name in priors}
        self._records = {name: [_Counts() for _ in range(SIZES)] for name in priors}
        self._forms: dict[Hashable, dict[str, _Form]] = defaultdict(lambda: defaultdict(_Form))

    def acceptance(self, request: Hashable, drafter: str, match: int) -> float:
        """Give the chance of each token of a draft; `match` is the drafter's hint, 0: none."""
        size = match.bit_length()
        return self._forms[request][drafter].rate(
            self._records[drafter][size].rate(_matched(self._priors[drafter], size))
        )

    def confident(self, drafter: str) -> bool:
        """Whether a drafter tells how confident it is."""
        return any(counts.tried > 0 for counts in self._confidences[drafter])

    def chances(self, drafter: str) -> tuple[float, ...]:
        """Give the chance of a token by the part that its confidence lies in; before anything was seen, its middle."""
        counts = self._confidences[drafter]
        return tuple(one.rate((place + 0.5) / PARTS) for place, one in enumerate(counts))

    def observe(
        self, request: Hashable, drafter: str, match: int, drafted: int, accepted: int, confidences: Sequence[float]
    ) -> None:
        """Learn from one verdict: the positions up to and including the first rejected one were tried."""
        tried, chances = min(drafted, accepted + 1), self.chances(drafter)
        parts = [part(confidence) for confidence in confidences[:tried]]
        promised = sum(chances[one] for one in parts) if parts else accepted
        self._records[drafter][match.bit_length()].add(tried, promised, RECORD_MEMORY)
        self._forms[request][drafter].add(tried, promised, accepted)
        for place, one in enumerate(parts):
            self._confidences[drafter][one].add(1, place < accepted, RECORD_MEMORY)

    def idle(self, request: Hashable, drafter: str, match: int) -> None:
        """Let what is known of a draft that was not made grow old."""
        self._forms[request][drafter].fade()
        self._records[drafter][match.bit_length()].fade()

    def forget(self, request: Hashable) -> None:
        self._forms.pop(request, None)


def _matched(prior: float, size: int) -> float:
    """Give the prior at a match of 2^(size - 1) or more: the chance to fail falls as the reciprocal of the size."""
    return 1 - (1 - prior) / max(1.0, size / 2)
