"""What may be asked: one prompt told from many, each kind with the options that fit it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from soothsay.errors import EmptyPrompt, OptionError, PromptError, PromptTooLong, TemplateError
from soothsay.load import Loaded
from soothsay.model.table import TableModel
from soothsay.prompt import Encoder, is_prompt
from soothsay.text.template import ChatTemplate
from soothsay.text.tokenizer import Tokenizer

USER = {"role": "user", "content": "ab"}
TOY = Tokenizer(["a", "b", "ab", "<s>", "<u>"], [1, 1, 1, 3, 3], ["a b"], pre="smollm")
TEMPLATE = ChatTemplate(
    "{% for m in messages %}{{ {'system': '<s>', 'user': '<u>'}[m.role] }}{{ m.content }}{% endfor %}"
)


def encoder(template: ChatTemplate | None = TEMPLATE, words: bool = True) -> Encoder:
    model = TableModel(5, seed=1)
    return Encoder(Loaded(model, TOY, template, Path("toy.gguf")) if words else None, vocab_size=5, max_length=8)


@pytest.mark.parametrize("prompt", ["", "ab", [USER], [1, 2], (1, 2), [np.int64(1)], range(3)], ids=str)
def test_one_prompt(prompt: Any) -> None:
    assert is_prompt(prompt)


@pytest.mark.parametrize("prompts", [[], ["ab"], [[USER]], [[1, 2], "ab"], ([1], [2]), [[]]], ids=str)
def test_many_prompts(prompts: Any) -> None:
    assert not is_prompt(prompts)


@pytest.mark.parametrize(
    ("prompt", "options", "ids"),
    [
        ("ab", {}, [4, 2]),
        ("ab", {"system": "b"}, [3, 1, 4, 2]),
        ("ab", {"system": ""}, [3, 4, 2]),
        ("ab", {"raw": True}, [2]),
        ("<u>", {"raw": True}, [4]),
        ([{"role": "system", "content": "b"}, USER], {}, [3, 1, 4, 2]),
        ([0, 4, 0], {}, [0, 4, 0]),
        ([np.int64(3)], {}, [3]),
        (range(3), {}, [0, 1, 2]),
    ],
    ids=str,
)
def test_a_prompt_becomes_ids(prompt: Any, options: dict[str, Any], ids: list[int]) -> None:
    found = encoder().encode(prompt, **{"raw": False, "system": None} | options)
    assert found == ids
    assert {type(token) for token in found} == {int}


@pytest.mark.parametrize(
    ("prompt", "options", "error", "message"),
    [
        ("", {}, EmptyPrompt, "the prompt is empty"),
        ("", {"raw": True}, EmptyPrompt, "the prompt is empty"),
        ([], {}, EmptyPrompt, "the prompt is empty"),
        ([0] * 8, {}, PromptTooLong, "the prompt has 8 tokens; the model's context of 8"),
        ("a" * 9, {"raw": True}, PromptTooLong, "the prompt has 9 tokens"),
        ([5], {}, PromptError, "holds 5; token ids go from 0 to 4"),
        ([-1], {}, PromptError, "holds -1; token ids"),
        ([1.5], {}, PromptError, "holds 1.5; token ids"),
        (["ab"], {}, PromptError, "holds 'ab'; token ids"),
        (b"ab", {}, PromptError, "a prompt is a bytes; it must be a text, a chat or a list of token ids"),
        (7, {}, PromptError, "a prompt is a int"),
        (None, {}, PromptError, "a prompt is a NoneType"),
        (USER, {}, PromptError, "a prompt is a dict"),
        ([USER, 3], {}, PromptError, "a message has 3; legal is exactly"),
        ([USER], {"raw": True}, OptionError, "raw is an option of text prompts"),
        ([1], {"raw": True}, OptionError, "raw is an option of text prompts"),
        ([USER], {"system": "b"}, OptionError, "system is an option of text prompts without raw"),
        ("ab", {"system": "b", "raw": True}, OptionError, "system is an option of text prompts without raw"),
    ],
    ids=str,
)
def test_a_prompt_that_cannot_be_answered(
    prompt: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        encoder().encode(prompt, **{"raw": False, "system": None} | options)


def test_the_longest_prompt_leaves_room_for_one_token() -> None:
    assert len(encoder().encode([0] * 7, raw=False, system=None)) == 7


def test_without_a_template_there_is_only_raw_text() -> None:
    with pytest.raises(TemplateError, match="no chat template; give it raw text"):
        encoder(template=None).encode("ab", raw=False, system=None)
    assert encoder(template=None).encode("ab", raw=True, system=None) == [2]


def test_without_words_there_are_only_ids() -> None:
    for prompt in ("ab", [USER]):
        with pytest.raises(PromptError, match="no tokenizer; its prompts must be lists of token ids"):
            encoder(words=False).encode(prompt, raw=False, system=None)
    assert encoder(words=False).encode([1], raw=False, system=None) == [1]
