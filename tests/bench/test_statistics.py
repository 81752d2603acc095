"""The interval is that of the bootstrap, and says nothing where nothing is known."""

from itertools import product
from statistics import median as middle

import numpy as np
import pytest

from soothsay.bench.statistics import interval, median


@pytest.mark.parametrize("values", [[1.0, 2.0, 4.0, 8.0, 16.0], [1.5, 1.5, 1.6, 3.0]])
@pytest.mark.parametrize("confidence", [0.5, 0.8])
def test_the_interval_is_that_of_all_resamples(values: list[float], confidence: float) -> None:
    """The oracle draws nothing: it counts every way to resample."""
    medians = [middle(drawn) for drawn in product(values, repeat=len(values))]
    wanted = np.quantile(medians, [(1 - confidence) / 2, (1 + confidence) / 2])
    assert interval(values, confidence) == pytest.approx(tuple(wanted))


def test_the_same_values_give_the_same_interval() -> None:
    values = [1.1, 1.7, 1.3, 1.2, 1.9, 1.4, 1.05]
    found = interval(values)
    assert found is not None
    assert found == interval(values)
    assert min(values) <= found[0] < 1.3 < found[1] <= max(values)


def test_one_value_has_no_spread_and_none_no_median() -> None:
    assert interval([1.5]) is None
    assert interval([]) is None
    assert median([]) is None
    assert median([3.0, 1.0]) == 2.0
