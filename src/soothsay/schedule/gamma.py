"""How far ahead to guess: the controller that maximises expected tokens a second, and never risks much for it."""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from soothsay.schedule.cost import Cost
from soothsay.schedule.plan import Helper, Line, PassCosts, best_plan, with_values
from soothsay.schedule.survival import Survival
from soothsay.schedule.views import Choice, Outcome, Step, View

DEBT_SHARE = 0.02
"""Of the plain time of a request's tokens: what speculation may have lost on them."""

DEBT_STEPS = 2.0
"""Plain steps that a request may owe at once."""

CURIOSITY_SHARE = 0.01
"""Of the plain time: what may go into drafts that are expected to lose, to see whether they still do."""

CURIOSITY_STEPS = 2.0
"""Plain steps of it that can be saved up."""

INSURED_SHARE, INSURED_STEPS = 0.05, 1.0
"""Of what speculation has saved in all requests: what it may add to a request's room, up to so many plain steps."""

HOPE = 0.95
"""The acceptance at which a drafter that was put aside would have to pay, for another try."""

HORIZON_TOKENS = 64
"""Tokens over which the reading before a first draft is expected to pay off; fewer when the request ends sooner."""

FIRST_PLAIN, PLAIN_EVERY = 8, 128
"""Steps after which a pass without a draft is due, at first and at last: what plain decoding costs has to be seen."""

