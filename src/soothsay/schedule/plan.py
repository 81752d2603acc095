"""The best drafts for one step: expected tokens a second, from what passes cost and how drafts survive."""

import heapq
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from soothsay.schedule.cost import Cost
from soothsay.schedule.views import View

WORTHWHILE = 1.05
"""How much better than plain a plan must look: of many estimates the best one flatters."""

LONGEST = 16
"""Tokens of a draft, at most."""


@dataclass(frozen=True, slots=True)
class Helper:
    """A drafter as the controller knows it: what its passes cost, and its acceptance before anything was seen."""

    cost: Cost
    prior: float = 0.7


class PassCosts:
    """The price list of one step of `sequences` that hold `context` tokens and have `remaining` to go, on average.

    Rows of prompts in the same pass are not paid for by those who decode, but they make each further row dearer.
    """

    def __init__(self, target: Cost, helpers: Mapping[str, Helper], views: Sequence[View], other_rows: int) -> None:
        self.sequences = len(views)
        self.context = sum(view.context for view in views) / len(views)
        self.remaining = sum(view.remaining for view in views) / len(views)
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

    def window(self, drafter: str, lag_tokens: int, seconds: float) -> int:
        """Give how much of a lag can be read in so many seconds."""
        tokens = range(1, lag_tokens + 1)
        return bisect_right(tokens, seconds, key=lambda count: self.reading_seconds(drafter, count, self.sequences))

    def longest(self, drafter: str, reach: int, seconds: float) -> int:
        """Give the longest draft up to `reach` that adds no more than so many seconds when all draft alike."""
        lengths = range(min(reach, LONGEST), 0, -1)
        return next((gamma for gamma in lengths if self.added_seconds(drafter, gamma) <= seconds), 0)

    def added_seconds(self, drafter: str, gamma: int) -> float:
        """Give what a draft adds to a step in which all sequences draft alike."""
        crowd = self.sequences
        wider = self.seconds(gamma * crowd) - self.seconds(0)
        return (gamma * self.draft_seconds(drafter, crowd) + wider) / crowd


@dataclass(frozen=True, slots=True)
class Line:
    """A draft that could be made, of up to `longest` tokens, each accepted with the chance `acceptance`.

    A `window` is read first, which costs `reading` seconds for each token that it will help to emit. `weight` is what a
    token of this request counts: more where it has more to go than the others, who would end before it.
    """

    view: View
    drafter: str
    acceptance: float
    longest: int
    window: int
    reading: float
    weight: float

    def speedup(self, costs: PassCosts) -> float:
        """Give the best speedup for the request's share of a step in which all drafted alike."""
        best, tokens, survival = 0.0, 1.0, 1.0
        for gamma in range(1, self.longest + 1):
            survival *= self.acceptance
            tokens += survival * self.weight
            added = costs.added_seconds(self.drafter, gamma) + tokens * self.reading
            best = max(best, tokens * costs.plain / (costs.plain + added))
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
    heap = [(-line.weight * line.acceptance, place, 1) for place, line in chosen.items() if line.longest > 0]
    heapq.heapify(heap)
    sharing: Counter[tuple[str, int]] = Counter()
    tokens, drafting, total = float(costs.sequences), 0.0, 0
    speedup, best, gammas = WORTHWHILE, dict[int, int](), dict[int, int]()
    while heap:
        negative, place, gamma = heapq.heappop(heap)
        line, gammas[place], survival = chosen[place], gamma, -negative
        if gamma < line.longest:
            heapq.heappush(heap, (negative * line.acceptance, place, gamma + 1))
        shared = sharing[line.drafter, gamma]
        sharing[line.drafter, gamma] += 1
        drafting += costs.draft_seconds(line.drafter, shared + 1) - costs.draft_seconds(line.drafter, shared)
        drafting += line.reading * (survival + (gamma == 1))
        tokens, total = tokens + survival, total + 1
        if tokens * costs.plain > speedup * (costs.seconds(total) + drafting):
            speedup, best = tokens * costs.plain / (costs.seconds(total) + drafting), dict(gammas)
    return speedup if best else 1.0, {place: (chosen[place], gamma) for place, gamma in best.items()}


def _best_line(lines: Sequence[Line], costs: PassCosts) -> Line:
    return lines[0] if len(lines) == 1 else max(lines, key=lambda line: line.speedup(costs))
