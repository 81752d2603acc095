"""The joint law of three tokens through the whole engine is the target's own, by every rule and with both drafters."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import chi2, ncx2

from soothsay import Capacity, Engine, Sampling
from soothsay.draft.base import Drafter
from soothsay.draft.model import ModelDrafter
from soothsay.draft.ngram import NgramDrafter
from soothsay.model.table import TableModel
from soothsay.sampling import Adjustment, Law
from soothsay.verify import rejection
from soothsay.verify.noise import Noise, Stream
from tests.engines import numbered

RUNS = 3000
VOCABULARY = 3
TOKENS = 3
PROMPT = [0, 1, 2, 0, 1, 2, 0, 1]
SAMPLING = Sampling(temperature=0.9, max_tokens=TOKENS + 1)
FALSE_ALARM = 1e-4
"""How often a right engine would fail with other seeds. The seeds are fixed, so it never does by chance."""


@dataclass(frozen=True)
class Outcome:
    """How often each text was said, and what it took."""

    counts: NDArray[np.int64]
    drafted: int
    accepted: int


def target() -> TableModel:
    return TableModel(VOCABULARY, seed=5, sharpness=1.2)


def drafter(kind: str) -> Drafter:
    model = target()
    return NgramDrafter() if kind == "ngram" else ModelDrafter(model.blend(TableModel(VOCABULARY, seed=8), 0.5), 3, 2)


def texts() -> Iterable[tuple[int, ...]]:
    return product(range(VOCABULARY), repeat=TOKENS)


def exact(sampling: Sampling = SAMPLING) -> NDArray[np.float64]:
    """The law of the first three tokens, by the chain rule from the model's own logits."""
    return np.array([_chance(text, sampling) for text in texts()])


def _chance(text: tuple[int, ...], sampling: Sampling) -> float:
    chance = 1.0
    for place, token in enumerate(text):
        said = text[:place]
        logits = target().logits([*PROMPT, *said]).astype(float)
        logits += [sampling.logit_bias.get(other, 0) for other in range(VOCABULARY)]
        logits -= [sampling.frequency_penalty * said.count(other) for other in range(VOCABULARY)]
        logits -= [sampling.presence_penalty * (other in said) for other in range(VOCABULARY)]
        weights = np.exp(logits / sampling.temperature)
        chance *= weights[token] / weights.sum()
    return float(chance)


def said(
    monkeypatch: pytest.MonkeyPatch,
    rule: str,
    kind: str,
    runs: int = RUNS,
    gamma: int | Literal["auto"] = TOKENS,
    sampling: Sampling = SAMPLING,
    max_batch: int = 32,
) -> Outcome:
    """Ask the same prompt `runs` times, each time with another seed.

    The first answer leaves the prompt in the cache, so that all the others draft from their first token on.
    """
    monkeypatch.setattr("soothsay.core.secrets.randbits", numbered())
    capacity = Capacity(max_batch=max_batch)
    engine = Engine(target(), draft=drafter(kind), gamma=gamma, verify=rule, clock=lambda: 0.0, capacity=capacity)
    engine.generate(PROMPT, Sampling(max_tokens=1))
    answers = engine.generate([PROMPT] * runs, sampling)
    counts = Counter(answer.tokens[:TOKENS] for answer in answers)
    drafted, accepted = (sum(getattr(answer.stats, name) for answer in answers) for name in ("drafted", "accepted"))
    return Outcome(np.array([counts[text] for text in texts()]), drafted, accepted)


def distance(counts: NDArray[np.int64], sampling: Sampling = SAMPLING) -> float:
    """Pearson's chi-square."""
    expected = exact(sampling) * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


LIMIT = float(chi2.isf(FALSE_ALARM, VOCABULARY**TOKENS - 1))


def test_what_this_would_catch() -> None:
    """The power: any law at a total variation of 0.08 or more from the right one is caught with probability 0.99.

    By Cauchy and Schwarz the noncentrality of such a law is at least `RUNS` (2 TV)^2.
    """
    freedom = VOCABULARY**TOKENS - 1
    needed = brentq(lambda noncentrality: ncx2.sf(LIMIT, freedom, noncentrality) - 0.99, 1, 1000)
    assert np.sqrt(needed / RUNS) / 2 < 0.08
    assert (exact() * RUNS).min() > 2
    assert exact().sum() == pytest.approx(1)


@pytest.mark.parametrize("rule", ["coupled", "block", "token"])
@pytest.mark.parametrize("kind", ["ngram", "model"])
def test_the_joint_law_is_the_targets(monkeypatch: pytest.MonkeyPatch, rule: str, kind: str) -> None:
    outcome = said(monkeypatch, rule, kind)
    assert RUNS / 2 < outcome.accepted < outcome.drafted - RUNS / 2
    assert distance(outcome.counts) < LIMIT


@pytest.mark.parametrize("rule", ["block", "token"])
def test_the_joint_law_is_the_targets_when_the_controller_chooses(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    """It goes by how earlier drafts have fared, and the drafter stops by its own confidence: neither must show."""
    outcome = said(monkeypatch, rule, "model", gamma="auto", max_batch=4)
    assert RUNS / 2 < outcome.accepted < outcome.drafted - RUNS / 4
    assert distance(outcome.counts) < LIMIT


PENALISED = replace(SAMPLING, frequency_penalty=0.5, presence_penalty=-0.4, logit_bias={1: 0.6})


@pytest.mark.parametrize("rule", ["coupled", "block", "token"])
@pytest.mark.parametrize("kind", ["ngram", "model"])
def test_the_joint_law_is_the_targets_with_options_that_look_back(
    monkeypatch: pytest.MonkeyPatch, rule: str, kind: str
) -> None:
    outcome = said(monkeypatch, rule, kind, sampling=PENALISED)
    assert RUNS / 2 < outcome.accepted < outcome.drafted - RUNS / 2
    assert distance(outcome.counts, PENALISED) < LIMIT
    assert distance(outcome.counts) > LIMIT


def test_a_history_that_is_off_by_one_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Adjustment.__call__
    monkeypatch.setattr(Adjustment, "__call__", lambda self, row, drafted=(): right(self, row, drafted[:-1]))
    assert distance(said(monkeypatch, "block", "model", sampling=PENALISED).counts, PENALISED) > LIMIT


def whole_law(p: Law, q: Law, survival: float) -> NDArray[np.float64]:
    return np.exp(p.log_probabilities)


def placeless(self: Noise, position: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    return RIGHT_NOISE(self, 0, ids)


def one_number(self: Noise, start: int, index: int, stream: Stream) -> float:
    return RIGHT_UNIFORM(self, 0, index, stream)


RIGHT_NOISE, RIGHT_UNIFORM = Noise.gumbel, Noise.uniform
MUTANTS: dict[str, tuple[str, str, object, str, object]] = {
    "correction from p": ("token", "model", rejection, "residual", whole_law),
    "correction from p, point masses": ("token", "ngram", rejection, "residual", whole_law),
    "noise without its position": ("coupled", "ngram", Noise, "gumbel", placeless),
    "numbers without their step": ("block", "model", Noise, "uniform", one_number),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_law_is_caught(monkeypatch: pytest.MonkeyPatch, mutant: str) -> None:
    rule, kind, place, name, wrong = MUTANTS[mutant]
    monkeypatch.setattr(place, name, wrong)
    assert distance(said(monkeypatch, rule, kind, RUNS // 3).counts) > LIMIT
