"""How far ahead to guess: the controller that maximises expected tokens a second, and never risks much for it."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from soothsay.patience import Patience
from soothsay.schedule.cost import Cost
from soothsay.schedule.plan import Helper, Line, PassCosts, best_plan
from soothsay.schedule.survival import Survival
from soothsay.schedule.views import Choice, Outcome, Step, View

DEBT_SHARE, DEBT_STEPS = 0.007, 1.5
"""What speculation may have lost on a request: a share of the plain time of its tokens, and so many plain steps."""

INSURED_SHARE, INSURED_STEPS = 0.1, 4.0
"""Of what speculation has saved in all requests: what it may add to a request's room, up to so many plain steps."""

MOST_OVERRUN = 2.0
"""By how much more than expected a drafter can be charged: beyond that it was interrupted."""

GAP_STEPS = 3.0
"""Plain steps that one step may take, so that no gap between two tokens grows long."""

TRIES = 2
"""Guesses that reading leaves room for: if the first one of a new engine fails, it must be able to dare another."""

HORIZON_TOKENS = 64
"""Tokens over which the reading before a draft is expected to pay off; fewer when the request ends sooner."""

LEAST_PROMPT_ROWS, MOST_PROMPT_ROWS = 8, 256
"""Rows of prompts in a pass with others that decode: those who wait for their first token must get on, too."""

PLAIN_EVERY, DRIFT_EVERY = 128, 16
"""Steps after which a pass without a draft is due, the second while costs drift: plain decoding has to be seen."""


@dataclass(slots=True)
class Ledger:
    """What speculation cost one request: `debt`, below 0 when it saved; seconds at the machine's usual pace."""

    debt: float = 0.0
    elapsed: float = 0.0

    def room(self, plain: float) -> float:
        """Give what may still be lost, when a plain step takes `plain`."""
        return DEBT_SHARE * self.elapsed + DEBT_STEPS * plain - self.debt


class Controller:
    """Chooses each step's drafters and gammas from what passes cost and how drafts have fared.

    A pure object: it sees recorded steps, and neither clock nor chance, and of the drafted tokens only how many were
    kept and how confident the drafter was. So its choices leave the law of the output alone under every rule.
    """

    def __init__(self, target: Cost, helpers: Mapping[str, Helper]) -> None:
        self._target = target
        self._helpers = helpers
        self._survival = Survival({name: helper.prior for name, helper in helpers.items()})
        self._ledgers: dict[Hashable, Ledger] = {}
        self._saved = 0.0
        self._since_plain = 0

    def plan(self, views: Sequence[View], other_rows: int = 0) -> list[Choice]:
        """Choose for requests that decode together, beside `other_rows` of prompts in the same pass."""
        if not any(view.sources for view in views):
            return [Choice(view) for view in views]
        if self._since_plain >= (DRIFT_EVERY if self._target.drifting else PLAIN_EVERY):
            return [Choice(view) for view in views]
        costs = PassCosts(self._target, self._helpers, views, other_rows)
        lines = [[*self._lines(view, costs)] for view in views]
        speedup, drafts = best_plan(lines, costs)
        return [
            self._choice(*drafts[place], speedup, costs) if place in drafts else Choice(view)
            for place, view in enumerate(views)
        ]

    def prompt_rows(self, decoding: int) -> int:
        """Give the rows of prompts that lengthen a plain pass no further than the longest gap allows."""
        plain = self._target.pass_seconds(decoding, 0.0, decoding)
        counts = range(LEAST_PROMPT_ROWS, MOST_PROMPT_ROWS + 1)
        fitting = bisect_right(
            counts, GAP_STEPS * plain, key=lambda rows: self._target.pass_seconds(decoding + rows, 0.0, decoding)
        )
        return counts[max(0, fitting - 1)]

    def observe(self, step: Step) -> None:
        """Learn from a finished step, and enter it in the books."""
        if not step.outcomes:
            return
        views = [outcome.choice.view for outcome in step.outcomes]
        costs = PassCosts(self._target, self._helpers, views, step.other_rows)
        depths = _depths(step.outcomes)
        expected = {name: _drafting_seconds(step.outcomes, name, counts, costs) for name, counts in depths.items()}
        overruns = {name: min(MOST_OVERRUN, step.draft_seconds[name] / expected[name]) for name in depths}
        for outcome in step.outcomes:
            self._enter(outcome, _spent(outcome, step.outcomes, depths, overruns, costs), costs)
            self._judge(outcome)
        drafted = sum(outcome.drafted for outcome in step.outcomes)
        self._since_plain = self._since_plain + 1 if drafted else 0
        for name, seconds in expected.items():
            cost = self._helpers[name].cost
            cost.observe_total(seconds / cost.pace, step.draft_seconds[name])
        if step.other_rows == 0:
            self._target.observe(costs.sequences + drafted, costs.context, step.target_seconds, costs.sequences)

    def pass_seconds(self, rows: int, sequences: int) -> float:
        """Give what a pass of the target over so many rows takes at the moment, at the start of a text."""
        return self._target.pass_seconds(rows, 0.0, sequences)

    def debt_seconds(self, request: Hashable) -> float:
        """Give what speculation has cost a request so far, below 0 where it saved."""
        return self._ledgers.get(request, Ledger()).debt

    def forget(self, request: Hashable) -> None:
        """Drop what is known of a request that ended."""
        self._ledgers.pop(request, None)
        self._survival.forget(request)

    def _room(self, request: Hashable, costs: PassCosts) -> float:
        """Give the seconds that a request may lose now; what was saved in all insures it."""
        plain = costs.plain / self._target.pace
        insured = min(INSURED_SHARE * max(0.0, self._saved) / costs.sequences, INSURED_STEPS * plain)
        return (self._ledgers.get(request, Ledger()).room(plain) + insured) * self._target.pace

    def _lines(self, view: View, costs: PassCosts) -> Iterator[Line]:
        """Give the drafts that a request can have and afford, after as much reading as leaves room for guesses."""
        room, gap = self._room(view.request, costs), (GAP_STEPS - 1) * costs.plain
        for drafter, source in view.sources.items():
            guess = costs.added_seconds(drafter, 1)
            window = costs.window(drafter, source.lag_tokens, min(room - TRIES * guess, gap - guess))
            reading = costs.reading_seconds(drafter, window, costs.sequences)
            yield Line(
                view,
                drafter,
                self._survival.acceptance(view.request, drafter, source.match),
                costs.longest(drafter, view.reach, min(room, gap) - reading),
                window,
                reading / max(1, min(view.remaining, HORIZON_TOKENS)),
                (view.remaining / costs.remaining) ** 2,
            )

    def _choice(self, line: Line, gamma: int, speedup: float, costs: PassCosts) -> Choice:
        """Give a planned draft. A drafter that knows its confidence goes on for as long as a further token is worth it.

        That is while the chance that it is accepted, in plain steps saved, is above its price at the rate of the plan.
        """
        price = costs.added_seconds(line.drafter, gamma + 1) - costs.added_seconds(line.drafter, gamma)
        least = min(1.0, speedup * price / costs.plain / line.acceptance)
        patience = Patience(least, self._survival.chances(line.drafter))
        wanted = line.longest if self._survival.confident(line.drafter) else gamma
        return Choice(line.view, line.drafter, wanted, line.window, patience)

    def _enter(self, outcome: Outcome, spent: float, costs: PassCosts) -> None:
        """Enter what the draft cost beyond plain decoding, less the plain steps that it saved."""
        plain = costs.plain / self._target.pace
        ledger = self._ledgers.setdefault(outcome.choice.view.request, Ledger())
        lost = spent / self._target.pace - (outcome.emitted - 1) * plain
        ledger.debt += lost
        ledger.elapsed += outcome.emitted * plain
        self._saved -= lost

    def _judge(self, outcome: Outcome) -> None:
        choice, view = outcome.choice, outcome.choice.view
        if choice.drafter is not None and outcome.drafted:
            match = view.sources[choice.drafter].match
            self._survival.observe(
                view.request, choice.drafter, match, outcome.drafted, outcome.accepted, outcome.confidences
            )
        for name, source in view.sources.items():
            if name != choice.drafter:
                self._survival.idle(view.request, name, source.match)


