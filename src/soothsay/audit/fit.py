"""Goodness of fit: counts beside the probabilities that they should follow, and what a test of so many could catch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.optimize import brentq
from scipy.stats import chi2, ncx2

LEVEL = 0.01
"""How often a right engine fails an audit, all its tests together."""

POWER = 0.99
FEWEST = 5.0
"""Expected runs of a cell, at least; cells that expect fewer are pooled."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Pearson's chi-square of `runs` over `cells`, and the total variation seen between counts and law.

    `bound` is above the true total variation over these cells with a confidence of 0.99, and `caught` is the smallest
    one that fails with a probability of 0.99 beside the other tests. Both rest on this: a law at total variation d from
    the tested one has a chi-square distance of at least 4 d^2, whatever its shape.
    """

    runs: int
    cells: int
    statistic: float
    p_value: float
    variation: float
    bound: float
    caught: float


def fit(counts: Mapping[Any, int], law: Mapping[Any, float], tests: int = 1) -> Fit:
    """Test counts against a law; what the law does not have is one more cell, which expects nothing."""
    runs = sum(counts.values())
    seen, expected = _pooled(counts, law, runs)
    statistic = math.fsum(_distance(have, want) for have, want in zip(seen, expected, strict=True))
    freedom = max(1, len(expected) - 1)
    variation = sum(abs(have - want) for have, want in zip(seen, expected, strict=True)) / (2 * runs)
    return Fit(
        runs=runs,
        cells=len(expected),
        statistic=statistic,
        p_value=float(chi2.sf(statistic, freedom)),
        variation=variation,
        bound=_bound(runs, statistic, freedom),
        caught=smallest_caught(runs, len(expected), LEVEL / tests),
    )


def smallest_caught(runs: int, cells: int, level: float) -> float:
    """Give the smallest total variation that a test at this level fails with probability POWER."""
    freedom = max(1, cells - 1)
    threshold = chi2.isf(level, freedom)

    def missed(variation: float) -> float:
        return float(ncx2.sf(threshold, freedom, 4 * runs * variation**2)) - POWER

    return float(brentq(missed, 1e-6, 1)) if missed(1.0) > 0 else 1.0


def failed(p_values: Sequence[float], level: float = LEVEL) -> list[bool]:
    """Tell which tests fail together at a familywise level (Holm, 1979).

    The smallest p-value is held against level / n, the next one against level / (n - 1), until one is large.
    """
    fails = [False] * len(p_values)
    ranked = sorted(range(len(p_values)), key=lambda place: p_values[place])
    for rank, place in enumerate(ranked):
        if p_values[place] > level / (len(ranked) - rank):
            break
        fails[place] = True
    return fails


def _pooled(counts: Mapping[Any, int], law: Mapping[Any, float], runs: int) -> tuple[list[float], list[float]]:
    """Give counts and expectations cell by cell; small cells share one, and what should not be there at all another."""
    large = [cell for cell, probability in law.items() if runs * probability >= FEWEST]
    rest = [cell for cell in law if runs * law[cell] < FEWEST]
    seen = [float(counts.get(cell, 0)) for cell in large]
    expected = [runs * law[cell] for cell in large]
    rest_seen, rest_expected = sum(counts.get(cell, 0) for cell in rest), runs * math.fsum(law[cell] for cell in rest)
    if rest_expected >= FEWEST or not expected:
        seen.append(float(rest_seen))
        expected.append(rest_expected)
    elif rest:
        smallest = expected.index(min(expected))
        seen[smallest] += rest_seen
        expected[smallest] += rest_expected
    if strangers := sum(count for cell, count in counts.items() if cell not in law):
        seen.append(float(strangers))
        expected.append(0.0)
    return seen, expected


def _distance(seen: float, expected: float) -> float:
    if expected == 0:
        return math.inf if seen else 0.0
    return (seen - expected) ** 2 / expected


def _bound(runs: int, statistic: float, freedom: int) -> float:
    """Give the total variation at which a statistic as small as this one has a probability of 1 - POWER.

    One below its own mean is taken for the mean: luck is no proof of more.
    """
    taken = max(statistic, freedom)

    def seen(variation: float) -> float:
        return float(ncx2.cdf(taken, freedom, 4 * runs * variation**2)) - (1 - POWER)

    return 1.0 if seen(1.0) > 0 else float(brentq(seen, 1e-9, 1))
