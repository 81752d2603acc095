"""Drafters and the policy that chooses among them, as the engine sees them: one proposal a step, one lesson from it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from soothsay.draft.base import Ask, Draft, Drafter, Reader
from soothsay.request import Request
from soothsay.schedule.policy import Granting, Policy
from soothsay.schedule.scheduler import Turn
from soothsay.schedule.views import Choice, Outcome, Source, Step, View

NO_DRAFT = Draft()
GRAMMAR = "grammar"
"""The name of nobody in particular: a grammar leaves no choice about these tokens."""


@dataclass(slots=True)
class Proposal:
    """The drafts of a step, by place in its turns; the choices of those that decode; seconds spent, by drafter."""

    drafts: list[Draft]
    choices: dict[int, Choice]
    other_rows: int
    seconds: dict[str, float] = field(default_factory=dict)

    def author(self, place: int) -> tuple[str | None, int]:
        """Give who was asked for a draft, and for how many tokens."""
        choice = self.choices.get(place)
        if choice is not None and choice.drafter is not None:
            return choice.drafter, choice.gamma
        forced = len(self.drafts[place].tokens)
        return (GRAMMAR, forced) if forced else (None, 0)


class Speculation:
    """Asks the drafters that the policy chooses, and tells the policy what became of their drafts."""

    def __init__(self, drafters: Mapping[str, Drafter], policy: Policy, clock: Callable[[], float]) -> None:
        self._drafters = drafters
        self._policy = policy
        self._clock = clock

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the drafters."""
        return tuple(self._drafters)

    def open(self) -> dict[str, Reader]:
        """Start to follow a sequence with every drafter."""
        readers: dict[str, Reader] = {}
        try:
            for name, drafter in self._drafters.items():
                readers[name] = drafter.open()
        except BaseException:
            self._close(readers)
            raise
        return readers

    def close(self, request: Request) -> None:
        """Forget a request."""
        self._close(request.readers)
        self._policy.forget(request)

    def prompt_rows(self, decoding: int) -> int:
        """Give how many rows of prompts may go in a pass with so many sequences that decode."""
        return self._policy.prompt_rows(decoding)

    def pass_seconds(self, rows: int, sequences: int) -> float | None:
        """Give what a pass of the target over so many rows takes at the moment; None where nobody has measured."""
        return self._policy.pass_seconds(rows, sequences)

    def debt_seconds(self, request: Request) -> float | None:
        """Give what drafts have cost a request so far, below 0 where they saved; None where no books are kept."""
        return self._policy.debt_seconds(request)

    def propose(self, turns: Sequence[Turn[Request]]) -> Proposal:
        """Choose and draft for the turns that decode."""
        forced = {place: _forced(turn) for place, turn in enumerate(turns) if turn.decoding}
        views = {place: self._view(turns[place], forced[place]) for place in forced}
        other_rows = sum(len(turn.pending) for turn in turns if not turn.decoding) + sum(map(len, forced.values()))
        chosen = Granting(self._policy).plan(list(views.values()), other_rows) if views else []
        choices = dict(zip(views, chosen, strict=True))
        proposal = Proposal([NO_DRAFT] * len(turns), choices, other_rows)
        for place, tokens in forced.items():
            proposal.drafts[place] = Draft(tokens)
        asked = sorted((choice.drafter, place) for place, choice in choices.items() if choice.drafter is not None)
        for name, group in groupby(asked, key=lambda ask: ask[0]):
            places = [place for _, place in group]
            begun = self._clock()
            asks = [_ask(turns[place].sequence, choices[place]) for place in places]
            for place, draft in zip(places, self._drafters[name].propose(asks), strict=True):
                proposal.drafts[place] = draft
            proposal.seconds[name] = self._clock() - begun
        return proposal

    def learn(self, proposal: Proposal, emitted: Mapping[int, tuple[int, int]], target_seconds: float) -> None:
        """Hear, by place, how many drafted tokens were kept and how many tokens emitted."""
        outcomes = [
            _outcome(choice, proposal.drafts[place], *emitted[place]) for place, choice in proposal.choices.items()
        ]
        if outcomes:
            self._policy.observe(Step(outcomes, target_seconds, proposal.seconds, proposal.other_rows))

    def _view(self, turn: Turn[Request], forced: tuple[int, ...]) -> View:
        """Show a request to the policy; nobody is asked about tokens that are forced."""
        request = turn.sequence
        drafters = {} if forced else request.wish.among(self._drafters)
        outlooks = {name: one.outlook(request.readers[name], request.context) for name, one in drafters.items()}
        sources = {
            name: Source(outlook.lag_tokens, outlook.match) for name, outlook in outlooks.items() if outlook is not None
        }
        return View(
            request, len(request.context), turn.reach, request.max_tokens - request.emitted, sources, request.wish.gamma
        )

    def _close(self, readers: Mapping[str, Reader]) -> None:
        for name, reader in readers.items():
            self._drafters[name].close(reader)


def _forced(turn: Turn[Request]) -> tuple[int, ...]:
    """Give the tokens that a grammar leaves no choice about: drafts that cost nothing."""
    request = turn.sequence
    if request.adjust is None or turn.reach == 0 or request.wish.gamma == 0:
        return ()
    return request.adjust.forced()[: turn.reach]


def _ask(request: Request, choice: Choice) -> Ask:
    assert choice.drafter is not None
    return Ask(
        request.readers[choice.drafter],
        request.context,
        choice.gamma,
        request.sampling,
        request.verifier.drafting(len(request.context)),
        choice.window,
        choice.patience,
        request.slot,
        request.adjust.guess if request.adjust is not None else None,
    )


def _outcome(choice: Choice, draft: Draft, accepted: int, emitted: int) -> Outcome:
    return Outcome(choice, len(draft.tokens), accepted, emitted, draft.confidences)
