"""The best drafts for one step: expected tokens a second, from what passes cost and how drafts survive."""

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from soothsay.schedule.cost import Cost
from soothsay.schedule.views import View

WORTHWHILE = 1.02
"""How much better than plain a plan must look: of many estimates the best one flatters."""

SHORT = 4
"""Tokens of the draft by which the end of a request is guessed."""

TOGETHER = 1.5
"""Requests end about together when their steps to go differ by less than this factor; ends are guesses."""


@dataclass(frozen=True, slots=True)
class Helper:
    """A drafter as the controller knows it: what its passes cost, and its acceptance before anything was seen."""

    cost: Cost
    prior: float = 0.7


class PassCosts:
    """The price list of one step of `sequences` that hold `context` tokens on average.

    Rows of prompts in the same pass are not paid for by those who decode, but they make each further row dearer.
    """

    def __init__(self, target: Cost, helpers: Mapping[str, Helper], views: Sequence[View], other_rows: int) -> None:
        self.sequences = len(views)
        self.context = sum(view.context for view in views) / len(views)
        self._target, self._helpers = target, helpers
        self._rows = len(views) + other_rows
        without = target.pass_seconds(len(views), self.context, len(views))
        self.plain = without / len(views)
        self._others = target.pass_seconds(self._rows, self.context, len(views)) - without if other_rows else 0.0
        self._seconds: dict[int, float] = {0: without}
        self._draft_seconds: dict[tuple[str, int], float] = {}

    def seconds(self, drafted: int) -> float:
        """Give the seconds of the target's pass with `drafted` tokens in it."""
        if drafted not in self._seconds:
            whole = self._target.pass_seconds(self._rows + drafted, self.context, self.sequences)
            self._seconds[drafted] = whole - self._others
        return self._seconds[drafted]

    def plain_seconds(self, sequences: int) -> float:
        """Give the seconds of a pass of so many sequences without drafts."""
        return self._target.pass_seconds(sequences, self.context, sequences) if sequences else 0.0

    def draft_seconds(self, drafter: str, sequences: int) -> float:
        """Give the seconds of one more drafted token for each of so many sequences."""
        if sequences == 0:
            return 0.0
        key = (drafter, sequences)
        if key not in self._draft_seconds:
            self._draft_seconds[key] = self._helpers[drafter].cost.pass_seconds(sequences, self.context, sequences)
        return self._draft_seconds[key]

    def reading_seconds(self, drafter: str, tokens: int, sequences: int) -> float:
        """Give the seconds that reading adds to the drafter's first pass, in which so many sequences draft."""
        if tokens == 0:
            return 0.0
        whole = self._helpers[drafter].cost.pass_seconds(sequences + tokens, self.context, sequences)
        return whole - self.draft_seconds(drafter, sequences)

    def added_seconds(self, drafter: str, gamma: int, crowd: int) -> float:
        """Give what a draft adds to a step in which it is one of so many alike."""
        wider = self.seconds(gamma * crowd) - self.seconds(0)
        return (gamma * self.draft_seconds(drafter, crowd) + wider) / crowd


@dataclass(frozen=True, slots=True)
class Line:
    """A draft that could be made: its survival curve, and the reading it needs, as seconds a token it helps emit.

    `value`: of a token that the request need not wait for, in shares of a plain step.
    """

    view: View
    drafter: str
    curve: list[float]
    reading: float
    value: float = 1.0

    def speedup(self, costs: PassCosts) -> float:
        """Give the best speedup for the request's share of a step in which all drafted alike."""
        best, gained = 0.0, costs.plain
        for gamma, survival in enumerate(self.curve, 1):
            gained += survival * self.value * costs.plain
            added = costs.added_seconds(self.drafter, gamma, costs.sequences) + gained / costs.plain * self.reading
            best = max(best, gained / (costs.plain + added))
        return best


