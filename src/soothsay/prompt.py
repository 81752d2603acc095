"""What may be asked, and how it becomes token ids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TypeAlias, TypeGuard

from soothsay.errors import EmptyPrompt, OptionError, PromptError, PromptTooLong, TemplateError
from soothsay.load import Loaded

Message: TypeAlias = Mapping[str, str]
Prompt: TypeAlias = str | Sequence[Message] | Sequence[int]
"""A text, a chat (messages with `role` and `content`), or token ids."""


def is_prompt(prompts: Prompt | Sequence[Prompt]) -> TypeGuard[Prompt]:
    """Tell one prompt from many: a text, or a list that starts with a message or a token id."""
    return not _is_list(prompts) or (len(prompts) > 0 and isinstance(prompts[0], Mapping | Integral))


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)


def _is_ids(prompt: Prompt) -> TypeGuard[Sequence[int]]:
    return _is_list(prompt) and not any(isinstance(item, Mapping) for item in prompt)


@dataclass(frozen=True, slots=True)
class Encoder:
    """Turns prompts into token ids that fit a model; `loaded` is None for a model without words."""

    loaded: Loaded | None
    vocab_size: int
    max_length: int

    def encode(self, prompt: Prompt, *, raw: bool, system: str | None) -> list[int]:
        """Give the ids of a prompt; a text becomes the user's message of a chat unless `raw`.

        Raises EmptyPrompt, PromptTooLong (no room for one more token), PromptError, TemplateError, and OptionError for
        options that do not fit the kind of prompt.
        """
        tokens = self._tokens(prompt, raw, system)
        if not tokens:
            raise EmptyPrompt("the prompt is empty; it needs at least one token")
        if len(tokens) >= self.max_length:
            raise PromptTooLong(
                f"the prompt has {len(tokens)} tokens; the model's context of {self.max_length} must hold it and at "
                "least one more"
            )
        return tokens

    def _tokens(self, prompt: Prompt, raw: bool, system: str | None) -> list[int]:
        if not isinstance(prompt, str) and not _is_list(prompt):
            raise PromptError(
                f"a prompt is a {type(prompt).__name__}; it must be a text, a chat or a list of token ids"
            )
        if system is not None and (raw or not isinstance(prompt, str)):
            raise OptionError("system is an option of text prompts without raw; give a chat its own system message")
        if raw and not isinstance(prompt, str):
            raise OptionError("raw is an option of text prompts; a chat goes through the model's template")
        if _is_ids(prompt):
            return self._checked(prompt)
        if self.loaded is None:
            raise PromptError("this engine has no tokenizer; its prompts must be lists of token ids")
        if isinstance(prompt, str):
            text = prompt if raw else self._rendered(self.loaded, _chat(prompt, system))
        else:
            text = self._rendered(self.loaded, prompt)  # type: ignore[arg-type]  # not text, not ids
        return self.loaded.tokenizer.encode(text, special=True)

    def _checked(self, tokens: Sequence[int]) -> list[int]:
        for token in tokens:
            if not isinstance(token, Integral) or not 0 <= token < self.vocab_size:
                raise PromptError(f"the prompt holds {token!r}; token ids go from 0 to {self.vocab_size - 1}")
        return list(map(int, tokens))

    def _rendered(self, loaded: Loaded, chat: Sequence[Message]) -> str:
        if loaded.template is None:
            raise TemplateError("the model has no chat template; give it raw text instead")
        return loaded.template.render(chat)


def _chat(text: str, system: str | None) -> list[Message]:
    if not text:
        raise EmptyPrompt("the prompt is empty; it needs at least one token")
    opening = [{"role": "system", "content": system}] if system is not None else []
    return [*opening, {"role": "user", "content": text}]
