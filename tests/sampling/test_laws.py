"""The one road from logits to a law, against a slow and obvious one; and options that must be refused."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from soothsay.errors import ModelError, OptionError
from soothsay.sampling import Law, Sampling, law


def obvious(logits: NDArray[np.float32], sampling: Sampling, limit: int | None = None) -> dict[int, float]:
    """Sort everything, then cut from the bottom; ties stand in the order of their ids."""
    scores = logits.astype(np.float64) / sampling.temperature
    ranked = [token for token in np.argsort(-scores, kind="stable").tolist() if scores[token] > -math.inf]
    ranked = ranked[: sampling.top_k or None]
    ranked = nucleus(normalised(ranked, scores), sampling.top_p)
    floor = sampling.min_p * normalised(ranked, scores)[ranked[0]] * (1 - 1e-12)
    ranked = [token for token, probability in normalised(ranked, scores).items() if probability >= floor]
    return normalised(ranked[:limit], scores)


def normalised(ranked: list[int], scores: NDArray[np.float64]) -> dict[int, float]:
    weights = [math.exp(scores[token] - scores[ranked[0]]) for token in ranked]
    whole = math.fsum(weights)
    return {token: weight / whole for token, weight in zip(ranked, weights, strict=True)}


def nucleus(probabilities: dict[int, float], top_p: float) -> list[int]:
    kept: list[int] = []
    mass = 0.0
    for token, probability in probabilities.items():
        if kept and mass >= top_p:
            break
        kept.append(token)
        mass += probability
    return kept


# No top-p here is a multiple of 1/V: where equal tokens would reach it to the last bit, rounding decides.
STACKS = [
    Sampling(temperature=1.0),
    Sampling(temperature=0.8),
    Sampling(temperature=1.5, top_k=1),
    Sampling(temperature=1.5, top_k=7),
    Sampling(temperature=0.7, top_p=0.90003),
    Sampling(temperature=2.0, top_p=0.99903),
    Sampling(temperature=1.0, top_p=1e-9),
    Sampling(temperature=1.0, min_p=0.05),
    Sampling(temperature=1.0, min_p=1.0),
    Sampling(temperature=1.2, top_k=50, top_p=0.80003, min_p=0.02),
    Sampling(temperature=3.0, top_k=10_000, top_p=0.95003),
]


def rows(vocab: int) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(vocab)
    spread = (3 * rng.normal(size=vocab)).astype(np.float32)
    masked = np.where(rng.random(vocab) < 0.5, spread, np.float32(-math.inf))
    masked[0] = 1
    return {"spread": spread, "ties": np.round(spread), "level": np.zeros(vocab, np.float32), "masked": masked}


@pytest.mark.parametrize("limit", [None, 1, 5, 32])
@pytest.mark.parametrize("sampling", STACKS, ids=repr)
@pytest.mark.parametrize("vocab", [2, 5, 63, 64, 1000, 5000])
def test_the_fast_road_ends_where_the_obvious_one_does(vocab: int, sampling: Sampling, limit: int | None) -> None:
    for name, logits in rows(vocab).items():
        got, wanted = law(logits, sampling, limit=limit), obvious(logits, sampling, limit)
        assert got.ids.tolist() == sorted(wanted), name
        np.testing.assert_allclose(np.exp(got.log_probabilities), [wanted[i] for i in got.ids.tolist()], rtol=1e-11)
        assert got.ids.dtype == np.int64
        assert got.log_probabilities.dtype == np.float64


def support(logits: list[float], *, top_k: int = 0, top_p: float = 1.0) -> list[int]:
    sampling = Sampling(temperature=1.0, top_k=top_k, top_p=top_p)
    return [int(token) for token in law(np.array(logits, np.float32), sampling).ids]


def test_ties_at_the_border_are_kept_from_the_lowest_id() -> None:
    assert support([1, 2, 1, 1], top_k=3) == [0, 1, 2]
    assert support([0, 0, 0, 0], top_p=0.5) == [0, 1]


def test_top_p_weighs_what_top_k_left() -> None:
    """Transformers' order: of 0.4, 0.3, 0.3 the cut to two leaves 4/7 for the first, and that is enough for 0.55."""
    logits = np.log([0.4, 0.3, 0.3]).tolist()
    assert support(logits, top_k=2, top_p=0.55) == [0]
    assert support(logits, top_p=0.55) == [0, 1]


def test_temperature_comes_before_top_p() -> None:
    logits = np.log(np.array([0.6, 0.3, 0.1], np.float32))
    assert law(logits, Sampling(temperature=1.0, top_p=0.59)).ids.tolist() == [0]
    assert law(logits, Sampling(temperature=5.0, top_p=0.59)).ids.tolist() == [0, 1]


