"""Finished sequences, kept for prompts that continue them."""

from collections import OrderedDict
from collections.abc import Sequence

from soothsay.model.base import Model, Slot


class PrefixCache:
    """The slots of the last few finished sequences; a prompt starts from the longest prefix that one of them has."""

    def __init__(self, model: Model, capacity: int = 4) -> None:
        self._model = model
        self._capacity = capacity
        self._kept: OrderedDict[Slot, tuple[int, ...]] = OrderedDict()

    def open(self, prompt: Sequence[int]) -> Slot:
        """Give a slot that holds as much of the prompt as was kept, but never its last token: that one is to be fed."""
        best = max(self._kept, key=lambda slot: _common(self._kept[slot], prompt), default=None)
        shared = min(_common(self._kept[best], prompt), len(prompt) - 1) if best is not None else 0
        if best is None or shared == 0:
            return self._model.open()
        self._kept.move_to_end(best)
        slot = self._model.fork(best)
        self._model.truncate(slot, shared)
        return slot

    def keep(self, slot: Slot, context: Sequence[int]) -> None:
        """Take over the slot of a finished sequence; it holds a prefix of `context`."""
        tokens = tuple(context[: self._model.length(slot)])
        if any(held[: len(tokens)] == tokens for held in self._kept.values()):
            self._model.close(slot)  # it has nothing that is not kept already
            return
        for old in [old for old, held in self._kept.items() if held == tokens[: len(held)]]:
            self._forget(old)
        self._kept[slot] = tokens
        if len(self._kept) > self._capacity:
            self._forget(next(iter(self._kept)))

    def _forget(self, slot: Slot) -> None:
        del self._kept[slot]
        self._model.close(slot)


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    """How many leading tokens two sequences share."""
    length = min(len(left), len(right))
    return next((i for i in range(length) if left[i] != right[i]), length)
