"""Native sampling against the NumPy that it stands in for: laws, draws with one number, draws with Gumbel noise.

Every instruction set, rows that end anywhere in a group of 64, and rows that have ties, holes, or nearly everything
at once. A draw by rounding alone would differ once in 10^14.
"""

import math
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from soothsay import _native
from soothsay.errors import ModelError
from soothsay.sampling import Law, Sampling, WholeLaw, law, laws
from soothsay.verify import Noise
from soothsay.verify.coupled import draw_coupled
from soothsay.verify.rejection import draw, draw_residual, residual_mass

WARM = Sampling(temperature=0.8)
REAL = 151_936
Row = NDArray[np.float32]


@contextmanager
def through(isa: str | None) -> Iterator[None]:
    """Take rows of any length through native code built for an instruction set, or through NumPy."""
    with patch.multiple(laws, _ISA=isa, NATIVE_TOKENS=1):
        yield


def law_through(isa: str | None, row: Row, options: Sampling = WARM, limit: int | None = None) -> Law:
    with through(isa):
        return law(row, options, limit=limit)


def rows(vocab: int) -> dict[str, Row]:
    rng = np.random.default_rng(vocab)
    spread = (3 * rng.normal(size=vocab)).astype(np.float32)
    peaked = spread.copy()
    peaked[rng.integers(vocab)] += 30
    masked = np.where(rng.random(vocab) < 0.9, np.float32(-math.inf), spread)
    masked[-1] = 1
    return {
        "spread": spread,
        "peaked": peaked,
        "masked": masked,
        "ties": np.round(spread),
        "level": np.full(vocab, 7, np.float32),
        "huge": spread * np.float32(1e37),
        "denormal": spread * np.float32(1e-41),
    }


VOCABS = [1, 2, 3, 63, 64, 65, 127, 128, 1000, 4097]
STACKS = [
    (Sampling(temperature=1.0), None),
    (Sampling(temperature=0.8), None),
    (Sampling(temperature=5e-324), None),
    (Sampling(temperature=1e300), None),
    (Sampling(temperature=0.7, top_p=0.90003), None),
    (Sampling(temperature=2.0, top_p=0.99903), 5),
    (Sampling(temperature=1.0, top_p=1e-9), None),
    (Sampling(temperature=1.0, min_p=0.05), None),
    (Sampling(temperature=1.0, min_p=1.0), None),
    (Sampling(temperature=1.2, top_p=0.80003, min_p=0.02), 32),
]
on_every_isa = pytest.mark.parametrize("isa", _native.instruction_sets())


@on_every_isa
@pytest.mark.parametrize("vocab", VOCABS)
def test_laws_are_those_of_numpy(isa: str, vocab: int) -> None:
    for name, row in rows(vocab).items():
        for options, limit in STACKS:
            wanted, got = (law_through(way, row, options, limit) for way in (None, isa))
            assert got.ids.tolist() == wanted.ids.tolist(), (name, options)
            np.testing.assert_allclose(got.log_probabilities, wanted.log_probabilities, rtol=1e-14, atol=1e-13)


@on_every_isa
@pytest.mark.parametrize("vocab", VOCABS)
def test_scores_are_those_of_numpy_to_the_last_bit(isa: str, vocab: int) -> None:
    """Cuts compare scores, so one bit is a token more or less."""
    for row in rows(vocab).values():
        best = int(row.argmax())
        ids, scores = _native.Softmax(row, best, 0.7, isa).above(-math.inf)
        finite = np.flatnonzero(row > -math.inf)
        assert ids.tolist() == finite.tolist()
        assert scores.tolist() == ((row[finite].astype(np.float64) - row[best]) / 0.7).tolist()


@on_every_isa
def test_a_real_vocabulary(isa: str) -> None:
    for name, row in rows(REAL).items():
        wanted, got = (law_through(way, row) for way in (None, isa))
        np.testing.assert_array_equal(got.ids, wanted.ids)
        np.testing.assert_allclose(got.log_probabilities, wanted.log_probabilities, rtol=1e-14, atol=1e-13)
        for seed in range(5):
            assert draw_coupled(got, Noise(seed), seed) == draw_coupled(wanted, Noise(seed), seed), name


@pytest.mark.parametrize("vocab", VOCABS)
def test_instruction_sets_agree_to_the_last_bit(vocab: int) -> None:
    for row in rows(vocab).values():
        several = [law_through(isa, row) for isa in _native.instruction_sets()]
        assert len({one.log_probabilities.tobytes() for one in several}) == 1


