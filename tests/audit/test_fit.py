"""The audit's statistics: against scipy's own test, and by what they promise of power and of confidence."""

from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from soothsay.audit.fit import FEWEST, LEVEL, POWER, failed, fit

LAW = {0: 0.4, 1: 0.3, 2: 0.2, 3: 0.0995, 4: 0.0003, 5: 0.0002}
RUNS = 2000


def drawn(law: dict[int, float], runs: int, seed: int) -> Counter[int]:
    return Counter(np.random.default_rng(seed).choice(list(law), size=runs, p=list(law.values())).tolist())


def test_it_is_pearsons_statistic_with_small_cells_pooled() -> None:
    """Cells 4 and 5 expect one run together, so they join the smallest of the others."""
    counts = drawn(LAW, RUNS, 1)
    found = fit(counts, LAW)
    seen = [counts[0], counts[1], counts[2], counts[3] + counts[4] + counts[5]]
    expected = [RUNS * p for p in (0.4, 0.3, 0.2, 0.1)]
    statistic, p_value = chisquare(seen, expected)
    assert [found.statistic, found.p_value] == pytest.approx([statistic, p_value])
    assert (found.runs, found.cells) == (RUNS, 4)
    assert found.variation == pytest.approx(sum(abs(a - b) for a, b in zip(seen, expected, strict=True)) / 2 / RUNS)


def test_enough_small_cells_make_one_of_their_own() -> None:
    law = dict.fromkeys(range(3), 0.99 / 3) | dict.fromkeys(range(3, 13), 0.001)
    assert all(RUNS * law[cell] < FEWEST for cell in range(3, 13))
    assert fit(drawn(law, RUNS, 1), law).cells == 4


def test_what_the_law_does_not_have_fails() -> None:
    counts = drawn(LAW, RUNS, 1)
    counts["else"] = 1  # type: ignore[index]
    assert fit(counts, LAW).p_value == 0


def test_a_missing_cell_counts() -> None:
    assert fit({0: RUNS}, LAW).p_value < 1e-9


def test_what_is_said_to_be_caught_is_caught() -> None:
    """A law at exactly that total variation fails nearly always, at the level of one test among five."""
    cells = 8
    right = dict.fromkeys(range(cells), 1 / cells)
    caught = fit(drawn(right, RUNS, 0), right, tests=5).caught
    wrong = {cell: (1 + 2 * caught * (-1) ** cell) / cells for cell in right}
    assert sum(abs(wrong[cell] - right[cell]) for cell in right) / 2 == pytest.approx(caught)
    fails = sum(fit(drawn(wrong, RUNS, seed), right).p_value < LEVEL / 5 for seed in range(400))
    assert fails / 400 >= POWER - 0.015


def test_a_right_law_fails_as_rarely_as_it_should() -> None:
    fails = sum(fit(drawn(LAW, RUNS, seed), LAW).p_value < 0.05 for seed in range(400))
    assert 6 <= fails <= 36


def test_the_bound_is_above_the_true_variation() -> None:
    wrong = {0: 0.45, 1: 0.27, 2: 0.18, 3: 0.0995, 4: 0.0003, 5: 0.0002}
    true = sum(abs(wrong[cell] - LAW[cell]) for cell in LAW) / 2
    bounds = [fit(drawn(wrong, RUNS, seed), LAW).bound for seed in range(200)]
    assert sum(bound >= true for bound in bounds) >= 195
    assert max(bounds) < true + 0.11


def test_holm_stops_at_the_first_that_passes() -> None:
    assert failed([0.5, 0.002, 0.004, 0.0001], 0.01) == [False, True, True, True]
    assert failed([0.5, 0.004, 0.004, 0.0001], 0.01) == [False, False, False, True]
    assert failed([0.0026], 0.01) == [True]
    assert failed([], 0.01) == []
