"""A machine and texts that exist only as numbers: what the controller is tried on. Simulated seconds, seeded chance."""

import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from soothsay.schedule.cost import Cost, Shape
from soothsay.schedule.gamma import Controller
from soothsay.schedule.plan import Helper
from soothsay.schedule.views import Choice, Outcome, Source, Step, View

FREE = (1.0,) * 400
CPU = (1.0, 1.05, 1.15, 1.3, 1.35, 1.45, 1.55, 1.7, *(1.7 + 0.145 * row for row in range(1, 400)))
DEARER = (1.0, 1.13, 1.34, 1.52, 1.57, 1.68, 1.9, 2.16, *(2.16 + 0.16 * row for row in range(1, 400)))
EXPENSIVE = (1.0, 1.64, 2.3, 2.98, 3.3, 3.57, 5.0, 6.05, *(6.05 + 0.7 * row for row in range(1, 400)))
DRAFT = (1.0, 1.12, 1.17, 1.21, 1.27, 1.4, 1.55, 1.74, *(1.74 + 0.144 * row for row in range(1, 2000)))

ROW_SECONDS = 0.035
TOKEN_SHARE = 9e-5
LONGEST = 2048

Slowness = Callable[[int], float]
"""By how much everything is slower at a step."""


def shape_of(v: Sequence[float], seconds: float = ROW_SECONDS) -> Shape:
    """Give the shape that fits a table of v exactly, as probes without noise would."""
    rise = (v[7] - v[0]) / 7
    beyond = (v[15] - v[7]) / 8 - rise
    smooth = Shape((seconds, rise * seconds, max(0.0, beyond) * seconds, TOKEN_SHARE * seconds, 0.0), rounds=10)
    effects = [v[rows - 1] * seconds / smooth.seconds(rows, 0) for rows in range(1, 17)]
    return Shape(smooth.coefficients, (effects[0], *effects), rounds=10)


class Guesser(Protocol):
    """A drafter in numbers; `seen` tokens of the prompt are what its drafts are made from."""

    def hint(self, position: int) -> int | None:
        """Give the drafter's hint for a draft from a position; None: it has nothing to guess from."""
        ...

    def right(self, start: int, depth: int, seen: int) -> bool:
        """Tell whether the token at a depth of the draft from `start` is right when all before it were."""
        ...

    def confidence(self, start: int, depth: int, seen: int) -> float | None:
        """Give its confidence in the token at a depth of the draft from `start`; None when it cannot tell."""
        ...


@dataclass(frozen=True, slots=True)
class Coin:
    """Right or wrong by chance, the same for a position whenever it is asked; it is equally sure of everything."""

    good: Callable[[int], bool]
    matches: Callable[[int], int | None] = lambda position: 0
    sure: float | None = None

    def hint(self, position: int) -> int | None:
        return self.matches(position)

    def right(self, start: int, depth: int, seen: int) -> bool:
        return self.good(start + depth)

    def confidence(self, start: int, depth: int, seen: int) -> float | None:
        return self.sure


def coin(acceptance: float | Callable[[int], float], seed: int) -> Callable[[int], bool]:
    """Give independent right and wrong guesses of some chance by position."""
    chance = acceptance if callable(acceptance) else lambda position: acceptance
    chances = random.Random(seed)
    drawn = [chances.random() for _ in range(LONGEST)]
    return lambda position: drawn[position] < chance(position)


@dataclass(slots=True)
class Text:
    """A request in numbers. `held[drafter]`: the part of its context, start and end, that it has read."""

    name: Hashable
    tokens: int
    guessers: Mapping[str, Guesser]
    prompt: int = 100
    emitted: int = 1
    held: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def context(self) -> int:
        return self.prompt + self.emitted

    def view(self) -> View:
        hints = {name: guesser.hint(self.emitted) for name, guesser in self.guessers.items()}
        sources = {name: Source(self.lag(name), hint) for name, hint in hints.items() if hint is not None}
        remaining = self.tokens - self.emitted
        return View(self.name, self.context, min(16, remaining - 1), remaining, sources)

    def lag(self, drafter: str) -> int:
        """Count the unread tokens before the last one."""
        return self.context - 1 - self.held.get(drafter, (0, 0))[1]

    def read(self, choice: Choice) -> int:
        """Let the chosen drafter read; give how much it did."""
        assert choice.drafter is not None
        start = self.held.get(choice.drafter, (0, 0))[0]
        if choice.read_tokens < self.lag(choice.drafter):
            start = self.context - 1 - choice.read_tokens
        self.held[choice.drafter] = start, self.context - 1
        return choice.read_tokens

    def draft(self, choice: Choice) -> Outcome:
        """Draft, and judge the draft."""
        assert choice.drafter is not None
        guesser, start = self.guessers[choice.drafter], self.held[choice.drafter][0]
        seen, drafted, right, survival, confidences = max(0, self.prompt - start), 0, 0, 1.0, list[float]()
        while drafted < choice.gamma and survival >= choice.patience.least:
            right += right == drafted and guesser.right(self.emitted, drafted, seen)
            if (confidence := guesser.confidence(self.emitted, drafted, seen)) is not None:
                confidences.append(confidence)
                survival *= choice.patience.chance(confidence)
            drafted += 1
        self.held[choice.drafter] = start, self.context + min(right, drafted - 1)
        return Outcome(choice, drafted, right, right + 1, confidences)


