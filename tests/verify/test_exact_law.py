"""The joint law of gamma + 1 tokens, enumerated exactly through the real rules, is the target's own."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import ArrayLike

from soothsay.model.table import TableModel
from soothsay.sampling import Sampling, law
from soothsay.verify import Noise, Rule, verifier
from tests.verify.toys import (
    Tokens,
    Toy,
    always,
    as_law,
    dense,
    distance,
    emitted,
    expected_accepted,
    step,
    toy,
)

EXACT = 1e-12
RULES = [Rule.TOKEN, Rule.BLOCK]


def zeros(rng: np.random.Generator, vocab: int) -> ArrayLike:
    kept = rng.random(vocab) < 0.6
    kept[rng.integers(vocab)] = True
    return np.where(kept, rng.dirichlet(np.ones(vocab)), 0)


def ties(rng: np.random.Generator, vocab: int) -> ArrayLike:
    return rng.integers(1, 3, vocab)


def point(rng: np.random.Generator, vocab: int) -> ArrayLike:
    return rng.permutation(np.eye(1, vocab)[0])


def even(rng: np.random.Generator, vocab: int) -> ArrayLike:
    return np.where(np.arange(vocab) % 2 == 0, rng.dirichlet(np.ones(vocab)), 0)


def odd(rng: np.random.Generator, vocab: int) -> ArrayLike:
    return np.where(np.arange(vocab) % 2 == 1, rng.dirichlet(np.ones(vocab)), 0)


def lopsided(rng: np.random.Generator, vocab: int) -> ArrayLike:
    """Weights over 30 orders of magnitude."""
    return 10.0 ** -rng.integers(0, 30, vocab)


def nearly(vocab: int, seed: int, slip: float) -> Toy:
    """The dense toy of the same seed, each probability off by a small share."""
    exact = toy(vocab, seed, dense)
    return lambda prefix: as_law(np.exp(exact(prefix).log_probabilities) * (1 + slip * np.arange(vocab)))


def table(vocab: int, seed: int, sampling: Sampling, limit: int | None = None) -> Toy:
    model = TableModel(vocab, seed)
    return lambda prefix: law(model.logits(prefix), sampling, limit=limit)


WARM = Sampling(temperature=0.7)
PAIRS: dict[str, Callable[[int], tuple[Toy, Toy]]] = {
    "dense": lambda v: (toy(v, 1, dense), toy(v, 2, dense)),
    "zeros": lambda v: (toy(v, 1, zeros), toy(v, 2, zeros)),
    "ties": lambda v: (toy(v, 1, ties), toy(v, 2, ties)),
    "equal": lambda v: (toy(v, 1, dense), toy(v, 1, dense)),
    "equal but for rounding": lambda v: (toy(v, 1, dense), nearly(v, 1, 1e-16)),
    "close": lambda v: (toy(v, 1, dense), nearly(v, 1, 1e-3)),
    "disjoint": lambda v: (toy(v, 1, even), toy(v, 2, odd)),
    "point target": lambda v: (toy(v, 1, point), toy(v, 2, dense)),
    "point draft": lambda v: (toy(v, 1, dense), toy(v, 2, point)),
    "two points": lambda v: (toy(v, 1, point), toy(v, 2, point)),
    "lopsided": lambda v: (toy(v, 1, lopsided), toy(v, 2, lopsided)),
    "draft cut to two": lambda v: (table(v, 1, WARM), table(v, 2, WARM, limit=2)),
    "whole stack": lambda v: (
        table(v, 1, Sampling(temperature=1.3, top_k=3, top_p=0.9, min_p=0.05)),
        table(v, 2, WARM, limit=2),
    ),
}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("gamma", [1, 2, 3, 4])
@pytest.mark.parametrize("vocab", [2, 3, 4])
@pytest.mark.parametrize("rule", RULES)
def test_one_step_keeps_the_joint_law(rule: Rule, vocab: int, gamma: int, pair: str) -> None:
    target, drafter = PAIRS[pair](vocab)
    assert distance(lambda noise: emitted(rule, noise, target, drafter, gamma), target, gamma + 1) < EXACT


@pytest.mark.parametrize("pair", ["dense", "zeros", "draft cut to two"])
@pytest.mark.parametrize("rule", RULES)
def test_two_steps_keep_the_joint_law(rule: Rule, pair: str) -> None:
    """A second step that depends on anything but the emitted tokens shows here and in no single step."""
    target, drafter = PAIRS[pair](3)
    assert distance(lambda noise: emitted(rule, noise, target, drafter, 2, steps=2), target, 6) < EXACT


@pytest.mark.parametrize("rule", RULES)
def test_no_draft_is_the_plain_path(rule: Rule) -> None:
    target, drafter = PAIRS["dense"](4)
    assert distance(lambda noise: emitted(rule, noise, target, drafter, 0, steps=3), target, 3) < EXACT


@pytest.mark.parametrize("rule", RULES)
def test_absent_draft_laws_are_point_masses(rule: Rule) -> None:
    """An n-gram drafter hands in tokens alone."""
    target = toy(3, 1, dense)
    drafted = (2, 0, 1)

    def run(noise: Noise) -> Tokens:
        laws = [target(drafted[:index]) for index in range(4)]
        return verifier(rule, noise).verify(laws, drafted, None, 0).tokens

    assert distance(run, target, 4) < EXACT


@pytest.mark.parametrize("rule", RULES)
def test_a_draft_length_chosen_by_kept_tokens_keeps_the_joint_law(rule: Rule) -> None:
    """The decision to draft on may use every token that stays in the draft, and its probability."""
    target, drafter = PAIRS["dense"](3)

    def run(noise: Noise) -> Tokens:
        first = drafter(())
        drafted = verifier(rule, noise).drafting(0)(first, 0)
        gamma = 3 if first.log_probability(drafted) > np.log(0.3) else 1
        return emitted(rule, noise, target, drafter, gamma)

    assert distance(run, target, 4) < EXACT


def test_the_worked_example_of_the_block_paper() -> None:
    """p = (1/3, 2/3), q = (2/3, 1/3), gamma 2: 10/9 tokens kept by token, 11/9 by block (arXiv 2403.10444)."""
    target, drafter = always([1, 2]), always([2, 1])
    assert expected_accepted(Rule.TOKEN, target, drafter, 2) == pytest.approx(10 / 9, abs=EXACT)
    assert expected_accepted(Rule.BLOCK, target, drafter, 2) == pytest.approx(11 / 9, abs=EXACT)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("vocab", [2, 3, 4])
def test_block_never_keeps_less_than_token(vocab: int, pair: str) -> None:
    target, drafter = PAIRS[pair](vocab)
    kept = {rule: expected_accepted(rule, target, drafter, 3) for rule in RULES}
    assert kept[Rule.BLOCK] >= kept[Rule.TOKEN] - EXACT


def test_block_gains_on_dense_laws() -> None:
    """The inequality above would hold for two copies of one rule; here block must be ahead."""
    target, drafter = PAIRS["dense"](3)
    ahead = expected_accepted(Rule.BLOCK, target, drafter, 3) - expected_accepted(Rule.TOKEN, target, drafter, 3)
    assert ahead > 0.01


def sum_of_overlaps(target: Toy, drafter: Toy, prefix: Tokens, gamma: int) -> float:
    """E[kept] of the token rule, from its definition: sum over x of min(p, q) (1 + E[kept after x])."""
    if gamma == 0:
        return 0.0
    p, q = target(prefix), drafter(prefix)
    shares = [(x, np.exp(min(p.log_probability(x), q.log_probability(x)))) for x in q.ids.tolist()]
    return float(sum(share * (1 + sum_of_overlaps(target, drafter, (*prefix, x), gamma - 1)) for x, share in shares))


@pytest.mark.parametrize("pair", PAIRS)
def test_token_keeps_what_the_overlaps_say(pair: str) -> None:
    target, drafter = PAIRS[pair](3)
    expected = sum_of_overlaps(target, drafter, (), 3)
    assert expected_accepted(Rule.TOKEN, target, drafter, 3) == pytest.approx(expected, abs=EXACT)


@pytest.mark.parametrize(("pair", "gamma"), [("dense", 1), ("zeros", 1), ("point draft", 3)])
def test_block_is_token_where_it_must_be(pair: str, gamma: int) -> None:
    """At gamma 1, and for drafts without chance, the two rules are one."""
    target, drafter = PAIRS[pair](4)
    kept = [expected_accepted(rule, target, drafter, gamma) for rule in RULES]
    assert kept[0] == pytest.approx(kept[1], abs=EXACT)


@pytest.mark.parametrize("rule", RULES)
def test_equal_laws_keep_every_draft(rule: Rule) -> None:
    target, drafter = PAIRS["equal"](4)
    assert expected_accepted(rule, target, drafter, 4) == pytest.approx(4, abs=EXACT)


@pytest.mark.parametrize("rule", RULES)
def test_a_verdict_is_the_kept_draft_and_one_token(rule: Rule) -> None:
    target, drafter = PAIRS["dense"](4)
    for seed in range(200):
        verdict = step(rule, Noise(seed), target, drafter, (1,), 3)
        assert len(verdict.tokens) == verdict.accepted + 1 <= 4
