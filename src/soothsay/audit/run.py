"""A whole audit: noise, the same tokens, the same law; and what the findings amount to."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil

from soothsay.audit import law, noise
from soothsay.audit.equality import Equality, compare
from soothsay.audit.fit import failed
from soothsay.audit.law import LawCase, LawTest
from soothsay.audit.noise import NoiseTest
from soothsay.audit.oracle import Oracle
from soothsay.audit.stages import STAGES, Stage
from soothsay.audit.subject import Subject, whole_stack
from soothsay.errors import OptionError
from soothsay.sampling import Sampling

BARE, WHOLE = "none", "all"


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is tried: temperatures and rules, `samples` of each law, answers of `max_tokens`, drafts of `gammas`."""

    temperatures: Sequence[float] = (0.0, 0.7, 1.0)
    rules: Sequence[str] = ("coupled", "block", "token")
    samples: int = 1000
    max_tokens: int = 32
    gammas: Sequence[int] = (2, 5)
    seed: int = 7

    def check(self, subject: Subject) -> None:
        """Raise OptionError for what cannot be done."""
        if self.samples < law.CLEAR_RUNS:
            raise OptionError(f"samples is {self.samples}; it must be at least {law.CLEAR_RUNS}")
        if wrong := [gamma for gamma in self.gammas if gamma < 1]:
            raise OptionError(f"gamma has {wrong[0]}; an audit needs drafts of 1 token or more")
        Sampling(seed=self.seed)
        room = subject.model.max_length - max(map(len, subject.prompts)) - 1
        if not 1 <= self.max_tokens <= room:
            raise OptionError(f"max_tokens is {self.max_tokens}; beside these prompts it must be from 1 to {room}")


@dataclass(frozen=True, slots=True)
class Defect:
    """What is wrong, and at which stage of a step it begins."""

    stage: Stage
    what: str


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was tried and found."""

    model: str
    plan: Plan
    noise: tuple[NoiseTest, ...]
    equalities: tuple[Equality, ...]
    laws: tuple[LawTest, ...]
    defects: tuple[Defect, ...]

    @property
    def ties(self) -> int:
        """How many differences rounding explains."""
        return sum(difference.tie for same in self.equalities for difference in same.differences)

    @property
    def stage(self) -> Stage | None:
        """The earliest stage with a defect: where to look first."""
        return _earliest(self.defects)


def audit(subject: Subject, plan: Plan, tick: Callable[[str], None] = lambda what: None) -> Report:
    """Try everything and sum it up; `tick` hears what was done, `units` times at most.

    Raises OptionError for a plan that the subject has no room for.
    """
    plan.check(subject)
    oracle = Oracle(subject.model, subject.end_ids)
    cases = list(_cases(subject, plan))
    tests = noise.COUNT + 2 * len(cases)
    noises = tuple(noise.tests(plan.seed, tests))
    tick("random numbers")
    equalities = tuple(_equalities(subject, oracle, plan, tick))
    laws = tuple(law.run(subject, oracle, case, plan.samples, plan.seed, tests, tick) for case in cases)
    return Report(subject.name, plan, noises, equalities, laws, tuple(_defects(noises, equalities, laws)))


def units(subject: Subject, plan: Plan) -> int:
    """Give how many parts an audit has."""
    equalities = 2 * len(plan.temperatures) * (1 + len(subject.ways(plan.gammas)))
    return 1 + equalities + ceil(plan.samples / law.BATCH) * len(list(_cases(subject, plan)))


def _asked(subject: Subject, plan: Plan) -> Iterator[tuple[str, Sampling]]:
    for temperature in plan.temperatures:
        for name, options in ((BARE, Sampling()), (WHOLE, whole_stack(subject.prompts[0]))):
            yield name, replace(options, temperature=temperature, seed=plan.seed, max_tokens=plan.max_tokens)


def _equalities(subject: Subject, oracle: Oracle, plan: Plan, tick: Callable[[str], None]) -> Iterator[Equality]:
    asked = list(_asked(subject, plan))
    plain = []
    for _, sampling in asked:
        plain.append([oracle.answer(prompt, sampling) for prompt in subject.prompts])
        tick("same tokens, the plain ones")
    for way in subject.ways(plan.gammas):
        engine = subject.engine(way)
        for (options, sampling), wanted in zip(asked, plain, strict=True):
            yield compare(subject, oracle, way, engine, options, sampling, wanted)
            tick(f"same tokens, {way}, temperature {sampling.temperature:g}")


def _cases(subject: Subject, plan: Plan) -> Iterator[LawCase]:
    """Give every rule and drafter with all options, and the last drafter, a model where there is one, with none."""
    names = list(subject.drafters)
    kinds = [*((name, WHOLE) for name in names), *((name, BARE) for name in names[-1:])]
    hot = [temperature for temperature in plan.temperatures if temperature > 0]
    for place, (temperature, rule, (drafter, options)) in enumerate(product(hot, plan.rules, kinds)):
        context = subject.contexts[place % len(subject.contexts)]
        if drafter == "ngram":
            half = len(context) // 2
            context += context[half : half + 2]  # two tokens to guess from; after more a good model is sure of the rest
        sampling = whole_stack(context) if options == WHOLE else Sampling()
        yield LawCase(rule, drafter, options, replace(sampling, temperature=temperature), context)


def _earliest(defects: Sequence[Defect]) -> Stage | None:
    return min((defect.stage for defect in defects), key=list(STAGES).index, default=None)


def _defects(noises: Sequence[NoiseTest], equalities: Sequence[Equality], laws: Sequence[LawTest]) -> Iterator[Defect]:
    """Give what is wrong, stage by stage; a law that fails for a reason already known is told of that stage."""
    fits = [*(one.fit for one in noises), *(fit for one in laws for fit in (one.drafts, one.fit) if fit is not None)]
    fails = {id(fit) for fit, fails in zip(fits, failed([fit.p_value for fit in fits]), strict=True) if fails}
    found = [Defect("noise", f"along {one.along}: p {one.fit.p_value:.1e}") for one in noises if id(one.fit) in fails]
    for same in equalities:
        found += [Defect(one.stage, f"{same}: {one}") for one in same.differences if not one.tie][:1]
    found += [Defect("sampler", f"{one}: the target's law is another") for one in laws if one.sampler]
    found += [
        Defect("draft", f"{one}: p {one.drafts.p_value:.1e}") for one in laws if one.drafts and id(one.drafts) in fails
    ]
    stage = _earliest(found) or "verify"
    found += [Defect(stage, f"{one}: p {one.fit.p_value:.1e}") for one in laws if id(one.fit) in fails]
    yield from found