def test_questions_to_the_law_of_a_whole_row() -> None:
    for row in rows(1000).values():
        wanted, got = law_through(None, row), law_through(_native.instruction_sets()[0], row)
        assert isinstance(got, WholeLaw)
        assert got.likeliest() == row.argmax()
        for token in (0, 64, 999, 1000, 10**9):
            assert got.log_probability(token) == pytest.approx(wanted.log_probability(token), rel=1e-14, abs=1e-13)


def test_only_long_rows_of_single_precision_go_there() -> None:
    row = rows(4097)["spread"]
    assert isinstance(law(row, WARM), WholeLaw)
    assert not isinstance(law(row[:1000], WARM), WholeLaw)
    assert not isinstance(law(row.astype(np.float64), WARM), WholeLaw)
    every_other = law(row[::2], WARM)
    assert every_other.ids.tolist() == list(range(2049))
    np.testing.assert_allclose(every_other.log_probabilities, law_through(None, row[::2]).log_probabilities, rtol=1e-13)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_row_that_is_no_row_is_refused(bad: float) -> None:
    row = rows(4097)["spread"]
    row[4096] = bad
    with pytest.raises(ModelError, match="no finite maximum"):
        law(row, WARM)


# --- Gumbel noise


@on_every_isa
@pytest.mark.parametrize("name", rows(1))
def test_the_same_noise_draws_the_same_token(isa: str, name: str) -> None:
    """Catches a bound that is too low: the token with the highest sum would be passed over."""
    for vocab, seeds in ((1, 10), (65, 1000), (1000, 1000), (4097, 300)):
        wanted, got = (law_through(way, rows(vocab)[name]) for way in (None, isa))
        for seed in range(seeds):
            noise = Noise(seed * 2**50 + vocab, seed % 3)
            assert draw_coupled(got, noise, seed) == draw_coupled(wanted, noise, seed), (vocab, seed)


@on_every_isa
def test_tokens_follow_their_law(isa: str) -> None:
    """20,000 draws see a shift of 0.03 in total variation with a probability of 0.99; the seeds are fixed."""
    row = np.log(np.array([1, 2, 3, 4] * 20, np.float32))
    got = law_through(isa, row, Sampling(temperature=1.0))
    drawn = np.bincount([draw_coupled(got, Noise(seed), 3) for seed in range(20_000)], minlength=len(row))
    assert stats.chisquare(drawn, 20_000 * np.exp(row) / np.exp(row).sum()).pvalue > 1e-6


@on_every_isa
def test_noise_is_that_of_numpy_to_the_last_bit_of_its_number(isa: str) -> None:
    """Two tokens, and temperatures that put the second just before or just behind the first.

    The number of the second is so near to 1 that its 53rd bit would move its noise by 2e-12.
    """
    noise = Noise(1).gumbel(7, np.arange(50_000))
    second = int(noise[1:].argmax()) + 1
    row = np.full(50_000, -math.inf, np.float32)
    row[[0, second]] = 0, -1
    for slip, drawn in ((-5e-13, 0), (5e-13, second)):
        level = Sampling(temperature=1 / (noise[second] - noise[0] - slip))
        assert draw_coupled(law_through(isa, row, level), Noise(1), 7) == drawn


# --- One uniform number


def draft_law(rng: np.random.Generator, vocab: int) -> Law:
    ids = np.sort(rng.choice(vocab, size=min(vocab, 32), replace=False))
    return Law(ids, np.log(rng.dirichlet(np.ones(len(ids)))))


@on_every_isa
@pytest.mark.parametrize("vocab", VOCABS)
def test_residuals_are_those_of_numpy(isa: str, vocab: int) -> None:
    rng = np.random.default_rng(5)
    for name, row in rows(vocab).items():
        wanted, got = (law_through(way, row) for way in (None, isa))
        for survival in (1.0, 0.6, 1e-3):
            q = draft_law(rng, vocab)
            mass = residual_mass(wanted, q, survival)
            assert residual_mass(got, q, survival) == pytest.approx(mass, rel=1e-12, abs=1e-15), name
            for unit in rng.random(20).tolist():
                assert draw(got, unit) == draw(wanted, unit), (name, unit)
                if mass > 1e-15:
                    assert draw_residual(got, q, survival, unit) == draw_residual(wanted, q, survival, unit), name


@on_every_isa
def test_every_cell_is_where_its_probability_puts_it(isa: str) -> None:
    """A step inside each border between two tokens, from either side, over several groups."""
    row = np.linspace(0, 3, 200).astype(np.float32)
    got = law_through(isa, row, Sampling(temperature=1.0))
    borders = np.exp(got.log_probabilities).cumsum()[:-1]
    assert [draw(got, border - 1e-9) for border in borders.tolist()] == list(range(199))
    assert [draw(got, border + 1e-9) for border in borders.tolist()] == list(range(1, 200))