def best_plan(lines: Sequence[Sequence[Line]], costs: PassCosts) -> tuple[float, dict[int, tuple[Line, int]]]:
    """Compare drafting by everyone's best drafter with drafting by a single one, whose passes are then shared by more.

    Gives the speedup of all requests together, and the drafts by place.
    """
    chosen = {place: _best_line(mine, costs) for place, mine in enumerate(lines) if mine}
    used = sorted({line.drafter for line in chosen.values()})
    choices = [chosen]
    if len(used) > 1:
        choices += [dict(_of(drafter, lines)) for drafter in used]
    return max((_greedy_plan(choice, costs) for choice in choices), key=lambda plan: plan[0])


def _of(drafter: str, lines: Sequence[Sequence[Line]]) -> Iterator[tuple[int, Line]]:
    return ((place, line) for place, mine in enumerate(lines) for line in mine if line.drafter == drafter)


def _greedy_plan(chosen: Mapping[int, Line], costs: PassCosts) -> tuple[float, dict[int, tuple[Line, int]]]:
    """Add the likeliest next token of any draft, one after the other, and stop where the rate was best.

    It looks past a dip: the first token of a pass pays for all that share it, and tiles of rows have edges.
    """
    heap = [(-line.curve[0] * line.value, place, 1) for place, line in chosen.items() if line.curve]
    heapq.heapify(heap)
    sharing: Counter[tuple[str, int]] = Counter()
    gained, drafting = costs.seconds(0), 0.0
    speedup, best, gammas = WORTHWHILE, dict[int, int](), dict[int, int]()
    for total in range(1, sum(len(line.curve) for line in chosen.values()) + 1):
        negative, place, gamma = heapq.heappop(heap)
        line, gammas[place] = chosen[place], gamma
        if gamma < len(line.curve):
            heapq.heappush(heap, (-line.curve[gamma] * line.value, place, gamma + 1))
        shared = sharing[line.drafter, gamma]
        sharing[line.drafter, gamma] += 1
        drafting += costs.draft_seconds(line.drafter, shared + 1) - costs.draft_seconds(line.drafter, shared)
        drafting += line.reading * (line.curve[gamma - 1] + (gamma == 1))
        gained -= negative * costs.plain
        if gained > speedup * (costs.seconds(total) + drafting):
            speedup, best = gained / (costs.seconds(total) + drafting), dict(gammas)
    return speedup if best else 1.0, {place: (chosen[place], gamma) for place, gamma in best.items()}


def with_values(views: Sequence[View], lines: Sequence[Sequence[Line]], costs: PassCosts) -> list[list[Line]]:
    """Value the tokens of each request when no other waits for its place.

    Who ends long before the others makes the rest of their passes narrower by a row, no more; the last ones alone free
    the machine. So, from the last to end to the first, each gets the seconds by which its row widens a plain pass;
    requests that will end about together share theirs.
    """
    waits = [_steps_left(view, mine) for view, mine in zip(views, lines, strict=True)]
    values: dict[int, float] = {}
    for group in _together(waits):
        narrower = len(values)
        share = (costs.plain_seconds(narrower + len(group)) - costs.plain_seconds(narrower)) / len(group)
        values.update(dict.fromkeys(group, share / costs.plain))
    return [[replace(line, value=values[place]) for line in mine] for place, mine in enumerate(lines)]


def _steps_left(view: View, lines: Sequence[Line]) -> float:
    """Estimate the steps until a request ends, with short drafts by its best drafter."""
    return view.remaining / (1 + max((sum(line.curve[:SHORT]) for line in lines), default=0.0))


def _together(waits: Sequence[float]) -> list[list[int]]:
    """Group the places that end about together, the last ones first."""
    groups: list[list[int]] = []
    for place in sorted(range(len(waits)), key=lambda place: -waits[place]):
        if groups and waits[groups[-1][0]] < TOGETHER * waits[place]:
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def _best_line(lines: Sequence[Line], costs: PassCosts) -> Line:
    return lines[0] if len(lines) == 1 else max(lines, key=lambda line: line.speedup(costs))
