"""What options make of logits, against a slow and obvious account token by token; and what guesses must not change."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from soothsay import OptionError, ProcessorError, Sampling
from soothsay.sampling import Adjustment, Laws
from soothsay.sampling.tally import Tally

VOCABULARY = 12
PROMPT = [1, 2, 2, 5]
ENDS = frozenset({0})
ROW = (2 * np.random.default_rng(3).normal(size=VOCABULARY)).astype(np.float32)
OPTIONS: dict[str, dict[str, Any]] = {
    "bias": {"logit_bias": {3: 2.5, 7: -math.inf}},
    "repetition": {"repetition_penalty": 1.7},
    "repetition below 1": {"repetition_penalty": 0.6},
    "frequency": {"frequency_penalty": 0.7},
    "presence": {"presence_penalty": -1.1},
    "ban": {"banned_tokens": (2, 9)},
    "allow": {"allowed_tokens": (2, 3, 4, 9)},
    "min_tokens": {"min_tokens": 3},
    "processor": {"processors": (lambda history, logits: logits + np.float32(len(history) % 3 * history[-1]),)},
    "all": {
        "logit_bias": {1: 1.0, 2: -3.0, 5: 0.5},
        "repetition_penalty": 1.3,
        "frequency_penalty": 0.2,
        "presence_penalty": 0.4,
        "banned_tokens": (9,),
        "allowed_tokens": (0, 1, 2, 3, 4, 5, 9),
        "min_tokens": 2,
        "processors": (lambda history, logits: logits * np.float32(0.5),),
    },
}


def obvious(sampling: Sampling, row: NDArray[np.float32], answer: Sequence[int]) -> list[float]:
    """One token after the other, in the order of the documentation."""
    text = [*PROMPT, *answer]
    logits = []
    for token, logit in enumerate(row.tolist()):
        logit += sampling.logit_bias.get(token, 0)
        if token in text:
            logit = logit / sampling.repetition_penalty if logit > 0 else logit * sampling.repetition_penalty
        logit -= sampling.frequency_penalty * list(answer).count(token)
        logit -= sampling.presence_penalty * (token in answer)
        ends = token in ENDS and len(answer) < sampling.min_tokens
        foreign = sampling.allowed_tokens is not None and token not in sampling.allowed_tokens
        logits.append(-math.inf if ends or foreign or token in sampling.banned_tokens else logit)
    for processor in sampling.processors:
        logits = processor(text, np.array(logits, np.float32)).tolist()
    return logits


def adjustment(context: list[int], **options: Any) -> Adjustment:
    made = Adjustment.of(Sampling(**options), context, len(PROMPT), VOCABULARY, ENDS)
    assert made is not None
    return made


@pytest.mark.parametrize("name", OPTIONS)
def test_each_option_does_what_it_says_along_a_growing_answer(name: str) -> None:
    context = list(PROMPT)
    adjust, row = adjustment(context, **OPTIONS[name]), ROW.copy()
    for token in [None, 4, 2, 2, 11, 4]:
        context += [] if token is None else [token]
        answer = context[len(PROMPT) :]
        for drafted in ([], [2], [3, 3, 4], [8, 1, 8, 8]):
            wanted = obvious(Sampling(**OPTIONS[name]), ROW, [*answer, *drafted])
            np.testing.assert_allclose(adjust(row, drafted), wanted, rtol=1e-5)
            np.testing.assert_array_equal(row, ROW)


@pytest.mark.parametrize("name", OPTIONS)
def test_guesses_that_were_looked_at_leave_no_trace(name: str) -> None:
    context, fresh = list(PROMPT), list(PROMPT)
    used = adjustment(context, **OPTIONS[name])
    for token in [4, 2, 2]:
        used(ROW, [6, 6, 3])
        context.append(token)
    fresh += [4, 2, 2]
    np.testing.assert_array_equal(used(ROW), adjustment(fresh, **OPTIONS[name])(ROW))


@pytest.mark.parametrize("name", OPTIONS)
def test_a_shorter_row_of_guesses_is_adjusted_like_the_whole_one(name: str) -> None:
    adjust = adjustment([*PROMPT, 4], **OPTIONS[name])
    guessed = adjust.guess(ROW[:8], [2])
    assert guessed is not None
    np.testing.assert_array_equal(guessed, adjust(ROW, [2])[:8])


def test_rows_after_guesses_follow_the_text_with_them() -> None:
    sampling = Sampling(temperature=1.0, **OPTIONS["all"])
    adjust = Adjustment.of(sampling, PROMPT, len(PROMPT), VOCABULARY, ENDS)
    laws = Laws(np.stack([ROW] * 3), sampling, adjust, [4, 4])
    for place in range(3):
        weights = np.exp(obvious(sampling, ROW, [4, 4][:place]))
        wanted = (weights / weights.sum())[laws[place].ids]
        np.testing.assert_allclose(np.exp(laws[place].log_probabilities), wanted, rtol=1e-5)


def test_without_such_options_there_is_nothing_to_do() -> None:
    assert Adjustment.of(Sampling(temperature=1, top_k=3, min_tokens=2), PROMPT, 4, VOCABULARY, ()) is None


@pytest.mark.parametrize("name", ["logit_bias", "banned_tokens", "allowed_tokens", "stop_ids"])
def test_a_token_that_there_is_not_is_refused(name: str) -> None:
    options: dict[str, Any] = {name: {VOCABULARY: 1.0} if name == "logit_bias" else (3, VOCABULARY)}
    with pytest.raises(OptionError, match=f"{name} has token 12; token ids go from 0 to 11"):
        Adjustment.of(Sampling(**options), PROMPT, len(PROMPT), VOCABULARY, ENDS)


def test_when_nothing_is_left_the_target_says_so_and_a_guess_just_ends() -> None:
    adjust = adjustment(list(PROMPT), allowed_tokens=(0,), min_tokens=1)
    with pytest.raises(OptionError, match="leave no token to draw"):
        adjust(ROW)
    assert adjust.guess(ROW, []) is None
    assert adjust.guess(ROW, [0]) is not None
    assert adjustment(list(PROMPT), allowed_tokens=(11,)).guess(ROW[:8], []) is None


@pytest.mark.parametrize("options", [{"repetition_penalty": 1e-40}, {"frequency_penalty": -3e38}], ids=str)
def test_logits_beyond_float32_are_the_options_fault(options: dict[str, Any]) -> None:
    row = np.full(VOCABULARY, 5e37, np.float32)
    with pytest.raises(OptionError, match="make a logit inf"):
        adjustment([*PROMPT, 4, 4], **options)(row)


def failing(history: list[int], logits: NDArray[np.float32]) -> NDArray[np.float32]:
    raise KeyError("two\nlines")


WRONG: dict[str, tuple[Any, str]] = {
    "raises": (failing, "failed: KeyError: 'two"),
    "gives nothing": (lambda history, logits: None, r"shape \(\)"),
    "gives words": (lambda history, logits: "abc", "failed: ValueError"),
    "too short": (lambda history, logits: logits[1:], r"shape \(11,\)"),
    "not a number": (lambda history, logits: logits * math.nan, "nan in them"),
    "infinite": (lambda history, logits: logits + math.inf, "inf in them"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_processor_that_fails_is_named_in_one_line(what: str) -> None:
    processor, message = WRONG[what]
    adjust = adjustment(list(PROMPT), processors=(processor,))
    with pytest.raises(ProcessorError, match=message) as caught:
        adjust(ROW)
    assert "\n" not in str(caught.value)
    assert adjust.guess(ROW, []) is None


def test_a_processor_may_do_as_it_likes_with_what_it_is_given() -> None:
    def rough(history: list[int], logits: NDArray[np.float32]) -> NDArray[np.float32]:
        history.clear()
        logits[:] = 1
        return logits

    context, row = list(PROMPT), ROW.copy()
    assert adjustment(context, processors=(rough,))(row, [3]).tolist() == [1] * VOCABULARY
    assert context == PROMPT
    np.testing.assert_array_equal(row, ROW)


def counted(tally: Tally, drafted: Sequence[int]) -> dict[int, int]:
    counts = tally.after(drafted)
    return dict(zip(counts.ids.tolist(), counts.said.tolist(), strict=True))


def test_a_tally_counts_the_prompt_as_seen_but_not_as_said() -> None:
    context = list(PROMPT)
    tally = Tally(context, len(PROMPT))
    assert counted(tally, []) == {1: 0, 2: 0, 5: 0}
    context += [2, 7, 7]
    assert counted(tally, [7, 9]) == {1: 0, 2: 1, 5: 0, 7: 3, 9: 1}
    assert counted(tally, []) == {1: 0, 2: 1, 5: 0, 7: 2}