def test_a_limit_comes_after_the_whole_stack() -> None:
    """Top-p of the full law keeps three of ten even tokens; a limit of five must not shrink that to two."""
    got = law(np.zeros(10, np.float32), Sampling(temperature=1.0, top_p=0.3), limit=5)
    assert got.ids.tolist() == [0, 1, 2]


def test_temperature_zero_is_the_likeliest_token_with_the_lowest_id() -> None:
    got = law(np.array([1, 3, 3, 2], np.float32), Sampling(temperature=0, top_k=3, top_p=0.1), limit=2)
    assert got.ids.tolist() == [1]
    assert got.log_probabilities.tolist() == [0]


@pytest.mark.parametrize("temperature", [5e-324, 1e-30, 1e30])
def test_extreme_temperatures_neither_overflow_nor_lose_the_best(temperature: float) -> None:
    logits = np.array([3e38, -3e38, -math.inf, 1], np.float32)
    got = law(logits, Sampling(temperature=temperature))
    assert np.isfinite(got.log_probabilities).all()
    assert got.likeliest() == 0
    assert np.exp(got.log_probabilities).sum() == pytest.approx(1)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [[0, math.nan, 5], [0, math.inf, 5], [-math.inf] * 3], ids=["nan", "inf", "nothing"])
def test_a_row_that_is_no_row_is_refused(bad: list[float], temperature: float) -> None:
    with pytest.raises(ModelError, match="no finite maximum"):
        law(np.array(bad, np.float32), Sampling(temperature=temperature, top_k=2))


def test_questions_to_a_law() -> None:
    got = Law(np.array([2, 5, 7]), np.log([0.25, 0.5, 0.25]))
    assert got.log_probability(5) == pytest.approx(math.log(0.5))
    assert [got.log_probability(token) for token in (0, 3, 9)] == [-math.inf] * 3
    assert got.likeliest() == 5
    assert [token for token, _ in got.top(2)] == [5, 2]
    assert got.top(0) == ()
    assert len(got.top(9)) == 3
    assert Law.point(4).log_probability(4) == 0


ILLEGAL: list[tuple[str, object]] = [
    ("sample", -1),
    ("stop_ids", [1]),
    ("stop_ids", (-1,)),
    ("ignore_eos", 1),
    ("min_tokens", -1),
    ("min_tokens", 257),
    ("repetition_penalty", 0),
    ("repetition_penalty", math.inf),
    ("frequency_penalty", math.nan),
    ("presence_penalty", "1"),
    ("logit_bias", [(1, 2.0)]),
    ("logit_bias", {-1: 2.0}),
    ("logit_bias", {1: math.inf}),
    ("logit_bias", {1: 1e39}),
    ("banned_tokens", (True,)),
    ("allowed_tokens", ()),
    ("processors", (3,)),
    ("logprobs", -1),
    ("logprobs", 1001),
    ("logprobs_of", "both"),
    ("temperature", -0.1),
    ("temperature", math.nan),
    ("temperature", math.inf),
    ("temperature", True),
    ("temperature", "1"),
    ("top_k", -1),
    ("top_k", 2.0),
    ("top_k", True),
    ("top_p", 0),
    ("top_p", 1.01),
    ("top_p", math.nan),
    ("min_p", -0.01),
    ("min_p", 1.01),
    ("min_p", None),
    ("seed", -1),
    ("seed", 2**64),
    ("seed", 1.0),
    ("seed", True),
    ("max_tokens", 0),
    ("max_tokens", 1.5),
    ("stop", "END"),
    ("stop", ["END"]),
    ("stop", ("END", "")),
    ("stop", (1,)),
]


@pytest.mark.parametrize(("name", "value"), ILLEGAL)
def test_an_illegal_option_is_named_with_what_is_legal(name: str, value: object) -> None:
    with pytest.raises(OptionError, match=rf"^{name} is .*; it must be ") as caught:
        Sampling(**{name: value})  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_options_at_their_borders_are_legal() -> None:
    Sampling(temperature=0, top_k=0, top_p=1, min_p=0, seed=0, max_tokens=1)
    Sampling(temperature=np.float32(0.5), top_k=np.int64(3), min_p=1, seed=2**64 - 1, stop=("\n", "END"))  # type: ignore[arg-type]


def test_options_keep_a_copy_of_what_they_were_given() -> None:
    biases = {1: 2.0}
    sampling = Sampling(logit_bias=biases)
    biases[2] = 3.0
    assert sampling.logit_bias == {1: 2.0}
    assert hash(sampling) == hash(Sampling(logit_bias={1: 2.0}))


def test_tokens_all_of_which_are_banned_cannot_be_the_allowed_ones() -> None:
    with pytest.raises(OptionError, match="not all of them banned"):
        Sampling(allowed_tokens=(1, 2), banned_tokens=(2, 1, 3))
