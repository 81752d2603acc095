"""The noise: a pure function of its key, uniform along every part of the key, and unrelated between neighbours.

Each statistic is a fixed number, since the seeds are; its bar is six standard deviations (2e-9 for sound noise).
"""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from soothsay.verify import Noise, noise
from soothsay.verify.noise import Stream

COUNT = 4000
IDS = np.arange(COUNT)


def gumbel_at(seed: int = 1, sample: int = 0, position: int = 7, token: int = 11) -> float:
    return float(Noise(seed, sample).gumbel(position, np.array([token]))[0])


def uniform_at(seed: int = 1, sample: int = 0, start: int = 7, index: int = 2, stream: Stream = Stream.DRAFT) -> float:
    return Noise(seed, sample).uniform(start, index, stream)


def unit(gumbel: float) -> float:
    """Undo the transform from uniform to Gumbel."""
    return float(np.exp(-np.exp(-gumbel)))


WALKS: dict[str, Callable[[int], float]] = {
    "gumbel by token": lambda n: unit(gumbel_at(token=n)),
    "gumbel by position": lambda n: unit(gumbel_at(position=n)),
    "gumbel by sample": lambda n: unit(gumbel_at(sample=n)),
    "gumbel by seed": lambda n: unit(gumbel_at(seed=n)),
    "gumbel by high seed bits": lambda n: unit(gumbel_at(seed=n << 48)),
    "gumbel by position and token": lambda n: unit(gumbel_at(position=n, token=n)),
    "uniform by start": lambda n: uniform_at(start=n),
    "uniform by index": lambda n: uniform_at(index=n),
    "uniform by sample": lambda n: uniform_at(sample=n),
    "uniform by seed": lambda n: uniform_at(seed=n),
    "uniform of the next step": lambda n: uniform_at(start=n, index=COUNT - n),
}


@pytest.mark.parametrize("walk", WALKS)
def test_uniform_and_unrelated_along_each_key(walk: str) -> None:
    numbers = np.array([WALKS[walk](n) for n in range(COUNT)])
    assert stats.kstest(numbers, "uniform").pvalue > 2e-9
    pairs = np.histogram2d(numbers[:-1], numbers[1:], bins=8, range=[[0, 1], [0, 1]])[0]
    assert stats.chisquare(pairs.ravel()).pvalue > 2e-9
    for lag in (1, 2, 3):
        correlation = np.corrcoef(numbers[:-lag], numbers[lag:])[0, 1]
        assert abs(correlation) < 6 / np.sqrt(COUNT)


KEYS: dict[str, tuple[Noise, int]] = {
    "next position": (Noise(1), 8),
    "next seed": (Noise(2), 7),
    "next sample": (Noise(1, 1), 7),
}


@pytest.mark.parametrize("key", KEYS)
def test_neighbours_in_a_key_are_unrelated_token_by_token(key: str) -> None:
    """Catches a key whose neighbour is the same stream shifted by a few tokens."""
    neighbour, position = KEYS[key]
    here, there = Noise(1).gumbel(7, IDS), neighbour.gumbel(position, IDS)
    for shift in range(-3, 4):
        assert abs(np.corrcoef(here, np.roll(there, shift))[0, 1]) < 6 / np.sqrt(COUNT)


def test_seed_and_sample_are_not_interchangeable() -> None:
    assert gumbel_at(seed=3, sample=5) != gumbel_at(seed=5, sample=3)
    assert gumbel_at(seed=0, sample=1) != gumbel_at(seed=1, sample=0)


def test_streams_differ() -> None:
    assert len({uniform_at(stream=stream) for stream in Stream}) == len(Stream)


def test_gumbel_has_the_standard_law() -> None:
    assert stats.kstest(Noise(5).gumbel(0, np.arange(100_000)), "gumbel_r").pvalue > 2e-9


def test_a_token_keeps_its_noise_in_any_company() -> None:
    """Target and drafter ask with supports of their own."""
    ids = np.array([5, 17, 3999])
    np.testing.assert_array_equal(Noise(1).gumbel(7, ids), Noise(1).gumbel(7, IDS)[ids])


def test_scalar_and_array_hash_alike() -> None:
    """Two implementations of one finaliser: the vector of a position folds like one more word of the key."""
    expected = -np.log(-np.log(Noise(9).uniform(7, 10, Stream.GUMBEL)))
    assert Noise(9).gumbel(7, np.array([11]))[0] == expected


def test_splitmix64_reference_stream() -> None:
    """The published generator, seeded with 0, begins so."""
    assert [hex(noise._mix(noise._GOLDEN * n)) for n in (1, 2, 3)] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]


def test_extreme_words_stay_strictly_inside_the_unit_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    for word in (0, 2**64 - 1):
        monkeypatch.setattr(noise, "_mix", lambda state, word=word: word)
        monkeypatch.setattr(noise, "_mix_all", lambda states, word=word: np.full(len(states), word, np.uint64))
        assert 0 < Noise(0).uniform(0, 0, Stream.DRAFT) < 1
        assert np.isfinite(Noise(0).gumbel(0, IDS[:1])).all()


def test_the_largest_seed_is_as_good_as_any() -> None:
    assert 0 < uniform_at(seed=2**64 - 1) < 1
    assert uniform_at(seed=2**64 - 1) != uniform_at(seed=0)
