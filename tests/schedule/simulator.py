"""A machine and texts that exist only as numbers: what the controller is tried on. Simulated seconds, seeded chance."""

import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from soothsay.schedule.cost import Cost, Shape
from soothsay.schedule.gamma import Controller
from soothsay.schedule.plan import Helper
from soothsay.schedule.views import Outcome, Source, Step, View

FREE = (1.0,) * 400
CPU = (1.0, 1.02, 1.12, 1.22, 1.28, 1.4, 1.5, 1.55, *(1.55 + 0.17 * row for row in range(1, 400)))
EXPENSIVE = (1.0, 1.64, 2.3, 2.98, 3.3, 3.57, 5.0, 6.05, *(6.05 + 0.7 * row for row in range(1, 400)))

ROW_SECONDS = 0.035
TOKEN_SHARE = 9e-5
WINDOW = 24
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


@dataclass(frozen=True, slots=True)
class Guesser:
    """A drafter in numbers: `good(t)` says whether its guess for position t would be right, `hint(t)` its match."""

    good: Callable[[int], bool]
    hint: Callable[[int], int | None] = lambda position: 0


@dataclass(slots=True)
class Text:
    """A request in numbers."""

    name: Hashable
    tokens: int
    guessers: Mapping[str, Guesser]
    prompt: int = 100
    emitted: int = 1
    window: int = WINDOW
    read: dict[str, int] = field(default_factory=dict)

    def view(self) -> View:
        hints = {name: guesser.hint(self.emitted) for name, guesser in self.guessers.items()}
        sources = {name: Source(self.lag(name), hint) for name, hint in hints.items() if hint is not None}
        remaining = self.tokens - self.emitted
        return View(self.name, self.prompt + self.emitted, min(16, remaining - 1), remaining, sources)

    def lag(self, drafter: str) -> int:
        return min(self.window, self.emitted - self.read.get(drafter, -self.prompt))

    def judge(self, drafter: str | None, gamma: int) -> int:
        """Count the accepted of `gamma` guesses."""
        if drafter is None:
            return 0
        good = self.guessers[drafter].good
        return next((place for place in range(gamma) if not good(self.emitted + place)), gamma)


def coin(acceptance: float | Callable[[int], float], seed: int) -> Callable[[int], bool]:
    """Give independent right and wrong guesses, the same for a position whenever it is asked."""
    chance = acceptance if callable(acceptance) else lambda position: acceptance
    chances = random.Random(seed)
    drawn = [chances.random() for _ in range(LONGEST)]
    return lambda position: drawn[position] < chance(position)


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
    gammas: list[int] = field(default_factory=list)
    marks: list[tuple[int, float]] = field(default_factory=list)
    _chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def controller(self, shape: Shape | None = None, prior: float = 0.7) -> Controller:
        target = Cost(shape or shape_of(self.v))
        helpers = {
            name: Helper(
                Cost(shape_of(CPU, c * ROW_SECONDS) if c else Shape.reading(), beside=target),
                prior if c else 0.4,
            )
            for name, c in self.c.items()
        }
        return Controller(target, helpers)

    def run(self, texts: Sequence[Text], controller: Controller) -> float:
        """Run texts together until each has its tokens; give the seconds."""
        begun = self.seconds
        for text in texts:
            readable = [controller.readable_tokens(text.view(), name, len(texts)) for name in text.guessers]
            text.window = max(2, min([WINDOW, *readable]))
        while going := [text for text in texts if text.emitted < text.tokens]:
            choices = controller.plan([text.view() for text in going])
            asked = [(choice.drafter, choice.gamma) for choice in choices]
            draft_seconds, target_seconds = self._times(going, asked)
            accepted = [text.judge(*ask) for text, ask in zip(going, asked, strict=True)]
            self._advance(going, asked, accepted)
            outcomes = [
                Outcome(choice, choice.gamma, kept, kept + 1) for choice, kept in zip(choices, accepted, strict=True)
            ]
            controller.observe(Step(outcomes, target_seconds, draft_seconds))
        for text in texts:
            controller.forget(text.name)
        return self.seconds - begun

    def pace(self, start: int, end: int) -> float:
        """Give the tokens a second from one position of the only text to another."""
        times = [next(seconds for emitted, seconds in self.marks if emitted >= place) for place in (start, end)]
        return (end - start) / (times[1] - times[0])

    def plain_pace(self) -> float:
        """Give the tokens a second without drafts, as in the middle of a text."""
        self.run_fixed([Text(0, 500, {}, prompt=200)], None, 0)
        return 500 / self.seconds

    def run_fixed(self, texts: Sequence[Text], drafter: str | None, gamma: int) -> float:
        """Run texts at a fixed gamma."""
        begun = self.seconds
        while going := [text for text in texts if text.emitted < text.tokens]:
            reach = [min(gamma, text.tokens - text.emitted - 1) for text in going]
            asked = [(drafter if few else None, few) for few in reach]
            self._times(going, asked)
            self._advance(going, asked, [text.judge(*ask) for text, ask in zip(going, asked, strict=True)])
        return self.seconds - begun

    def _times(self, going: Sequence[Text], asked: Sequence[tuple[str | None, int]]) -> tuple[dict[str, float], float]:
        rows = len(going) + sum(gamma for _, gamma in asked)
        context = sum(text.prompt + text.emitted for text in going)
        drafting: dict[str, float] = {}
        for name in sorted({drafter for drafter, _ in asked if drafter is not None}):
            gammas = [gamma for drafter, gamma in asked if drafter == name]
            lag = sum(text.lag(name) for text, (drafter, _) in zip(going, asked, strict=True) if drafter == name)
            drafting[name] = self._noisy(self._drafting(name, gammas, lag, context / len(going)))
        target = self._noisy(ROW_SECONDS * (self.v[rows - 1] + TOKEN_SHARE * context))
        self.seconds += sum(drafting.values()) + target
        self.steps += 1
        self.gammas.extend(gamma for _, gamma in asked)
        return drafting, target

    def _drafting(self, name: str, gammas: Sequence[int], lag: int, context: float) -> float:
        if self.c[name] == 0:
            return 2e-5 * sum(gammas) + 3e-6 * lag
        one = self.c[name] * ROW_SECONDS
        depths = [sum(gamma >= depth for gamma in gammas) for depth in range(1, max(gammas) + 1)]
        passes = [CPU[rows - 1] + TOKEN_SHARE * context * rows for rows in depths]
        return one * (sum(passes) + CPU[depths[0] + lag - 1] - CPU[depths[0] - 1])

    def _noisy(self, seconds: float) -> float:
        spread = 1 + self.noise * abs(self._chance.gauss(0, 1))
        outlier = 5.0 if self._chance.random() < self.outliers else 1.0
        return seconds * spread * outlier * self.slowness(self.steps)

    def _advance(self, going: Sequence[Text], asked: Sequence[tuple[str | None, int]], accepted: Sequence[int]) -> None:
        for text, (drafter, gamma), kept in zip(going, asked, accepted, strict=True):
            if drafter is not None:
                text.read[drafter] = text.emitted + min(kept, gamma - 1) + 1
            text.emitted += kept + 1
            self.marks.append((text.emitted, self.seconds))
