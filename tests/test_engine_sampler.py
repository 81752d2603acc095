"""Every option of the sampler through the whole engine: the same words whatever is drafted."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from soothsay import Engine, OptionError, ProcessorError, Sampling
from soothsay.draft.model import ModelDrafter
from soothsay.model.table import TableModel
from soothsay.sampling import Adjustment, law
from soothsay.verify.coupled import draw_coupled
from soothsay.verify.noise import Noise
from tests.engines import SpyDrafter, SpyModel, assert_at_rest, drafters, watch_cache
from tests.sampling.test_adjust import OPTIONS, failing

VOCABULARY = 12
PROMPTS = [[1, 2, 2, 5], [3, 4, 3, 4, 3, 4, 3], [0, 11, 0, 11, 0]]


def model() -> SpyModel:
    return SpyModel(VOCABULARY, seed=4)


def by_definition(prompt: Sequence[int], sampling: Sampling) -> tuple[int, ...]:
    """One token after the other, from the model's own logits; nothing is drafted, cached or counted along."""
    context = list(prompt)
    for _ in range(sampling.max_tokens):
        adjust = Adjustment.of(sampling, context, len(prompt), VOCABULARY, ())
        row = model().logits(context)
        chosen = law(row if adjust is None else adjust(row), sampling)
        context.append(draw_coupled(chosen, Noise(sampling.seed or 0, sampling.sample), len(context)))
    return tuple(context[len(prompt) :])


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("temperature", [0.0, 1.3])
def test_the_same_words_whatever_is_drafted(name: str, temperature: float) -> None:
    sampling = Sampling(temperature=temperature, seed=9, sample=3, max_tokens=24, **OPTIONS[name])
    wanted = [by_definition(prompt, sampling) for prompt in PROMPTS]
    for kind, gamma in product(drafters(model()), (1, 4)):
        target = model()
        drafter = SpyDrafter(drafters(target)[kind])
        engine = Engine(target, draft=drafter, gamma=gamma, clock=lambda: 0.0)
        watch_cache(engine, target)
        assert [answer.tokens for answer in engine.generate(PROMPTS, sampling)] == wanted, (kind, gamma)
        assert [engine.generate(prompt, sampling).tokens for prompt in PROMPTS] == wanted, (kind, gamma)
        assert drafter.drafted > 0
        assert_at_rest(engine, target, drafter)


@pytest.mark.parametrize("name", ["repetition", "frequency", "all"])
def test_a_draft_model_guesses_by_the_options_too(name: str) -> None:
    """A drafter that is the target itself is always right, as long as it knows what the options do."""
    target = model()
    engine = Engine(target, draft=SpyDrafter(drafters(target)["alike"]), gamma=4, clock=lambda: 0.0)
    same = ModelDrafter(TableModel(VOCABULARY, seed=4), VOCABULARY, top_k=None)
    twin = Engine(target, draft=same, gamma=4, clock=lambda: 0.0)
    sampling = Sampling(temperature=1.0, seed=2, max_tokens=40, **OPTIONS[name])
    assert twin.generate(PROMPTS[0], sampling).stats.acceptance_rate == 1
    assert engine.generate(PROMPTS[0], sampling).tokens == twin.generate(PROMPTS[0], sampling).tokens


def test_samples_of_a_seed_are_those_that_it_gives_one_by_one_and_the_prompt_is_read_once() -> None:
    target = model()
    engine = Engine(target, draft=drafters(target)["alike"], gamma=3, clock=lambda: 0.0)
    sampling = Sampling(temperature=1.2, seed=5, max_tokens=12)
    answers = engine.samples(PROMPTS[1], 4, sampling)
    assert [answer.sample for answer in answers] == [0, 1, 2, 3]
    assert [answer.tokens for answer in answers] == [
        by_definition(PROMPTS[1], replace(sampling, sample=sample)) for sample in range(4)
    ]
    assert len({answer.tokens for answer in answers}) == 4
    assert [answer.stats.cached_tokens for answer in answers] == [0, 6, 6, 6]
    assert_at_rest(engine, target)


def test_samples_without_a_seed_share_one_and_an_answer_of_one_token_is_no_trouble() -> None:
    answers = Engine(model(), draft="none").samples([1, 2, 3], 3, Sampling(temperature=2.0, max_tokens=1))
    assert len({answer.seed for answer in answers}) == 1
    assert len(answers) == 3


@pytest.mark.parametrize("count", [0, -1, 1.5, "2"])
def test_a_number_of_samples_that_is_none(count: Any) -> None:
    with pytest.raises(OptionError, match="number of samples"):
        Engine(model(), draft="none").samples([1], count)