@on_every_isa
def test_an_empty_cell_is_never_drawn_at_either_end(isa: str) -> None:
    row = np.full(130, -math.inf, np.float32)
    row[[70, 71]] = 0
    p = law_through(isa, row, Sampling(temperature=1.0))
    ends = (2.0**-53, 1 - 2.0**-53)
    assert [draw(p, unit) for unit in ends] == [70, 71]
    assert [draw_residual(p, Law.point(70), 1.0, unit) for unit in ends] == [71, 71]


@on_every_isa
def test_mass_outside_a_draft_law_does_not_cancel(isa: str) -> None:
    row = np.full(130, -math.inf, np.float32)
    row[[3, 100]] = 0, -46
    p = law_through(isa, row, Sampling(temperature=1.0))
    assert residual_mass(p, Law.point(3), 1.0) == pytest.approx(math.exp(-46), rel=1e-12, abs=0)
    assert draw_residual(p, Law.point(3), 1.0, 0.5) == 100


@on_every_isa
def test_an_exponential_is_right_to_its_last_bits(isa: str) -> None:
    """Beside a token that is taken away whole, the other's probability stands alone: e^s / (1 + e^s)."""
    for score in (-np.geomspace(1e-3, 700, 300)).astype(np.float32).tolist():
        p = law_through(isa, np.array([0, score], np.float32), Sampling(temperature=1.0))
        expected = math.exp(score) / (1 + math.exp(score))
        assert residual_mass(p, Law.point(0), 1.0) == pytest.approx(expected, rel=1e-15, abs=0)


@on_every_isa
def test_no_residual_mass_draws_from_the_target(isa: str) -> None:
    p = law_through(isa, np.zeros(128, np.float32), Sampling(temperature=1.0))
    q = Law(p.ids, p.log_probabilities + 1e-12)
    assert residual_mass(p, q, 1.0) == 0
    assert [draw_residual(p, q, 1.0, unit) for unit in (0.001, 0.5, 0.999)] == [0, 64, 127]


# --- What is refused, and what a machine without the extension does


def test_what_is_no_row_or_no_draft_law_is_refused() -> None:
    row, isa = np.zeros(8, np.float32), _native.instruction_sets()[0]
    for best, temperature in ((8, 1.0), (-1, 1.0), (0, 0.0), (0, math.nan)):
        with pytest.raises(ValueError, match="must be"):
            _native.Softmax(row, best, temperature, isa)
    softmax = _native.Softmax(row, 0, 1.0, isa)
    for tokens in ([3, 2], [-1, 2], [1]):
        with pytest.raises(ValueError, match="token"):
            softmax.owed(1.0, np.array(tokens), np.zeros(2))
    beyond = softmax.owed(1.0, np.array([7, 8, 63, 64, 10**12]), np.ones(5))
    assert beyond == pytest.approx(7 / 8)  # tokens of the draft model's padding are none of the target's


@pytest.mark.parametrize("count", [0, 1, 7, 300, REAL + 1])
def test_the_likeliest_tokens_are_those_of_numpy(count: int) -> None:
    for name, row in rows(5000).items():
        wanted = law_through(None, row).top(count)
        for isa in _native.instruction_sets():
            whole = law_through(isa, row)
            got = whole.top(count)
            assert all(whole.log_probability(token) == value for token, value in got), name
            np.testing.assert_allclose(
                [value for _, value in got], [value for _, value in wanted], rtol=1e-12, atol=1e-14
            )


def test_without_the_extension_numpy_says_the_same() -> None:
    code = """
import sys
sys.modules["soothsay._native"] = None
import numpy as np
from soothsay.sampling import Law, Sampling, law
from soothsay.verify import Noise
from soothsay.verify.coupled import draw_coupled
got = law(np.random.default_rng(1).normal(size=5000).astype(np.float32), Sampling(temperature=0.8))
assert type(got) is Law
print(*(draw_coupled(got, Noise(seed), 0) for seed in range(50)))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here = law(np.random.default_rng(1).normal(size=5000).astype(np.float32), WARM)
    assert run.stdout.split() == [str(draw_coupled(here, Noise(seed), 0)) for seed in range(50)]


@pytest.mark.parametrize("isa", _native.instruction_sets())
@pytest.mark.parametrize("vocab", [1, 63, 64, 65, 1000])
def test_a_probability_in_a_hurry_has_six_digits(isa: str, vocab: int) -> None:
    for name, row in rows(vocab).items():
        whole = law_through(isa, row)
        for token in (0, vocab // 2, vocab - 1, int(row.argmax())):
            right = math.exp(whole.log_probability(token))
            assert whole.probability(token) == pytest.approx(right, rel=2e-6, abs=1e-30), (name, token)
