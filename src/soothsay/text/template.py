"""The chat template that a model file brings, rendered in a sandbox."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from reprlib import repr as quoted
from textwrap import shorten
from typing import Any, NoReturn

from jinja2 import TemplateError as JinjaError
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.meta import find_undeclared_variables
from jinja2.sandbox import ImmutableSandboxedEnvironment

from soothsay.errors import EmptyPrompt, FileCorrupt, PromptError, TemplateError

ROLES = ("system", "user", "assistant", "tool")

MOST_STEPS = 100_000
"""Loop turns and calls that one rendering may take."""

MOST_CHARACTERS = 1 << 24
"""Characters that one rendering, or any text built on the way to it, may hold."""

Message = Mapping[str, Any]
"""One turn of a chat: `role` and `content`; an assistant's may have `tool_calls`, a tool's its `tool_call_id`."""

EXTRAS = {"assistant": {"tool_calls"}, "tool": {"tool_call_id"}}


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A file's own way to turn a chat into text, in Jinja2.

    `bos` and `eos` are the spellings that templates may ask for. A file is not trusted: its template runs in a sandbox
    and may neither loop for ever nor grow without bound.
    """

    source: str
    bos: str = ""
    eos: str = ""

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> "ChatTemplate":
        """Take `tokenizer.chat_template` of a GGUF file; TemplateError where there is none."""
        source = metadata.get("tokenizer.chat_template")
        if source is None:
            raise TemplateError("the model file has no chat template; give it raw text instead")
        if not isinstance(source, str):
            raise FileCorrupt("tokenizer.chat_template is not text")
        return cls(source, bos=_spelling(metadata, "bos"), eos=_spelling(metadata, "eos"))

    @property
    def takes_tools(self) -> bool:
        """Say whether the template does anything with tools."""
        try:
            return "tools" in find_undeclared_variables(_Sandbox(datetime.now).parse(self.source))
        except (JinjaError, RecursionError):
            return False

    def render(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = True,
        now: Callable[[], datetime] = datetime.now,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """Give the text of a chat, ready for `Tokenizer.encode(..., special=True)`.

        `add_generation_prompt` opens the assistant's next turn; `now` is the clock of `strftime_now`; `tools` are
        functions in the form of JSON Schema, for a template with `takes_tools`.
        Raises PromptError for malformed messages, TemplateError when the template fails, refuses or runs away.
        """
        chat = _checked(messages)
        sandbox = _Sandbox(now)
        given = {"messages": chat, "add_generation_prompt": add_generation_prompt, "tools": tools, "documents": None}
        try:
            return sandbox.text(self.source, given | {"bos_token": self.bos, "eos_token": self.eos})
        except (JinjaError, RecursionError, MemoryError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            reason = shorten(str(error), 300) or type(error).__name__
            raise TemplateError(f"the model's chat template failed: {reason}") from None


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja2 as chat templates expect it (the settings of transformers), with a count of steps and of characters."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
        self._steps = 0
        self.filters |= {"tojson": _to_json, "counted": self._counted, "bounded": _bounded}
        self.filters = {name: _guarded_filter(run) for name, run in self.filters.items()}
        self.globals |= {"raise_exception": _refuse, "strftime_now": lambda form: now().strftime(form)}

    def text(self, source: str, given: Mapping[str, Any]) -> str:
        """Compile and render, giving up as soon as the text is too long."""
        template = self.template_class.from_code(self, self.compile(self._guarded(source)), self.globals)
        pieces: list[str] = []
        left = MOST_CHARACTERS
        for piece in template.generate(given):
            left -= len(piece)
            if left < 0:
                raise SecurityError(f"its text passes {MOST_CHARACTERS} characters")
            pieces.append(piece)
        return "".join(pieces)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run a call that the template makes, which is a step."""
        self._step()
        for argument in (*args, *kwargs.values()):
            _bounded(argument)
        return _bounded(super().call(*args, **kwargs))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Compute `+ * ** %`, refusing a result that would be too large to hold."""
        if operator == "**" or (operator == "*" and _size(left) * _size(right) > MOST_CHARACTERS):
            raise SecurityError(f"it computes a value too large with {operator}")
        return _bounded(super().call_binop(context, operator, left, right))

    def _guarded(self, source: str) -> nodes.Template:
        """Parse, and send what loops run over and what `~` joins through a guard."""
        tree = self.parse(source)
        for loop in tree.find_all(nodes.For):
            loop.iter = self._through("counted", loop.iter)
        for joined in tree.find_all(nodes.Concat):
            joined.nodes = [self._through("bounded", node) for node in joined.nodes]
        return tree

    def _through(self, name: str, node: Any) -> nodes.Filter:
        guard = nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)
        guard.environment = self
        return guard

    def _counted(self, values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            self._step()
            yield value

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise SecurityError(f"it takes more than {MOST_STEPS} steps")


def _size(value: Any) -> int:
    """How much repeating a value multiplies: itself for a number, its length for a text or a list."""
    return len(value) if hasattr(value, "__len__") else abs(int(value))


def _bounded(value: Any) -> Any:
    """Pass on a value unless it is a text, a list or a number (it could be a width) that is too large."""
    if isinstance(value, (str, list, tuple, int)) and _size(value) > MOST_CHARACTERS:
        raise SecurityError(f"it builds a value larger than {MOST_CHARACTERS}")
    return value


def _guarded_filter(run: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(run)  # keeps the mark by which Jinja knows what to pass
    def guarded(*args: Any, **kwargs: Any) -> Any:
        for argument in (*args, *kwargs.values()):
            _bounded(argument)
        return run(*args, **kwargs)

    return guarded


def _refuse(message: str) -> NoReturn:
    raise JinjaError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it is, where Jinja's own filter escapes it for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _checked(messages: Sequence[Message]) -> list[dict[str, Any]]:
    if not messages:
        raise EmptyPrompt("the chat holds no message")
    return [_checked_message(message) for message in messages]


def _checked_message(message: Message) -> dict[str, Any]:
    if not isinstance(message, Mapping) or not {"role", "content"} <= set(message):
        found = list(message) if isinstance(message, Mapping) else message
        raise PromptError(f"a message has {quoted(found)}; legal is exactly 'role' and 'content'")
    if message["role"] not in ROLES:
        raise PromptError(f"a message has the role {quoted(message['role'])}; legal: {', '.join(ROLES)}")
    extras = EXTRAS.get(message["role"], set())
    if strange := set(message) - {"role", "content"} - extras:
        legal = " and ".join(map(quoted, ["role", "content", *extras]))
        raise PromptError(f"a {message['role']} message has {quoted(min(strange, key=str))}; legal is exactly {legal}")
    if not isinstance(message["content"], str):
        raise PromptError(f"a message's content is {type(message['content']).__name__}; legal is text")
    return dict(message)


def _spelling(metadata: Mapping[str, Any], key: str) -> str:
    token = metadata.get(f"tokenizer.ggml.{key}_token_id")
    return "" if token is None else str(metadata["tokenizer.ggml.tokens"][int(token)])
