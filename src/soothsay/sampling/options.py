"""What a user asks of chance, checked as soon as it is said."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from soothsay.errors import OptionError
from soothsay.sampling.grammar import Grammar

Processor: TypeAlias = Callable[[list[int], NDArray[np.float32]], NDArray[np.float32]]
"""(history, logits) -> logits: the ids of prompt and answer so far, and one number for each token, shape (V,).

It must be a function of its arguments alone, since it is asked about guesses too, and may change both in place.
"""

MOST_LOGPROBS = 1000
_FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn and when to stop.

    temperature: 0 takes the likeliest token (lowest id on ties). top_k: 0 is off. top_p: 1 is off. min_p: 0 is off.
    seed: None draws a random one, which the completion reports; sample: which of the answers that this seed gives.
    max_tokens: the length of the answer. stop: texts that end it and are not part of it; stop_ids: tokens that end it
    and print nothing. ignore_eos: the model's own end tokens do not end it. min_tokens: before so many tokens neither
    end tokens nor stop_ids are drawn.

    repetition_penalty divides positive logits of tokens in prompt or answer and multiplies negative ones (Keskar et
    al., arXiv 1909.05858); 1 is off. frequency_penalty is subtracted for each time that the answer has the token,
    presence_penalty once if it has it at all. logit_bias maps token ids to what is added. banned_tokens are never
    drawn, and nothing but allowed_tokens is (None: all are). processors change logits by code, in their order. grammar
    is what the answer's text must look like.

    logprobs: with each token goes its log-probability and those of so many likeliest ones (None: none); logprobs_of:
    the "model"'s own, before any option, or those of the law that it was drawn from, the "sampler"'s.

    All act in the order of `docs/sampling.md`. A value of the wrong type or outside its range raises OptionError.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    sample: int = 0
    stop_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    banned_tokens: tuple[int, ...] = ()
    allowed_tokens: tuple[int, ...] | None = None
    processors: tuple[Processor, ...] = ()
    grammar: Grammar | None = None
    logprobs: int | None = None
    logprobs_of: Literal["model", "sampler"] = "model"

    def __post_init__(self) -> None:
        self._check_draw()
        self._check_end()
        self._check_adjustments()
        object.__setattr__(self, "logit_bias", dict(self.logit_bias))

    def _check_draw(self) -> None:
        self._require("temperature", _number(self.temperature) and self.temperature >= 0, "a finite number, 0 or more")
        self._require("top_k", _whole(self.top_k), "an integer, 0 (off) or more")
        self._require("top_p", _number(self.top_p) and 0 < self.top_p <= 1, "a number above 0 and up to 1 (off)")
        self._require("min_p", _number(self.min_p) and 0 <= self.min_p <= 1, "a number from 0 (off) to 1")
        self._require("seed", self.seed is None or _word(self.seed), "None or an integer from 0 to 2**64 - 1")
        self._require("sample", _word(self.sample), "an integer from 0 to 2**64 - 1")
        legal = self.logprobs is None or (_whole(self.logprobs) and self.logprobs <= MOST_LOGPROBS)
        self._require("logprobs", legal, f"None or an integer from 0 to {MOST_LOGPROBS}")
        self._require("logprobs_of", self.logprobs_of in ("model", "sampler"), "'model' or 'sampler'")

    def _check_end(self) -> None:
        self._require("max_tokens", _whole(self.max_tokens) and self.max_tokens >= 1, "an integer, 1 or more")
        legal = _whole(self.min_tokens) and self.min_tokens <= self.max_tokens
        self._require("min_tokens", legal, f"an integer from 0 to max_tokens, which is {self.max_tokens}")
        self._require("stop", _texts(self.stop), "a tuple of strings, none of them empty")
        self._require("stop_ids", _ids(self.stop_ids), "a tuple of token ids")
        self._require("ignore_eos", isinstance(self.ignore_eos, bool), "True or False")

    def _check_adjustments(self) -> None:
        penalty = self.repetition_penalty
        self._require("repetition_penalty", _float32(penalty) and penalty > 0, "a finite number above 0; 1 is off")
        self._require("frequency_penalty", _float32(self.frequency_penalty), "a finite number; 0 is off")
        self._require("presence_penalty", _float32(self.presence_penalty), "a finite number; 0 is off")
        self._require("logit_bias", _biases(self.logit_bias), "a mapping of token ids to numbers below infinity")
        self._require("banned_tokens", _ids(self.banned_tokens), "a tuple of token ids")
        allowed = self.allowed_tokens
        legal = allowed is None or (_ids(allowed) and not set(allowed) <= set(self.banned_tokens))
        self._require("allowed_tokens", legal, "None or a tuple of token ids, not all of them banned")
        legal = isinstance(self.processors, tuple) and all(map(callable, self.processors))
        self._require("processors", legal, "a tuple of callables (history, logits) -> logits")
        legal = self.grammar is None or (isinstance(self.grammar, Grammar) and not self.ignore_eos)
        self._require("grammar", legal, "None or a Grammar, which ends its answer: not with ignore_eos")

    def _require(self, name: str, legal: bool, what: str) -> None:
        if not legal:
            raise OptionError(f"{name} is {getattr(self, name)!r}; it must be {what}")


def _number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _float32(value: object) -> bool:
    return _number(value) and abs(float(value)) <= _FLOAT32_MAX  # type: ignore[arg-type]  # it is a number


def _whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 0


def _word(value: object) -> bool:
    return _whole(value) and value < 2**64  # type: ignore[operator]  # it is a number


def _texts(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(text, str) and text for text in value)


def _ids(value: object) -> bool:
    return isinstance(value, tuple) and all(map(_whole, value))


def _biases(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    return all(_whole(token) and (_float32(bias) or bias == -math.inf) for token, bias in value.items())
