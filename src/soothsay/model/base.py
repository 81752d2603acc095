"""Who computes logits: the protocol that the target and the draft model share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NewType, Protocol

import numpy as np
from numpy.typing import NDArray

from soothsay.errors import ContextFull, PromptError

Slot = NewType("Slot", int)
"""A sequence's place in a model's cache."""

Logits = NDArray[np.float32]
"""`[rows, columns]`: row i follows the i-th of the last `rows` tokens fed; columns are the vocabulary's tokens."""


@dataclass(frozen=True, slots=True)
class Feed:
    """Tokens to append to one slot's cache, and how many of the last ones want logits.

    `tokens` are those not yet in the cache, `context[length(slot):]`; `0 <= rows <= len(tokens)`. `columns`: the logits
    of so many tokens, those of the lowest ids, are enough (None: of all).
    """

    slot: Slot
    tokens: Sequence[int]
    rows: int
    columns: int | None = None


class Model(Protocol):
    """Computes logits for many sequences at once, each in its own slot of the cache.

    Row i of a feed sees exactly the tokens up to and including its own. A row's logits do not depend on the other
    rows of the pass (design: bit-invariance), unless the implementation says otherwise.
    """

    @property
    def vocab_size(self) -> int: ...

    @property
    def max_length(self) -> int:
        """The longest sequence, in tokens, that a slot can hold."""
        ...

    def open(self) -> Slot:
        """Give an empty slot."""
        ...

    def fork(self, slot: Slot) -> Slot:
        """Give a new slot that holds the same tokens; the two share memory until one of them grows."""
        ...

    def length(self, slot: Slot) -> int:
        """Tokens held in the cache."""
        ...

    def forward(self, feeds: Sequence[Feed]) -> list[Logits]:
        """Append each feed's tokens and return its logits, in order; a slot occurs in at most one feed."""
        ...

    def truncate(self, slot: Slot, length: int) -> None:
        """Forget all tokens after the first `length`, in O(1)."""
        ...

    def close(self, slot: Slot) -> None:
        """Give the slot back; using it afterwards is an error."""
        ...


def check(model: Model, feeds: Sequence[Feed]) -> None:
    """Refuse a pass that `model` cannot compute, before anything has changed.

    Raises ContextFull for a slot that would outgrow `max_length`, PromptError for a token outside the vocabulary,
    ValueError for a slot in two feeds or for more rows than tokens.
    """
    if len({feed.slot for feed in feeds}) < len(feeds):
        raise ValueError("a slot occurs in more than one feed of a pass")
    vocab_size, max_length = model.vocab_size, model.max_length
    for feed in feeds:
        if not 0 <= feed.rows <= len(feed.tokens):
            raise ValueError(f"{feed.rows} rows asked of {len(feed.tokens)} tokens")
        if (length := model.length(feed.slot) + len(feed.tokens)) > max_length:
            raise ContextFull(f"{length} tokens are more than the context of {max_length} holds")
        for token in feed.tokens:
            if not 0 <= token < vocab_size:
                raise PromptError(f"token {token} is outside the vocabulary; 0 to {vocab_size - 1} are legal")
