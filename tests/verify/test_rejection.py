"""The residual law and the draws from one uniform number."""

import math

import numpy as np
import pytest

from soothsay.sampling import Law
from soothsay.verify.rejection import draw_residual, log_ratio, pick, residual
from tests.verify.toys import as_law

IDS = np.array([3, 5, 8, 9])


def test_each_id_has_a_cell_as_wide_as_its_weight() -> None:
    weights = np.array([1.0, 0.0, 2.0, 1.0])  # cells end at 0.25, 0.25, 0.75 and 1
    units = [2.0**-53, math.nextafter(0.25, 0), 0.25, math.nextafter(0.75, 0), 0.75, 1 - 2.0**-53]
    assert [pick(IDS, weights, unit) for unit in units] == [3, 3, 8, 8, 9, 9]


def test_a_weight_of_zero_is_never_picked_at_either_end() -> None:
    assert pick(IDS, np.array([0.0, 1.0, 0.0, 0.0]), 2.0**-53) == 5
    assert pick(IDS, np.array([0.0, 1.0, 0.0, 0.0]), 1 - 2.0**-53) == 5


def test_rounding_of_the_sum_leaves_no_gap_at_the_top() -> None:
    """Ten times 0.1 cumulates to less than 1; the last cell must still reach it."""
    assert np.full(10, 0.1).cumsum()[-1] < 1
    assert pick(np.arange(10), np.full(10, 0.1), 1 - 2.0**-53) == 9


def test_residual_is_what_the_target_still_owes() -> None:
    p, q = as_law([0.5, 0.25, 0, 0.25]), as_law([0.75, 0, 0.2, 0.05])
    assert residual(p, q, 1.0) == pytest.approx([0, 0.25, 0.20])
    assert residual(p, q, 0.5) == pytest.approx([0, 0.125, 0.075])


def test_mass_outside_a_draft_law_does_not_cancel() -> None:
    """1 - p(support of q) is 0 in float64 where the mass outside is 1e-20."""
    p = Law(np.arange(2), np.array([0.0, math.log(1e-20)]))
    q = Law.point(0)
    assert residual(p, q, 1.0) == pytest.approx([0, 1e-20], rel=1e-12, abs=0)
    assert draw_residual(p, q, 1.0, 0.5) == 1


def test_no_residual_mass_draws_from_the_target() -> None:
    p = as_law([0.5, 0.5])
    assert not residual(p, p, 1.0).any()
    assert [draw_residual(p, p, 1.0, unit) for unit in (0.25, 0.75)] == [0, 1]


def test_supports_that_share_nothing() -> None:
    p, q = as_law([1, 1, 0, 0]), as_law([0, 0, 0, 1])
    assert residual(p, q, 1.0) == pytest.approx([0.5, 0.5])
    assert log_ratio(p, q, 3) == -math.inf


def test_a_token_that_its_law_cannot_have_drawn_is_refused() -> None:
    with pytest.raises(ValueError, match="token 2 is outside"):
        log_ratio(as_law([1, 1, 1]), as_law([1, 1, 0]), 2)
