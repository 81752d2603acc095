"""What an answer's text must look like."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from soothsay.errors import OptionError

MOST_CHARACTERS = 1 << 20


@dataclass(frozen=True, slots=True)
class Grammar:
    """A language that the answer's text must belong to: every token that leads out of it is impossible.

    OptionError for a text that is too long or a schema that is not JSON; what else is wrong with it shows when it meets
    a model's tokenizer.
    """

    kind: Literal["json_schema", "regex", "lark"]
    text: str

    def __post_init__(self) -> None:
        if len(self.text) > MOST_CHARACTERS:
            raise OptionError(f"a grammar has {len(self.text)} characters; legal are up to {MOST_CHARACTERS}")

    @classmethod
    def json_schema(cls, schema: Mapping[str, Any] | bool | str) -> Self:
        """JSON that a schema accepts (as an object, or as JSON text)."""
        if isinstance(schema, str):
            try:
                schema = json.loads(schema)
            except (ValueError, RecursionError):
                raise OptionError("the schema is not JSON; a JSON Schema is an object") from None
        if not isinstance(schema, Mapping | bool):
            raise OptionError(f"the schema is a {type(schema).__name__}; a JSON Schema is an object")
        return cls("json_schema", json.dumps(schema))

    @classmethod
    def json(cls) -> Self:
        """Any JSON object."""
        return cls.json_schema({"type": "object"})

    @classmethod
    def regex(cls, pattern: str) -> Self:
        """All of the text matches a regular expression, in the syntax of Rust's `regex` without look-around."""
        return cls("regex", pattern)

    @classmethod
    def choice(cls, texts: Sequence[str]) -> Self:
        """One of several texts."""
        if not texts or not all(isinstance(text, str) and text for text in texts):
            raise OptionError("a choice needs one text at least, and none that is empty")
        return cls.lark("start: " + " | ".join(json.dumps(text) for text in texts))

    @classmethod
    def lark(cls, grammar: str) -> Self:
        """A context-free grammar in Lark's notation; `%json {...}` in it is a JSON Schema, `start` its first rule."""
        return cls("lark", grammar)


class Constraint(Protocol):
    """A grammar on its way through one answer. Every question names the whole answer so far, in token ids."""

    def allowed(self, said: Sequence[int]) -> NDArray[np.bool_]:
        """Give which tokens may come next, one entry for each id; all where `said` has left the language already."""
        ...

    def forced(self, said: Sequence[int]) -> tuple[int, ...]:
        """Give the tokens that have to come next, as the tokenizer would write them; none where there is a choice."""
        ...
