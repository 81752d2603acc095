"""Coupled verification: the target's own words for a seed, whatever was drafted, and drafts that often agree.

The seeds are fixed, so each statistic is a fixed number; every bar is at 1e-6. 10,000 runs see a shift of the joint
law by a total variation of 0.05 with a probability of 0.99 (27 cells).
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from soothsay.sampling import Law
from soothsay.verify import Noise, Rule
from soothsay.verify.coupled import coupled, draw_coupled
from soothsay.verify.theory import coupled_agreement
from tests.verify.toys import Joint, Tokens, as_law, continued, dense, emitted, step, toy

TARGET, DRAFTER = toy(3, 1, dense), toy(3, 2, dense)
RUNS = 10_000
BAR = 1e-6


def same_law(counts: Counter[Tokens], expected: Joint) -> float:
    """Give the p-value of a chi-square test; a token sequence that cannot be gives 0."""
    if counts.keys() - expected.keys():
        return 0.0
    whole = counts.total()
    cells = [(counts[tokens], whole * probability) for tokens, probability in expected.items()]
    common = [cell for cell in cells if cell[1] >= 5]
    rare = (sum(seen for seen, wanted in cells if wanted < 5), sum(wanted for _, wanted in cells if wanted < 5))
    seen, wanted = zip(*common, *([rare] if rare[1] > 0 else []), strict=True)
    return float(stats.chisquare(seen, wanted, sum_check=False).pvalue)


def sampled(noise: Callable[[int], Noise], gamma: int) -> Counter[Tokens]:
    """Count the first three tokens of many runs, speculation and all."""
    return Counter(first_three(noise(seed), gamma) for seed in range(RUNS))


def first_three(noise: Noise, gamma: int) -> Tokens:
    tokens: Tokens = ()
    while len(tokens) < 3:
        tokens = (*tokens, *step(Rule.COUPLED, noise, TARGET, DRAFTER, tokens, gamma).tokens)
    return tokens[:3]


@pytest.mark.parametrize("gamma", [0, 2])
def test_joint_law_of_three_tokens(gamma: int) -> None:
    assert same_law(sampled(Noise, gamma), continued({(): 1.0}, TARGET, 3)) > BAR


@dataclass(frozen=True)
class Tampered:
    """Noise whose Gumbel numbers are asked for with another key."""

    noise: Noise
    ask: Callable[[Noise, int, NDArray[np.int64]], NDArray[np.float64]]

    def gumbel(self, position: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.ask(self.noise, position, ids)


def tampered(ask: Callable[[Noise, int, NDArray[np.int64]], NDArray[np.float64]]) -> Callable[[int], Noise]:
    return lambda seed: cast(Noise, Tampered(Noise(seed), ask))


def test_mutant_noise_shared_by_two_positions() -> None:
    """Each token alone keeps its law; only the joint law shows it."""
    shared = sampled(tampered(lambda noise, position, ids: noise.gumbel(position // 2, ids)), 2)
    assert same_law(shared, continued({(): 1.0}, TARGET, 3)) < BAR


def agreements(drafter_noise: Callable[[int], Noise], p: Law, q: Law) -> int:
    """Count the seeds for which target and drafter draw the same token."""
    return sum(draw_coupled(p, Noise(s), 4) == draw_coupled(q, drafter_noise(s), 4) for s in range(RUNS))


def as_expected(agreed: int, probability: float) -> bool:
    return bool(stats.binomtest(agreed, RUNS, probability).pvalue > BAR)


LAWS: dict[str, tuple[Law, Law]] = {
    "dense": (TARGET(()), DRAFTER(())),
    "different supports": (as_law([4, 3, 2, 1, 0]), as_law([0, 3, 1, 2, 2])),
    "draft cut to two": (as_law([5, 1, 3, 1, 2]), as_law([6, 0, 2, 0, 0])),
}


@pytest.mark.parametrize("name", LAWS)
def test_agreement_is_the_closed_form(name: str) -> None:
    p, q = LAWS[name]
    assert as_expected(agreements(Noise, p, q), coupled_agreement(p, q))


def test_mutant_drafter_noise_shifted_by_one() -> None:
    """Every token stays right; only the agreement shows it."""
    p, q = LAWS["dense"]
    shifted = tampered(lambda noise, position, ids: noise.gumbel(position + 1, ids))
    assert not as_expected(agreements(shifted, p, q), coupled_agreement(p, q))


def test_mutant_noise_by_rank_in_the_support() -> None:
    p, q = LAWS["different supports"]
    ranked = tampered(lambda noise, position, ids: noise.gumbel(position, np.arange(len(ids))))
    assert not as_expected(agreements(ranked, p, q), coupled_agreement(p, q))


def unlimited(law: Law, noise: Noise, position: int) -> int:
    """Mutant of `draw_coupled`: noise on the whole vocabulary, also where the law has no support."""
    scores = np.zeros(5)
    scores[law.ids] = law.log_probabilities
    return int((scores + noise.gumbel(position, np.arange(5))).argmax())


@pytest.mark.parametrize(("draw", "sound"), [(draw_coupled, True), (unlimited, False)])
def test_noise_is_limited_to_the_support(draw: Callable[[Law, Noise, int], int], sound: bool) -> None:
    law = as_law([0, 1, 2, 0, 3])
    counts: Counter[Tokens] = Counter((draw(law, Noise(seed), 0),) for seed in range(RUNS))
    assert (same_law(counts, continued({(): 1.0}, lambda prefix: law, 1)) > BAR) is sound


def plain(seed: int, length: int) -> Tokens:
    tokens: Tokens = ()
    while len(tokens) < length:
        tokens = (*tokens, draw_coupled(TARGET(tokens), Noise(seed), len(tokens)))
    return tokens


@pytest.mark.parametrize("gamma", [0, 1, 3, 6])
@pytest.mark.parametrize("kind", ["other model", "same model", "always token 2"])
def test_same_tokens_for_a_seed_with_any_drafter_at_any_length(kind: str, gamma: int) -> None:
    drafter = {"other model": DRAFTER, "same model": TARGET, "always token 2": lambda prefix: Law.point(2)}[kind]
    for seed in range(20):
        tokens = emitted(Rule.COUPLED, Noise(seed), TARGET, drafter, gamma, steps=6)
        assert tokens == plain(seed, len(tokens))


def test_every_possible_draft_gives_the_same_tokens() -> None:
    for seed, drafted in product(range(5), product(range(3), repeat=3)):
        laws = [TARGET(drafted[:index]) for index in range(4)]
        verdict = coupled(laws, drafted, Noise(seed), 0)
        assert verdict.tokens == plain(seed, len(verdict.tokens))
        assert verdict.tokens[: verdict.accepted] == drafted[: verdict.accepted]


def test_the_target_as_its_own_drafter_is_always_right() -> None:
    assert all(step(Rule.COUPLED, Noise(seed), TARGET, TARGET, (1,), 5).accepted == 5 for seed in range(50))


def test_samples_of_one_seed_differ() -> None:
    texts = {emitted(Rule.COUPLED, Noise(1, sample), TARGET, DRAFTER, 0, steps=12) for sample in range(8)}
    assert len(texts) == 8


def test_ties_go_to_the_lowest_id() -> None:
    silent = tampered(lambda noise, position, ids: np.zeros(len(ids)))
    assert draw_coupled(as_law([0, 1, 1, 1]), silent(0), 0) == 1