def _depths(outcomes: Sequence[Outcome]) -> dict[str, Counter[int]]:
    """Count, by drafter and depth, the sequences that shared a pass; whoever was asked cost one at least."""
    depths: dict[str, Counter[int]] = {}
    for outcome in outcomes:
        if outcome.choice.drafter is not None:
            depths.setdefault(outcome.choice.drafter, Counter()).update(range(max(1, outcome.drafted)))
    return depths


def _read(outcomes: Sequence[Outcome], drafter: str) -> int:
    """Count the tokens that a drafter read before it drafted."""
    return sum(outcome.choice.read_tokens for outcome in outcomes if outcome.choice.drafter == drafter)


def _drafting_seconds(outcomes: Sequence[Outcome], drafter: str, depths: Counter[int], costs: PassCosts) -> float:
    """Give what a drafter's passes should have taken."""
    drafting = sum(costs.draft_seconds(drafter, sequences) for sequences in depths.values())
    return drafting + costs.reading_seconds(drafter, _read(outcomes, drafter), depths[0])


def _spent(
    outcome: Outcome,
    outcomes: Sequence[Outcome],
    depths: Mapping[str, Counter[int]],
    overruns: Mapping[str, float],
    costs: PassCosts,
) -> float:
    """Give a request's part of what drafts added to the step: its shares of reading, of drafting and of wider rows.

    Drafters are charged what they took; the wider rows, which cannot be told from the pass, what they should.
    """
    drafter = outcome.choice.drafter
    if drafter is None:
        return 0.0
    sharing, read, drafted = depths[drafter], _read(outcomes, drafter), sum(other.drafted for other in outcomes)
    spent = sum(
        costs.draft_seconds(drafter, sharing[depth]) / sharing[depth] for depth in range(max(1, outcome.drafted))
    )
    if read:
        spent += costs.reading_seconds(drafter, read, sharing[0]) * outcome.choice.read_tokens / read
    spent *= overruns[drafter]
    if drafted:
        spent += (costs.seconds(drafted) - costs.seconds(0)) * outcome.drafted / drafted
    return spent
