"""The same tokens, whoever drafts and whoever is in the batch; a difference is traced to where it begins."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from soothsay.audit.oracle import Oracle, Tokens
from soothsay.audit.stages import Stage
from soothsay.audit.subject import Subject, Way
from soothsay.audit.witness import Witness
from soothsay.completion import Completion
from soothsay.engine import Engine
from soothsay.record import Details, Record
from soothsay.sampling import Law, Sampling

TIE = 0.05
"""Logits that differ by more are not the same up to rounding."""

ROUNDING = 1e-3
"""Two best logits that are closer can change places by rounding alone."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first token of an answer that is not the plain one's, None where one of the two ends there.

    `margin` lies between the two best logits there; `tie` says that rounding explains the difference.
    """

    prompt: int
    position: int
    token: int | None
    plain: int | None
    margin: float
    stage: Stage
    tie: bool

    def __str__(self) -> str:
        said = "the end" if self.token is None else self.token
        plain = "the end" if self.plain is None else self.plain
        where = f"prompt {self.prompt}, position {self.position}"
        return f"{where}: {said} instead of {plain}, {self.margin:.2g} between the two best logits"


@dataclass(frozen=True, slots=True)
class Equality:
    """What one way said of all prompts with some options."""

    way: str
    options: str
    temperature: float
    answers: int
    tokens: int
    drafted: int
    accepted: int
    differences: tuple[Difference, ...]

    def __str__(self) -> str:
        return f"{self.way}, temperature {self.temperature:g}, options {self.options}"


def compare(
    subject: Subject,
    oracle: Oracle,
    way: Way,
    engine: Engine,
    options: str,
    sampling: Sampling,
    plain: Sequence[Tokens],
) -> Equality:
    """Answer all prompts with the engine of a way, beside the plain answers."""
    said = _answers(subject, way, engine, sampling)
    stats = [answer.stats for answer in said]
    return Equality(
        way=str(way),
        options=options,
        temperature=sampling.temperature,
        answers=len(said),
        tokens=sum(one.tokens for one in stats),
        drafted=sum(one.drafted for one in stats),
        accepted=sum(one.accepted for one in stats),
        differences=tuple(_differences(subject, oracle, way, sampling, [answer.tokens for answer in said], plain)),
    )


def _answers(subject: Subject, way: Way, engine: Engine, sampling: Sampling) -> list[Completion]:
    prompts = [list(prompt) for prompt in subject.prompts]
    if way.batched:
        return engine.generate(prompts, sampling)
    return [engine.generate(prompt, sampling) for prompt in prompts]


def _differences(
    subject: Subject, oracle: Oracle, way: Way, sampling: Sampling, said: Sequence[Tokens], plain: Sequence[Tokens]
) -> Iterator[Difference]:
    """Trace each difference in a fresh engine; one that is not there has to do with what the first one had kept."""
    if list(said) == list(plain):
        return
    fresh = [answer.tokens for answer in _answers(subject, way, subject.engine(way), sampling)]
    for number, (mine, again, theirs) in enumerate(zip(said, fresh, plain, strict=True)):
        if again != theirs:
            yield _difference(subject, oracle, way, sampling, number, again, theirs)
        elif mine != theirs:
            place = _parting(mine, theirs)
            margin = _margin(oracle.row([*subject.prompts[number], *theirs[:place]]))
            traced = _Traced("forward", ROUNDING) if margin <= ROUNDING else _Traced("cache")
            yield _told(subject, number, place, mine, theirs, margin, traced)


def _difference(
    subject: Subject, oracle: Oracle, way: Way, sampling: Sampling, number: int, mine: Tokens, theirs: Tokens
) -> Difference:
    """Go the way once more to see what the engine had before it where two answers part."""
    place = _parting(mine, theirs)
    context = [*subject.prompts[number], *theirs[:place]]
    seen = _Seen(subject.target(way), number, len(context))
    _answers(subject, way, subject.engine(way, watch=seen), sampling)
    row = oracle.row(context)
    traced = _trace(seen, oracle, context, row, sampling, place)
    return _told(subject, number, place, mine, theirs, _margin(row), traced)


def _told(
    subject: Subject, number: int, place: int, mine: Tokens, theirs: Tokens, margin: float, traced: "_Traced"
) -> Difference:
    return Difference(
        prompt=number,
        position=len(subject.prompts[number]) + place,
        token=mine[place] if place < len(mine) else None,
        plain=theirs[place] if place < len(theirs) else None,
        margin=margin,
        stage=traced.stage,
        tie=traced.apart <= TIE and margin <= 2 * traced.apart,
    )


def _parting(mine: Tokens, theirs: Tokens) -> int:
    """Give the first place where two answers are not the same."""
    pairs = enumerate(zip(mine, theirs, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(mine), len(theirs)))


class _Traced(NamedTuple):
    """Where a difference begins; `apart` is by how much logits differ, where it is they that differ."""

    stage: Stage
    apart: float = math.inf


class _Seen:
    """Watches for the step that emits one request's token at one position, and keeps what the step was made of."""

    def __init__(self, model: Witness, number: int, position: int) -> None:
        self._model, self._number, self.position = model, number, position
        self.details: Details | None = None

    def __call__(self, record: Record) -> None:
        for draft in record.drafts:
            details = draft.details
            assert details is not None
            reached = details.position <= self.position < details.position + len(details.kept.pieces)
            if reached and details.request.number == self._number:
                self.details, slot = details, details.request.slot
                self.text, self.length = list(self._model.text(slot)), self._model.length(slot)
                self.rows, self.again = self._model.rows(slot), self._model.again(slot)


def _trace(
    seen: _Seen, oracle: Oracle, context: Sequence[int], row: NDArray[np.float32], sampling: Sampling, emitted: int
) -> _Traced:
    """Follow the order of a step: what the cache should hold, the logits, the law; what is left is the verdict."""
    details = seen.details
    if details is None:
        return _Traced("verify")
    text, place = [*context[: details.position], *details.draft.tokens], seen.position - details.position
    if seen.text != text or seen.length != len(text):
        return _Traced("cache")
    found = seen.rows[place]
    if not np.array_equal(found, row):
        reproduced = np.array_equal(seen.again[place], found)
        return _Traced("forward", float(np.abs(found - row).max())) if reproduced else _Traced("cache")
    law = oracle.law_of(row, list(context), len(context) - emitted, sampling)
    return _Traced("verify" if same(details.kept.laws[place], law) else "sampler")


def same(one: Law, other: Law) -> bool:
    """Tell whether two laws are the same to the last bit."""
    return np.array_equal(one.ids, other.ids) and np.array_equal(one.log_probabilities, other.log_probabilities)


def _margin(row: NDArray[np.float32]) -> float:
    """Give by how much the best logit is ahead of the second."""
    second, best = np.partition(row, -2)[-2:]
    return float(best - second)
