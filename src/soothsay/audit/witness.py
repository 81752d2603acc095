"""A model with a witness: what its slots should hold by what was asked of it, and the rows of its latest pass."""

from collections.abc import Sequence
from dataclasses import replace

from soothsay.model.base import Feed, Logits, Model, Slot

CHUNK_TOKENS = 256


class Witness:
    """Passes everything on to a model, and remembers what a slot was fed and not told to forget."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._texts: dict[Slot, list[int]] = {}
        self._pass: dict[Slot, tuple[Feed, Logits]] = {}

    @property
    def vocab_size(self) -> int:
        return self._model.vocab_size

    @property
    def max_length(self) -> int:
        return self._model.max_length

    def open(self) -> Slot:
        slot = self._model.open()
        self._texts[slot] = []
        return slot

    def fork(self, slot: Slot) -> Slot:
        twin = self._model.fork(slot)
        self._texts[twin] = list(self._texts[slot])
        return twin

    def length(self, slot: Slot) -> int:
        return self._model.length(slot)

    def forward(self, feeds: Sequence[Feed]) -> list[Logits]:
        logits = self._model.forward(feeds)
        for feed in feeds:
            self._texts[feed.slot].extend(feed.tokens)
        self._pass = {feed.slot: (feed, rows) for feed, rows in zip(feeds, logits, strict=True)}
        return logits

    def truncate(self, slot: Slot, length: int) -> None:
        self._model.truncate(slot, length)
        del self._texts[slot][length:]

    def close(self, slot: Slot) -> None:
        self._model.close(slot)
        del self._texts[slot]

    def text(self, slot: Slot) -> list[int]:
        """Give the tokens that a slot should hold."""
        return self._texts[slot]

    def rows(self, slot: Slot) -> Logits:
        """Give what the latest pass gave for a slot that took part in it."""
        return self._pass[slot][1]

    def again(self, slot: Slot) -> Logits:
        """Give what the latest pass would have given for a slot, had all caches been read anew."""
        fresh: dict[Slot, Slot] = {}
        try:
            for old, (feed, _) in self._pass.items():
                fresh[old] = self._model.open()
                fill(self._model, fresh[old], self._texts[old][: -len(feed.tokens)])
            feeds = [replace(feed, slot=fresh[old]) for old, (feed, _) in self._pass.items()]
            return dict(zip(fresh, self._model.forward(feeds), strict=True))[slot]
        finally:
            for twin in fresh.values():
                self._model.close(twin)


def fill(model: Model, slot: Slot, context: Sequence[int]) -> None:
    """Bring a slot that holds a beginning of the context to its end."""
    for start in range(model.length(slot), len(context), CHUNK_TOKENS):
        model.forward([Feed(slot, context[start : start + CHUNK_TOKENS], 0)])
