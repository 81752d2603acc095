"""Toy language models, and exact enumeration of what the real rules do with them.

`outcomes` runs code over every outcome of its uniform numbers. A number is an interval that each comparison with a
bound splits; asking twice for the same key gives the same interval, as the real noise would. So the law that comes
out is exact, also for code that uses a number twice.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from soothsay.sampling import Law
from soothsay.verify import Noise, Rule, Verdict, verifier
from soothsay.verify.noise import Stream

Tokens: TypeAlias = tuple[int, ...]
Toy: TypeAlias = Callable[[Tokens], Law]
"""A language model: the law of the token that follows a prefix."""

Joint: TypeAlias = dict[Tokens, float]
T = TypeVar("T")


class Unit:
    """A uniform number, known to lie between `low` and `high`."""

    def __init__(self, decide: Callable[[], bool]) -> None:
        self.low, self.high = 0.0, 1.0
        self._decide = decide

    def __lt__(self, bound: float) -> bool:
        if bound <= self.low:
            return False
        if bound >= self.high:
            return True
        below = self._decide()
        if below:
            self.high = float(bound)
        else:
            self.low = float(bound)
        return below


class ScriptedNoise:
    """Stands in for `Noise`: its numbers follow a script of decisions, and new decisions extend it."""

    def __init__(self, script: list[bool]) -> None:
        self._script = script
        self._decided = 0
        self._units: dict[Tokens, Unit] = {}

    def uniform(self, start: int, index: int, stream: Stream) -> Unit:
        return self._units.setdefault((start, index, stream), Unit(self._decide))

    def probability(self) -> float:
        return math.prod(unit.high - unit.low for unit in self._units.values())

    def _decide(self) -> bool:
        if self._decided == len(self._script):
            self._script.append(True)
        self._decided += 1
        return self._script[self._decided - 1]


def outcomes(run: Callable[[Noise], T]) -> Iterator[tuple[T, float]]:
    """Give each outcome of `run` with its probability (the same result may come several times)."""
    script: list[bool] = []
    while True:
        noise = ScriptedNoise(script)
        yield run(cast(Noise, noise)), noise.probability()
        while script and not script[-1]:
            script.pop()
        if not script:
            return
        script[-1] = False


def as_law(weights: ArrayLike) -> Law:
    """Normalise weights into a law; zeros are outside its support."""
    array = np.asarray(weights, np.float64)
    ids = np.flatnonzero(array)
    return Law(ids, np.log(array[ids] / array.sum()))


def toy(vocab: int, seed: int, weights: Callable[[np.random.Generator, int], ArrayLike]) -> Toy:
    """Make a model whose weights after each prefix come from a generator of that prefix's own."""

    @cache
    def after(prefix: Tokens) -> Law:
        return as_law(weights(np.random.default_rng([seed, len(prefix), *prefix]), vocab))

    return after


def dense(rng: np.random.Generator, vocab: int) -> ArrayLike:
    return rng.dirichlet(np.ones(vocab))


def step(rule: Rule, noise: Noise, target: Toy, drafter: Toy, prefix: Tokens, gamma: int) -> Verdict:
    """Draft and verify once, as an engine does."""
    judge = verifier(rule, noise)
    draw = judge.drafting(len(prefix))
    context, qs = prefix, []
    for position in range(len(prefix), len(prefix) + gamma):
        qs.append(drafter(context))
        context = (*context, draw(qs[-1], position))
    laws = [target(context[: len(prefix) + index]) for index in range(gamma + 1)]
    return judge.verify(laws, context[len(prefix) :], qs, len(prefix))


def emitted(rule: Rule, noise: Noise, target: Toy, drafter: Toy, gamma: int, steps: int = 1) -> Tokens:
    """Give what so many steps emit."""
    tokens: Tokens = ()
    for _ in range(steps):
        tokens = (*tokens, *step(rule, noise, target, drafter, tokens, gamma).tokens)
    return tokens


def joint(run: Callable[[Noise], Tokens], target: Toy, length: int) -> Joint:
    """Give the exact law of the first `length` tokens when `run` begins the text and the target goes on alone."""
    begun: Joint = defaultdict(float)
    for tokens, probability in outcomes(run):
        begun[tokens[:length]] += probability
    return continued(begun, target, length)


def continued(begun: Joint, target: Toy, length: int) -> Joint:
    """Let the target complete each beginning to `length` tokens."""
    complete: Joint = defaultdict(float)
    for tokens, probability in begun.items():
        for whole, share in completions(tokens, probability, target, length):
            complete[whole] += share
    return complete


def completions(tokens: Tokens, probability: float, target: Toy, length: int) -> Iterator[tuple[Tokens, float]]:
    if len(tokens) == length:
        yield tokens, probability
        return
    law = target(tokens)
    for token, share in zip(law.ids.tolist(), np.exp(law.log_probabilities).tolist(), strict=True):
        yield from completions((*tokens, token), probability * share, target, length)


def total_variation(one: Joint, other: Joint) -> float:
    return sum(abs(one.get(tokens, 0) - other.get(tokens, 0)) for tokens in one.keys() | other.keys()) / 2


def distance(run: Callable[[Noise], Tokens], target: Toy, length: int) -> float:
    """Give the total variation between what `run` says and what the target says by itself."""
    return total_variation(joint(run, target, length), continued({(): 1.0}, target, length))


def expected_accepted(rule: Rule, target: Toy, drafter: Toy, gamma: int) -> float:
    """Give the exact expected number of accepted tokens in a first step."""
    verdicts = outcomes(lambda noise: step(rule, noise, target, drafter, (), gamma))
    return sum(verdict.accepted * probability for verdict, probability in verdicts)


def always(weights: Sequence[float]) -> Toy:
    """Make a model that says the same law after every prefix."""
    law = as_law(weights)
    return lambda prefix: law