READING_STEPS = 1.0
"""Plain steps that the reading of a long prompt may add to one step, so that no gap between two tokens grows long."""


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
    kept. So its choices leave the law of the output alone under every rule of verification.
    """

    def __init__(self, target: Cost, helpers: Mapping[str, Helper]) -> None:
        self._target = target
        self._helpers = helpers
        self._survival = Survival({name: helper.prior for name, helper in helpers.items()})
        self._ledgers: dict[Hashable, Ledger] = {}
        self._saved = 0.0
        self._curiosity = 0.0
        self._since_plain = 0
        self._plain_every = FIRST_PLAIN

    def plan(self, views: Sequence[View], other_rows: int = 0, *, waiting: bool = False) -> list[Choice]:
        """Choose for requests that decode together, beside `other_rows` of prompts in the same pass.

        `waiting`: others wait for a place, so that each request that ends makes room for work.
        """
        if not views:
            return []
        costs = PassCosts(self._target, self._helpers, views, other_rows)
        lines = [[*self._lines(view, costs)] for view in views]
        if len(views) > 1 and not waiting:
            lines = with_values(views, lines, costs)
        speedup, drafts = best_plan(lines, costs)
        if self._since_plain >= self._plain_every:
            self._plain_every = FIRST_PLAIN if self._target.drifting else min(PLAIN_EVERY, 2 * self._plain_every)
            return [_choice(view, None, speedup) for view in views]
        choices = [_choice(view, drafts.get(place), speedup) for place, view in enumerate(views)]
        return self._with_curiosity(choices, lines, speedup, costs)

    def observe(self, step: Step) -> None:
        """Learn from a finished step, and enter it in the books."""
        if not step.outcomes:
            return
        views = [outcome.choice.view for outcome in step.outcomes]
        costs = PassCosts(self._target, self._helpers, views, step.other_rows)
        depths = _depths(step.outcomes)
        for outcome in step.outcomes:
            self._enter(outcome, _spent(outcome, step.outcomes, depths, costs), costs)
            self._judge(outcome)
        drafted = sum(outcome.drafted for outcome in step.outcomes)
        self._since_plain = self._since_plain + 1 if drafted else 0
        self._time(step, drafted, depths, costs)

    def forget(self, request: Hashable) -> None:
        """Drop what is known of a request that ended."""
        self._ledgers.pop(request, None)
        self._survival.forget(request)

    def readable_tokens(self, view: View, drafter: str, sequences: int = 1) -> int:
        """Give how many tokens of a prompt the drafter may read now, one of so many sequences, beside its lag.

        The reading is at the request's expense, leaves it a short draft, and is bounded for its neighbours' sake.
        """
        costs = PassCosts(self._target, self._helpers, [view] * sequences, 0)
        room = self._room(view.request, costs) - costs.added_seconds(drafter, 2, sequences)
        token_seconds = costs.reading_seconds(drafter, 64, sequences) / 64
        return max(0, int(min(room, READING_STEPS * costs.plain) / token_seconds))

    def _room(self, request: Hashable, costs: PassCosts) -> float:
        """Give the seconds that a request may lose now; what others saved insures it, within bounds."""
        plain = costs.plain / self._target.pace
        insured = min(INSURED_SHARE * max(0.0, self._saved), INSURED_STEPS * plain * costs.sequences)
        return (self._ledgers.get(request, Ledger()).room(plain) + insured) * self._target.pace

    def _lines(self, view: View, costs: PassCosts) -> Iterator[Line]:
        """Give the drafts that a request can have and afford."""
        room = self._room(view.request, costs)
        for drafter, source in view.sources.items():
            reading = costs.reading_seconds(drafter, source.lag_tokens, costs.sequences)
            curve = self._survival.curve(view.request, drafter, source.confidence, view.reach)
            while curve and reading + costs.added_seconds(drafter, len(curve), costs.sequences) > room:
                curve.pop()
            yield Line(view, drafter, curve, reading / max(1, min(view.remaining, HORIZON_TOKENS)))

    def _with_curiosity(
        self, choices: list[Choice], lines: Sequence[Sequence[Line]], speedup: float, costs: PassCosts
    ) -> list[Choice]:
        """Let one request try a drafter that was put aside, when that could pay and its loss is saved up."""
        for place, choice in enumerate(choices):
            for line in lines[place]:
                if line.drafter != choice.drafter and self._curious(line, speedup, costs):
                    tried = replace(choice, drafter=line.drafter, gamma=1, value=line.value, curious=True)
                    return [*choices[:place], tried, *choices[place + 1 :]]
        return choices

    def _curious(self, line: Line, speedup: float, costs: PassCosts) -> bool:
        view = line.view
        reading = costs.reading_seconds(line.drafter, view.sources[line.drafter].lag_tokens, 1)
        stake = reading + costs.added_seconds(line.drafter, 1, 1) + costs.plain - costs.plain / speedup
        if view.reach == 0 or stake > min(self._curiosity * self._target.pace, self._room(view.request, costs)):
            return False
        hoped = replace(line, curve=[HOPE**place for place in range(1, view.reach + 1)])
        return hoped.speedup(costs) > speedup

    def _enter(self, outcome: Outcome, spent: float, costs: PassCosts) -> None:
        """Enter what the draft cost beyond plain decoding, less the plain steps that it saved."""
        pace, plain = self._target.pace, costs.plain / self._target.pace
        ledger = self._ledgers.setdefault(outcome.choice.view.request, Ledger())
        gained = (outcome.emitted - 1) * outcome.choice.value * plain
        lost = spent / pace - gained
        ledger.debt += lost
        self._saved -= lost
        ledger.elapsed += outcome.emitted * plain
        saved = self._curiosity + CURIOSITY_SHARE * outcome.emitted * plain
        if outcome.choice.curious:
            saved -= spent / pace + plain - (plain + gained) / outcome.choice.speedup
        self._curiosity = min(saved, CURIOSITY_STEPS * plain)

    def _judge(self, outcome: Outcome) -> None:
        choice, view = outcome.choice, outcome.choice.view
        if choice.drafter is not None and outcome.drafted:
            source = view.sources[choice.drafter]
            self._survival.observe(view.request, choice.drafter, source.confidence, outcome.drafted, outcome.accepted)
        self._survival.idle(view.request, [name for name in view.sources if name != choice.drafter])

    def _time(self, step: Step, drafted: int, depths: Mapping[str, Counter[int]], costs: PassCosts) -> None:
        """Learn what passes cost."""
        rows = costs.sequences + step.other_rows + drafted
        for drafter, counts in depths.items():
            expected = sum(costs.draft_seconds(drafter, sequences) for sequences in counts.values())
            expected += costs.reading_seconds(drafter, _read(step.outcomes, drafter), counts[0])
            cost = self._helpers[drafter].cost
            cost.observe_total(expected / cost.pace, step.draft_seconds[drafter])
        if step.other_rows == 0:
            self._target.observe(rows, costs.context, step.target_seconds, costs.sequences)


def _choice(view: View, draft: tuple[Line, int] | None, speedup: float) -> Choice:
    """Give a planned draft, or none."""
    if draft is None:
        return Choice(view, None, 0, speedup)
    line, gamma = draft
    return Choice(view, line.drafter, gamma, speedup, line.value)


def _depths(outcomes: Sequence[Outcome]) -> dict[str, Counter[int]]:
    """Count, by drafter and depth, the sequences that shared a pass; whoever was asked cost one at least."""
    depths: dict[str, Counter[int]] = {}
    for outcome in outcomes:
        if outcome.choice.drafter is not None:
            depths.setdefault(outcome.choice.drafter, Counter()).update(range(max(1, outcome.drafted)))
    return depths


def _read(outcomes: Sequence[Outcome], drafter: str) -> int:
    """Count the tokens that a drafter read before it drafted."""
    mine = (outcome for outcome in outcomes if outcome.choice.drafter == drafter)
    return sum(outcome.choice.view.sources[drafter].lag_tokens + outcome.read_tokens for outcome in mine)


def _spent(
    outcome: Outcome, outcomes: Sequence[Outcome], depths: Mapping[str, Counter[int]], costs: PassCosts
) -> float:
    """Give a request's part of what drafts added to the step: its shares of reading, of drafting and of wider rows."""
    drafter = outcome.choice.drafter
    if drafter is None:
        return 0.0
    sharing, read, drafted = depths[drafter], _read(outcomes, drafter), sum(other.drafted for other in outcomes)
    spent = sum(
        costs.draft_seconds(drafter, sharing[depth]) / sharing[depth] for depth in range(max(1, outcome.drafted))
    )
    if read:
        spent += costs.reading_seconds(drafter, read, sharing[0]) * _read([outcome], drafter) / read
    if drafted:
        spent += (costs.seconds(drafted) - costs.seconds(0)) * outcome.drafted / drafted
    return spent
