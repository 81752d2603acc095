"""Finished sequences, kept for prompts that continue them."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from soothsay.model.base import Model, Slot


class PrefixCache:
    """The slots of the last few finished sequences; a prompt starts from the longest prefix that one of them has."""

    def __init__(self, model: Model, capacity: int = 4) -> None:
        self._model = model
        self._capacity = capacity
        self._kept: OrderedDict[Slot, tuple[int, ...]] = OrderedDict()

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The slots that are kept, the least recently used first."""
        return tuple(self._kept)

    @property
    def held_tokens(self) -> int:
        """Tokens of all slots that are kept."""
        return sum(map(len, self._kept.values()))

    def open(self, prompt: Sequence[int], running: Iterable[tuple[Slot, Sequence[int]]] = ()) -> Slot:
        """Give a slot that holds as much of the prompt as is at hand, but never its last token: that one is to be fed.

        `running` are slots that others use at the moment, each with a text that it holds a beginning of.
        """
        tokens, best, shared = tuple(prompt), None, 0
        for slot, held in [*self._kept.items(), *running]:
            common = min(_common(held, tokens), self._model.length(slot), len(tokens) - 1)
            if common > shared:
                best, shared = slot, common
        if best is None:
            return self._model.open()
        if best in self._kept:
            self._kept.move_to_end(best)
        fork = self._model.fork(best)
        self._model.truncate(fork, shared)
        return fork

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

    def shrink(self, tokens: int) -> None:
        """Forget the least recently used ones until no more than so many tokens are held."""
        while self._kept and self.held_tokens > tokens:
            self._forget(next(iter(self._kept)))

    def _forget(self, slot: Slot) -> None:
        del self._kept[slot]
        self._model.close(slot)


def _common(left: Sequence[int], right: tuple[int, ...]) -> int:
    """How many leading tokens two sequences share: by halves, since comparing slices is fast."""
    low, high = 0, min(len(left), len(right))
    if tuple(left[:high]) == right[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if tuple(left[low:middle]) == right[low:middle]:
            low = middle
        else:
            high = middle
    return low
