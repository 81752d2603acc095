"""Greedy verification, and that temperature 0 is greedy under every rule."""

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
import pytest

from soothsay.sampling import Law, Sampling, law
from soothsay.verify import Noise, Rule, Verdict, verifier
from soothsay.verify.greedy import greedy
from tests.verify.toys import as_law

LAWS = [as_law(weights) for weights in ([1, 3, 1], [2, 1, 2], [0, 1, 5], [1, 4, 4])]  # say 1, 0, 2, 1


@pytest.mark.parametrize(
    ("tokens", "verdict"),
    [
        ((1, 0, 2), Verdict((1, 0, 2, 1), 3)),
        ((1, 2, 2), Verdict((1, 0), 1)),
        ((0, 0, 2), Verdict((1,), 0)),
        ((), Verdict((1,), 0)),
    ],
)
def test_keeps_the_likeliest_tokens(tokens: tuple[int, ...], verdict: Verdict) -> None:
    assert greedy(LAWS[: len(tokens) + 1], tokens) == verdict


@pytest.mark.parametrize("rule", Rule)
def test_temperature_zero_is_greedy_under_every_rule(rule: Rule) -> None:
    rng = np.random.default_rng(0)
    for seed in range(50):
        logits = rng.integers(0, 3, (4, 5)).astype(np.float32)  # many ties
        laws = [law(row, Sampling()) for row in logits]
        tokens = tuple(int(row.argmax()) if rng.random() < 0.8 else int(rng.integers(5)) for row in logits[:3])
        for draft_laws in (None, [Law.point(token) for token in tokens]):
            assert verifier(rule, Noise(seed)).verify(laws, tokens, draft_laws, 9) == greedy(laws, tokens)


class Watched(Sequence[Law]):
    """Laws that remember which of them were read."""

    def __init__(self, laws: list[Law]) -> None:
        self.laws, self.read = laws, list[int]()

    def __len__(self) -> int:
        return len(self.laws)

    def __iter__(self) -> Iterator[Law]:
        raise AssertionError("reads every law at once")

    @overload
    def __getitem__(self, index: int) -> Law: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Law]: ...
    def __getitem__(self, index: int | slice) -> Law | Sequence[Law]:
        assert isinstance(index, int)
        self.read.append(index)
        return self.laws[index]


@pytest.mark.parametrize(
    ("rule", "read"), [(Rule.COUPLED, [0, 1]), (Rule.TOKEN, [0, 1]), (Rule.BLOCK, [0, 1, 2])], ids=str
)
def test_laws_are_read_once_each_and_no_further_than_needed(rule: Rule, read: list[int]) -> None:
    """A law may be worked out from its logits when it is asked for."""
    laws = Watched([Law.point(token) for token in (1, 0, 2, 1)])
    assert verifier(rule, Noise(0)).verify(laws, (1, 2, 2), None, 0) == Verdict((1, 0), 1)
    assert laws.read == read
