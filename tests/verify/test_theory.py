"""The formulas against the figures of the papers and against enumeration."""

import numpy as np
import pytest

from soothsay.verify import Rule
from soothsay.verify.theory import coupled_agreement, expected_tokens, speedup
from tests.verify.toys import always, as_law, expected_accepted


@pytest.mark.parametrize(("acceptance", "gamma", "factor"), [(0.8, 5, 3.69), (0.9, 2, 2.71)])
def test_table_one_of_the_founding_paper(acceptance: float, gamma: int, factor: float) -> None:
    assert speedup(acceptance, gamma, draft_cost=0) == pytest.approx(factor, abs=0.005)


def test_expected_tokens_at_the_ends() -> None:
    assert expected_tokens(0, 7) == 1
    assert expected_tokens(1, 7) == 8
    assert expected_tokens(0.5, 0) == 1


def test_expected_tokens_of_the_token_rule() -> None:
    """Laws that do not change make the acceptance constant: here sum min(p, q) = 0.7."""
    target, drafter = always([5, 3, 2]), always([2, 4, 4])
    assert expected_tokens(0.7, 4) == pytest.approx(1 + expected_accepted(Rule.TOKEN, target, drafter, 4))


def test_speedup_pays_for_drafts_and_rows() -> None:
    assert speedup(1.0, 3, draft_cost=0.25, pass_cost=1.25) == pytest.approx(4 / 2)
    assert speedup(0.3, 0, draft_cost=0.25) == 1


def test_agreement_is_the_double_sum() -> None:
    """The formula as the paper prints it."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        p, q = (rng.dirichlet(np.ones(5)) * (rng.random(5) < 0.7) + 1e-9 * np.eye(5)[2] for _ in range(2))
        p, q = p / p.sum(), q / q.sum()
        both = np.flatnonzero(p * q)
        printed = sum(1 / np.maximum(p / p[x], q / q[x]).sum() for x in both)
        assert coupled_agreement(as_law(p), as_law(q)) == pytest.approx(printed, rel=1e-9)


def test_agreement_lies_between_its_bounds() -> None:
    p, q = as_law([5, 3, 2]), as_law([2, 4, 4])
    overlap = 0.7
    assert overlap / (2 - overlap) <= coupled_agreement(p, q) <= overlap
    assert coupled_agreement(p, p) == pytest.approx(1)
    assert coupled_agreement(as_law([1, 0]), as_law([0, 1])) == 0