@dataclass(slots=True)
class Machine:
    """Runs texts on a target with the table `v` and drafters of cost `c` (0: n-gram), noise and slowness included."""

    v: Sequence[float]
    c: Mapping[str, float]
    noise: float = 0.03
    outliers: float = 0.0
    slowness: Slowness = lambda step: 1.0
    seed: int = 0
    seconds: float = 0.0
    steps: int = 0
    longest: float = 0.0
    gammas: list[int] = field(default_factory=list)
    marks: list[tuple[int, float]] = field(default_factory=list)
    _chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def controller(self, shape: Shape | None = None, prior: float = 0.85) -> Controller:
        target = Cost(shape or shape_of(self.v))
        helpers = {
            name: Helper(
                Cost(shape_of(DRAFT, c * ROW_SECONDS) if c else Shape.reading(), beside=target),
                prior if c else 0.5,
            )
            for name, c in self.c.items()
        }
        return Controller(target, helpers)

    def run(self, texts: Sequence[Text], controller: Controller) -> float:
        """Run texts together until each has its tokens; give the seconds."""
        begun = self.seconds
        while going := [text for text in texts if text.emitted < text.tokens]:
            choices = controller.plan([text.view() for text in going])
            controller.observe(self._step(going, choices))
        for text in texts:
            controller.forget(text.name)
        return self.seconds - begun

    def run_fixed(self, texts: Sequence[Text], drafter: str | None, gamma: int) -> float:
        """Run texts at a fixed gamma."""
        begun = self.seconds
        while going := [text for text in texts if text.emitted < text.tokens]:
            self._step(going, [_fixed(text.view(), drafter, gamma) for text in going])
        return self.seconds - begun

    def pace(self, start: int, end: int) -> float:
        """Give the tokens a second from one position of the only text to another."""
        times = [next(seconds for emitted, seconds in self.marks if emitted >= place) for place in (start, end)]
        return (end - start) / (times[1] - times[0])

    def plain_pace(self) -> float:
        """Give the tokens a second without drafts, as in the middle of a text."""
        self.run_fixed([Text(0, 500, {}, prompt=200)], None, 0)
        return 500 / self.seconds

    def _step(self, going: Sequence[Text], choices: Sequence[Choice]) -> Step:
        context = sum(text.prompt + text.emitted for text in going) / len(going)
        outcomes: list[Outcome] = []
        drafting: dict[str, float] = {}
        depths: dict[str, list[int]] = {}
        lags: dict[str, int] = {}
        for text, choice in zip(going, choices, strict=True):
            if (name := choice.drafter) is None:
                outcomes.append(Outcome(choice, 0, 0, 1))
                continue
            lags[name] = lags.get(name, 0) + text.read(choice)
            outcomes.append(text.draft(choice))
            depths.setdefault(name, []).append(outcomes[-1].drafted)
        for name in sorted(depths):
            drafting[name] = self._noisy(self._drafting(name, depths[name], lags[name], context))
        rows = len(going) + sum(outcome.drafted for outcome in outcomes)
        target = self._noisy(ROW_SECONDS * (self.v[rows - 1] + TOKEN_SHARE * context * len(going)))
        self._advance(going, outcomes, sum(drafting.values()) + target)
        return Step(outcomes, target, drafting)

    def _drafting(self, name: str, gammas: Sequence[int], lag: int, context: float) -> float:
        if self.c[name] == 0:
            return 2e-5 * sum(gammas) + 3e-6 * lag
        one = self.c[name] * ROW_SECONDS
        depths = [sum(gamma >= depth for gamma in gammas) for depth in range(1, max(gammas) + 1)]
        passes = [DRAFT[rows - 1] + TOKEN_SHARE * context * rows for rows in depths]
        return one * (sum(passes) + DRAFT[depths[0] + lag - 1] - DRAFT[depths[0] - 1])

    def _noisy(self, seconds: float) -> float:
        spread = 1 + self.noise * abs(self._chance.gauss(0, 1))
        outlier = 5.0 if self._chance.random() < self.outliers else 1.0
        return seconds * spread * outlier * self.slowness(self.steps)

    def _advance(self, going: Sequence[Text], outcomes: Sequence[Outcome], seconds: float) -> None:
        self.seconds += seconds
        self.longest = max(self.longest, seconds)
        self.steps += 1
        for text, outcome in zip(going, outcomes, strict=True):
            text.emitted += outcome.emitted
            self.gammas.append(outcome.drafted)
            self.marks.append((text.emitted, self.seconds))


def _fixed(view: View, drafter: str | None, gamma: int) -> Choice:
    wanted = min(gamma, view.reach) if drafter in view.sources else 0
    return Choice(view, drafter if wanted else None, wanted)
