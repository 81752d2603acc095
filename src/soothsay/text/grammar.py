"""Grammars over a vocabulary, by llguidance: which tokens may come next, and which must."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import llguidance
import numpy as np
from numpy.typing import NDArray

from soothsay.errors import OptionError
from soothsay.sampling.grammar import Grammar
from soothsay.text.tokenizer import Tokenizer

KEPT = 32
"""Compiled grammars that are kept for requests that ask for the same."""

WHITE_SPACE = r"[ \n\t]{0,8}"
"""Between the parts of JSON: some, as people write it, but not without end, as unsure models do."""


class Grammars:
    """Compiles grammars for one tokenizer; `vocab_size` is the model's, which may have more ids."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._vocabulary: llguidance.LLTokenizer | None = None
        self._kept: OrderedDict[Grammar, llguidance.LLMatcher] = OrderedDict()
        self._lock = threading.Lock()

    def start(self, grammar: Grammar) -> "Matcher":
        """Begin an answer; OptionError for a grammar that is wrong, or larger than is good for anyone."""
        with self._lock:
            matcher = self._kept.get(grammar)
        if matcher is None:
            matcher = self._compiled(grammar)  # which may take a second, and holds up nobody else
        with self._lock:
            self._kept[grammar] = matcher
            self._kept.move_to_end(grammar)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return Matcher(matcher.deep_copy(), self._vocab_size)

    def _compiled(self, grammar: Grammar) -> llguidance.LLMatcher:
        if self._vocabulary is None:
            self._vocabulary = _vocabulary(self._tokenizer, self._vocab_size)
        try:
            matcher = llguidance.LLMatcher(self._vocabulary, _source(grammar), log_level=0)
        except ValueError as error:
            raise OptionError(_refusal(grammar, str(error))) from None
        if matcher.is_error():
            raise OptionError(_refusal(grammar, matcher.get_error()))
        return matcher


class Matcher:
    """One answer in a grammar: it goes on and back with the answer that it is asked about."""

    def __init__(self, matcher: llguidance.LLMatcher, vocab_size: int) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._read: list[int] = []

    def allowed(self, said: Sequence[int]) -> NDArray[np.bool_]:
        """Give which tokens may come next, shape (V,); all where `said` has left the language already."""
        if not self._go_to(said):
            return np.ones(self._vocab_size, np.bool_)
        words = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            raise OptionError(f"the grammar grew too complex: {_line(self._matcher.get_error())}")
        bits = np.unpackbits(words, count=min(self._vocab_size, 8 * len(words)), bitorder="little")
        allowed = np.zeros(self._vocab_size, np.bool_)
        allowed[: len(bits)] = bits
        return allowed

    def forced(self, said: Sequence[int]) -> tuple[int, ...]:
        """Give the tokens that have to come next; none where there is a choice."""
        return tuple(self._matcher.compute_ff_tokens()) if self._go_to(said) else ()

    def _go_to(self, said: Sequence[int]) -> bool:
        """Read on or back to the end of `said`; False where it has left the language."""
        common = next((i for i, (a, b) in enumerate(zip(self._read, said, strict=False)) if a != b), None)
        common = min(len(self._read), len(said)) if common is None else common
        if common < len(self._read):
            self._matcher.rollback(len(self._read) - common)
            del self._read[common:]
        new = list(said[common:])
        self._read += new[: self._matcher.try_consume_tokens(new)]
        return len(self._read) == len(said)


def _source(grammar: Grammar) -> str:
    match grammar.kind:
        case "json_schema":
            options: Any = {"whitespace_pattern": WHITE_SPACE}
            return llguidance.LLMatcher.grammar_from_json_schema(grammar.text, overrides=options)
        case "regex":
            return llguidance.LLMatcher.grammar_from_regex(grammar.text)
    return llguidance.LLMatcher.grammar_from_lark(grammar.text)


def _refusal(grammar: Grammar, reason: str) -> str:
    return f"the {grammar.kind.replace('_', ' ')} cannot be followed: {_line(reason)}"


def _line(text: str) -> str:
    return " ".join(text.split())[:300]


def _vocabulary(tokenizer: Tokenizer, vocab_size: int) -> llguidance.LLTokenizer:
    ends = sorted(tokenizer.end_ids)
    if not ends:
        raise OptionError("a grammar needs a model that can end its answer; this one has no end token")
    wrapper = llguidance.TokenizerWrapper(_Words(tokenizer, ends[0]))
    return llguidance.LLTokenizer(wrapper, n_vocab=vocab_size, eos_token=ends)


class _Words:
    """A tokenizer as llguidance wants to see it."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, end: int) -> None:
        ids = range(tokenizer.vocab_size)
        self._tokenizer = tokenizer
        self.eos_token_id = end
        self.special_token_ids = [token for token in ids if tokenizer.is_control(token)]
        special = set(self.special_token_ids)
        self.tokens = [
            tokenizer.spelling(token).encode() if token in special else tokenizer.bytes_of(token) for token in ids
        ]

    def __call__(self, text: bytes | str) -> list[int]:
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        return self._tokenizer.encode(text, special=False)
