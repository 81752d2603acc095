"""Are the random numbers independent where it matters: between samples, positions, purposes and tokens?"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from soothsay.audit.fit import Fit, fit
from soothsay.verify.noise import Noise, Stream

NUMBERS = 4096
BINS = 8
COUNT = 6
"""How many tests there are."""


@dataclass(frozen=True, slots=True)
class NoiseTest:
    """Pairs of numbers whose keys differ by one step of `along`, beside the law of two independent ones."""

    along: str
    fit: Fit


def tests(seed: int, of: int) -> Iterator[NoiseTest]:
    """Test each dimension of a key, as one of so many tests of an audit."""
    for along, numbers in _numbers(seed):
        cells = [min(BINS - 1, int(BINS * number)) for number in numbers]
        law = {(a, b): 1 / BINS**2 for a in range(BINS) for b in range(BINS)}
        yield NoiseTest(along, fit(Counter(zip(cells[::2], cells[1::2], strict=True)), law, of))


def _numbers(seed: int) -> Iterator[tuple[str, Sequence[float]]]:
    """Give uniform numbers along each dimension of their keys."""
    steps = range(NUMBERS)
    yield "seeds", [Noise(seed + step).uniform(3, 0, Stream.ACCEPT) for step in steps]
    yield "samples", [Noise(seed, step).uniform(3, 0, Stream.ACCEPT) for step in steps]
    yield "samples, coupled", [_gumbel(Noise(seed, step), 3, 5) for step in steps]
    yield "positions", [_gumbel(Noise(seed), step, 5) for step in steps]
    drawn = [Stream.DRAFT, Stream.ACCEPT, Stream.RESIDUAL]
    yield "purposes", [Noise(seed).uniform(step // 3, 0, drawn[step % 3]) for step in steps]
    yield "tokens", _uniform(Noise(seed).gumbel(3, np.arange(NUMBERS))).tolist()


def _gumbel(noise: Noise, position: int, token: int) -> float:
    return float(_uniform(noise.gumbel(position, np.array([token])))[0])


def _uniform(gumbel: NDArray[np.float64]) -> NDArray[np.float64]:
    """Undo what made Gumbel noise of uniform numbers."""
    return np.exp(-np.exp(-gumbel))