def test_a_stop_token_ends_the_answer() -> None:
    sampling = Sampling(temperature=1.3, seed=1, max_tokens=30)
    engine = Engine(model(), draft=drafters(model())["alike"], gamma=4)
    whole = engine.generate(PROMPTS[0], sampling)
    stop = whole.tokens[7]
    got = engine.generate(PROMPTS[0], replace(sampling, stop_ids=(stop,)))
    assert got.tokens == whole.tokens[: whole.tokens.index(stop) + 1]
    assert got.finish_reason == "stop"
    later = engine.generate(PROMPTS[0], replace(sampling, stop_ids=(stop,), min_tokens=12))
    assert stop not in later.tokens[:12]


def log_softmax(row: NDArray[np.floating]) -> NDArray[np.float64]:
    shifted = row.astype(np.float64) - row.max()
    return np.asarray(shifted - math.log(np.exp(shifted).sum()))


@pytest.mark.parametrize("options", [{"logprobs_of": "model"}, {"logprobs_of": "sampler"}], ids=str)
def test_logprobs_are_those_at_each_place_drafts_or_not(options: dict[str, Any]) -> None:
    base = Sampling(temperature=0.7, seed=3, max_tokens=15, top_k=5, banned_tokens=(1,), repetition_penalty=1.4)
    sampling = replace(base, logprobs=3, **options)
    answer = Engine(model(), draft=drafters(model())["alike"], gamma=3).generate(PROMPTS[0], sampling)
    assert answer.tokens == by_definition(PROMPTS[0], base)
    assert answer.logprobs is not None
    for place, entry in enumerate(answer.logprobs):
        context = [*PROMPTS[0], *answer.tokens[:place]]
        adjust = Adjustment.of(base, context, len(PROMPTS[0]), VOCABULARY, ())
        assert adjust is not None
        row = model().logits(context)
        values = log_softmax(row)
        if options["logprobs_of"] == "sampler":
            drawn_from = law(adjust(row), base)
            values = np.full(VOCABULARY, -math.inf)
            values[drawn_from.ids] = drawn_from.log_probabilities
        best = np.argsort(-values, kind="stable")[:3]
        assert entry.token == answer.tokens[place]
        assert entry.logprob == pytest.approx(values[entry.token])
        assert [token for token, _ in entry.top] == best.tolist()
        assert [value for _, value in entry.top] == pytest.approx(values[best])


def test_logprobs_come_with_the_pieces_of_a_stream() -> None:
    engine = Engine(model(), draft="none")
    pieces = list(engine.stream([1, 2], Sampling(max_tokens=5, logprobs=0)))
    assert pieces[-1].completion is not None
    assert tuple(piece.logprob for piece in pieces) == pieces[-1].completion.logprobs
    assert pieces[0].logprob is not None
    assert pieces[0].logprob.top == ()
    assert engine.generate([1, 2], Sampling(max_tokens=2)).logprobs is None


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"processors": (failing,)}, ProcessorError),
        ({"allowed_tokens": (3,), "stop_ids": (3,), "min_tokens": 2}, OptionError),
    ],
    ids=["a processor fails", "nothing is left"],
)
def test_a_request_that_its_options_end_ends_alone(options: dict[str, Any], error: type[Exception]) -> None:
    target = model()
    drafter = SpyDrafter(drafters(target)["alike"])
    engine = Engine(target, draft=drafter, gamma=3, clock=lambda: 0.0)
    sampling = Sampling(temperature=1.0, seed=1, max_tokens=10)
    mates = [engine.stream(prompt, sampling) for prompt in PROMPTS]
    first = [next(mate).token for mate in mates]
    with pytest.raises(error):
        engine.generate([2, 2], replace(sampling, **options))
    said = [(token, *(piece.token for piece in mate)) for token, mate in zip(first, mates, strict=True)]
    assert said == [by_definition(prompt, sampling) for prompt in PROMPTS]
    assert_at_rest(engine, target, drafter)


def test_a_processor_that_fails_late_does_not_take_back_what_was_said() -> None:
    def late(history: list[int], logits: NDArray[np.float32]) -> NDArray[np.float32]:
        return failing(history, logits) if len(history) == 5 else logits

    engine = Engine(model(), draft="none")
    stream = engine.stream([1, 2], Sampling(max_tokens=9, processors=(late,)))
    assert [next(stream).token for _ in range(3)] == list(by_definition([1, 2], Sampling(max_tokens=3)))
    with pytest.raises(ProcessorError):
        next(stream)
