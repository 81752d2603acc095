"""Models and drafters that watch what an engine does with them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from soothsay.draft.base import Ask, Draft, Drafter, Outlook, Reader
from soothsay.draft.model import ModelDrafter
from soothsay.draft.ngram import NgramDrafter
from soothsay.engine import Engine
from soothsay.model.base import Feed, Logits, Slot
from soothsay.model.table import TableModel
from soothsay.sampling import Sampling, law
from soothsay.verify.coupled import draw_coupled
from soothsay.verify.noise import Noise

KEPT = 4
"""Slots that an engine may keep at rest."""


class SpyModel(TableModel):
    """A table model that writes down what it is fed; `before` and `after` run around every pass."""

    def __init__(self, vocab_size: int = 6, seed: int = 1, *, sharpness: float = 2.0, max_length: int = 4096) -> None:
        super().__init__(vocab_size, seed, sharpness=sharpness, max_length=max_length)
        self.passes: list[list[Feed]] = []
        self.before: Callable[[], object] = lambda: None
        self.after: Callable[[], object] = lambda: None

    def forward(self, feeds: Sequence[Feed]) -> list[Logits]:
        self.before()
        self.passes.append([replace(feed, tokens=tuple(feed.tokens)) for feed in feeds])
        logits = super().forward(feeds)
        self.after()
        return logits

    def holds(self, slot: Slot) -> list[int]:
        return list(self._tokens(slot))

    @property
    def open_slots(self) -> int:
        return len(self._held)

    @property
    def fed(self) -> list[int]:
        """Tokens fed in each pass, batch mates together."""
        return [sum(len(feed.tokens) for feed in feeds) for feeds in self.passes]


class ScriptModel(SpyModel):
    """A model that is sure of one text, by position, whatever came before."""

    def __init__(self, script: Sequence[int], vocab_size: int = 16, max_length: int = 4096) -> None:
        super().__init__(vocab_size, max_length=max_length)
        self.script = script

    def logits(self, prefix: Sequence[int]) -> NDArray[np.float32]:
        row = np.zeros(self.vocab_size, np.float32)
        row[self.script[len(prefix)] if len(prefix) < len(self.script) else 0] = 50
        return row


class SpyDrafter:
    """Passes everything on to a drafter, and writes down what was asked and answered."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self.open_readers: list[Reader] = []
        self.before: Callable[[], object] = lambda: None
        self.opened: Callable[[], object] = lambda: None
        self.asked: list[tuple[int, int]] = []
        self.drafted = 0

    def open(self) -> Reader:
        self.opened()
        reader = self._drafter.open()
        self.open_readers.append(reader)
        return reader

    def outlook(self, reader: Reader, context: Sequence[int]) -> Outlook | None:
        assert reader in self.open_readers
        return self._drafter.outlook(reader, context)

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        self.before()
        assert asks, "a call without a question"
        assert all(ask.reader in self.open_readers for ask in asks)
        self.asked += [(len(ask.context), ask.gamma) for ask in asks]
        drafts = self._drafter.propose(asks)
        self.drafted += sum(len(draft.tokens) for draft in drafts)
        return drafts

    def close(self, reader: Reader) -> None:
        self.open_readers.remove(reader)
        self._drafter.close(reader)


def drafters(model: TableModel) -> dict[str, Drafter]:
    """One of each kind: of the text itself, much like the target, and nothing like it."""
    other = TableModel(model.vocab_size, seed=77)
    return {
        "ngram": NgramDrafter(min_match=1),
        "alike": ModelDrafter(model.blend(other, 0.2), model.vocab_size),
        "unlike": ModelDrafter(other, model.vocab_size, top_k=3),
    }


def plain(model: TableModel, prompt: Sequence[int], sampling: Sampling) -> tuple[int, ...]:
    """What the model says by itself with coupled noise, by definition: one token after the other, no cache."""
    assert sampling.seed is not None
    context, noise = list(prompt), Noise(sampling.seed)
    for _ in range(sampling.max_tokens):
        context.append(draw_coupled(law(model.logits(context), sampling), noise, len(context)))
    return tuple(context[len(prompt) :])


def watch_cache(engine: Engine, model: SpyModel) -> None:
    """Check before each pass that every running slot holds a beginning of its context, and not the last token."""

    def check() -> None:
        for request in engine._scheduler._running:
            held = model.holds(request.slot)
            assert len(held) < len(request.context)
            assert held == request.context[: len(held)]

    model.before = check


def assert_at_rest(engine: Engine, model: SpyModel, drafter: SpyDrafter | None = None) -> None:
    """Nothing runs, nothing waits, and no more is held than the prefixes that an engine keeps."""
    assert engine._scheduler.plan(lambda _: 0) == []
    assert model.open_slots <= KEPT
    assert model.open_slots == len(engine._prefixes._kept)
    assert drafter is None or drafter.open_readers == []


def numbered(seeds: Iterable[int] = count()) -> Callable[[int], int]:
    """A stand-in for `secrets.randbits` that hands out the seeds in order."""
    source = iter(seeds)
    return lambda _: next(source)
