"""A drafter that is the target itself, with lighter weights: it goes on from what the target has read."""

from collections.abc import Sequence
from contextlib import ExitStack

from soothsay.draft.base import Ask, Draft, Outlook, Reader
from soothsay.draft.model import ModelDrafter, Place, Work


class SelfDrafter(ModelDrafter):
    """Drafts with a model that shares the target's cache, so that nothing of a prompt is read twice.

    What it feeds goes into a fork of the target's slot, which is given back with the draft. Keys and values that the
    heavier weights made are what the lighter ones only come near (compare Zhang et al., "Draft & verify",
    arXiv 2309.08168, which shares the cache with layers left out).
    """

    def open(self) -> Reader:
        return Reader(next(self._readers))

    def close(self, reader: Reader) -> None:
        pass

    def outlook(self, reader: Reader, context: Sequence[int]) -> Outlook | None:
        return Outlook()

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        with ExitStack() as forks:
            return self._drafts([self._forked(ask, forks) for ask in asks])

    def _forked(self, ask: Ask, forks: ExitStack) -> Work:
        assert ask.slot is not None
        slot = self._model.fork(ask.slot)
        forks.callback(self._model.close, slot)
        held = self._model.length(slot)
        room = self._model.max_length - len(ask.context) + 1
        return Work(ask, Place(slot, known=held), min(ask.gamma, room), ask.context[held:])
