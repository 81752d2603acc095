"""A tiny exact model for tests: a few tokens, and logits that depend on the whole prefix."""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import count
from typing import Self

import numpy as np
from numpy.typing import NDArray

from soothsay.errors import ContextFull, OptionError
from soothsay.model.base import Feed, Logits, Slot


class TableModel:
    """A model over 2 to 16 tokens whose logits are a hash of the whole prefix, so that any slip in it shows.

    Each logit is uniform between -sharpness and sharpness, the same for a (seed, prefix) everywhere. A sequence may
    grow to `max_length` tokens. Raises OptionError for a vocabulary of another size.
    """

    def __init__(self, vocab_size: int, seed: int, *, sharpness: float = 2.0, max_length: int = 4096) -> None:
        if not 2 <= vocab_size <= 16:
            raise OptionError(f"vocab_size is {vocab_size}; a table model has 2 to 16 tokens")
        self.vocab_size = vocab_size
        self.max_length = max_length
        self._terms: tuple[tuple[int, float], ...] = ((seed, sharpness),)
        self._names = count()
        self._held: dict[Slot, list[int]] = {}

    def blend(self, other: Self, weight: float) -> Self:
        """Give a model whose logits are (1 - weight) times these plus `weight` times the other's: a draft like it."""
        blended = type(self)(self.vocab_size, 0, max_length=self.max_length)
        blended._terms = (*_scaled(self._terms, 1 - weight), *_scaled(other._terms, weight))
        return blended

    def logits(self, prefix: Sequence[int]) -> NDArray[np.float32]:
        """Give the logits, shape (vocab_size,), of the token that follows a prefix; no slot is needed."""
        words = np.array(prefix, np.int64).tobytes()
        return sum(
            (sharpness * _row(seed, words)[: self.vocab_size] for seed, sharpness in self._terms),
            np.zeros(self.vocab_size),
        ).astype(np.float32)

    def open(self) -> Slot:
        slot = Slot(next(self._names))
        self._held[slot] = []
        return slot

    def fork(self, slot: Slot) -> Slot:
        twin = self.open()
        self._held[twin] = list(self._tokens(slot))
        return twin

    def length(self, slot: Slot) -> int:
        return len(self._tokens(slot))

    def forward(self, feeds: Sequence[Feed]) -> list[Logits]:
        """Append and answer; ContextFull, before any feed is appended, if one would outgrow `max_length`."""
        for feed in feeds:
            self._check(feed)
        return [self._append(feed) for feed in feeds]

    def truncate(self, slot: Slot, length: int) -> None:
        tokens = self._tokens(slot)
        if not 0 <= length <= len(tokens):
            raise ValueError(f"slot {slot} holds {len(tokens)} tokens and cannot be cut to {length}")
        del tokens[length:]

    def close(self, slot: Slot) -> None:
        self._tokens(slot)
        del self._held[slot]

    def _tokens(self, slot: Slot) -> list[int]:
        if slot not in self._held:
            raise ValueError(f"slot {slot} is not open")
        return self._held[slot]

    def _check(self, feed: Feed) -> None:
        grown = self.length(feed.slot) + len(feed.tokens)
        if grown > self.max_length:
            raise ContextFull(f"a sequence of {grown} tokens does not fit in a context of {self.max_length}")
        if not 0 <= feed.rows <= len(feed.tokens):
            raise ValueError(f"{feed.rows} rows are wanted of {len(feed.tokens)} tokens")
        if not all(0 <= token < self.vocab_size for token in feed.tokens):
            raise ValueError(f"tokens are 0 to {self.vocab_size - 1}; got {list(feed.tokens)}")

    def _append(self, feed: Feed) -> Logits:
        tokens = self._tokens(feed.slot)
        tokens.extend(feed.tokens)
        ends = range(len(tokens) - feed.rows + 1, len(tokens) + 1)
        rows = [self.logits(tokens[:end]) for end in ends]
        return np.array(rows, np.float32).reshape(feed.rows, self.vocab_size)[:, : feed.columns]


def _scaled(terms: Iterable[tuple[int, float]], weight: float) -> list[tuple[int, float]]:
    return [(seed, sharpness * weight) for seed, sharpness in terms]


def _row(seed: int, words: bytes) -> NDArray[np.float64]:
    """Give 16 numbers between -1 and 1: the 64 bytes of one digest."""
    digest = blake2b(words, key=seed.to_bytes(8, "little")).digest()
    return np.frombuffer(digest, "<u4") / 2**31 - 1
