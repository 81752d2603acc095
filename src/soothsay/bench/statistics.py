"""Medians, and how far to trust them."""

from collections.abc import Sequence

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 10_000
SEED = 0


def median(values: Sequence[float]) -> float | None:
    """Give the median; None of nothing."""
    return float(np.median(values)) if values else None


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Give the bootstrap interval of the median: the middle `confidence` of the medians of resampled values.

    The percentile method (Efron, 1979) with a fixed seed, so that the same values give the same interval. None for
    fewer than two values: one alone says nothing of its spread.
    """
    if len(values) < 2:
        return None
    numbers = np.random.default_rng(SEED)
    drawn = numbers.integers(len(values), size=(RESAMPLES, len(values)))
    medians = np.median(np.asarray(values)[drawn], axis=1)
    low, high = np.quantile(medians, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
