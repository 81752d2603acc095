"""What the model alone says, by definition: one token after the other, no draft, no engine."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from soothsay.audit.witness import fill
from soothsay.model.base import Feed, Model, Slot
from soothsay.sampling import Adjustment, Law, Sampling, law
from soothsay.verify.coupled import draw_coupled
from soothsay.verify.noise import Noise

Tokens = tuple[int, ...]
BATCH = 32


class Oracle:
    """A model and the tokens that end its answers."""

    def __init__(self, model: Model, end_ids: frozenset[int]) -> None:
        self._model = model
        self.end_ids = end_ids
        self._read_prompts: dict[Tokens, Slot] = {}

    def answer(self, prompt: Sequence[int], sampling: Sampling) -> Tokens:
        """Give the coupled (at temperature 0: greedy) answer; `sampling` needs a seed."""
        assert sampling.seed is not None
        context, noise = list(prompt), Noise(sampling.seed, sampling.sample)
        with self._slot(self._prompt(tuple(prompt))) as slot:
            while len(context) < len(prompt) + sampling.max_tokens and len(context) < self._model.max_length:
                fill(self._model, slot, context[:-1])
                row = self._read(slot, context[-1:])
                drawn_from = self.law_of(row, context, len(prompt), sampling)
                context.append(draw_coupled(drawn_from, noise, len(context)))
                if context[-1] in self.end_ids:
                    break
        return tuple(context[len(prompt) :])

    def row(self, context: Sequence[int]) -> NDArray[np.float32]:
        """Give the logits that follow a context, read plainly: the last token in a pass of its own."""
        with self._slot() as slot:
            fill(self._model, slot, context[:-1])
            return self._read(slot, context[-1:])

    def laws(self, context: Sequence[int], prefixes: Sequence[Tokens], sampling: Sampling) -> list[Law]:
        """Give the laws that follow a context with each of some continuations."""
        found: list[Law] = []
        with self._slot() as root:
            fill(self._model, root, context[:-1])
            for start in range(0, len(prefixes), BATCH):
                some = prefixes[start : start + BATCH]
                rows = self._branches(root, [[context[-1], *prefix] for prefix in some])
                found += [
                    self.law_of(row, [*context, *prefix], len(context), sampling)
                    for row, prefix in zip(rows, some, strict=True)
                ]
        return found

    def law_of(self, row: NDArray[np.float32], context: list[int], prompt_tokens: int, sampling: Sampling) -> Law:
        """Give the law that the options make of logits which follow a context."""
        adjust = Adjustment.of(sampling, context, prompt_tokens, self._model.vocab_size, self.end_ids)
        return law(row if adjust is None else adjust(row), sampling)

    def _branches(self, root: Slot, branches: Sequence[Sequence[int]]) -> list[NDArray[np.float32]]:
        """Give the logits after each of some continuations of what a slot holds."""
        forks = [self._model.fork(root) for _ in branches]
        try:
            feeds = [Feed(fork, branch, 1) for fork, branch in zip(forks, branches, strict=True)]
            return [rows[0] for rows in self._model.forward(feeds)]
        finally:
            for fork in forks:
                self._model.close(fork)

    def _read(self, slot: Slot, tokens: Sequence[int]) -> NDArray[np.float32]:
        [rows] = self._model.forward([Feed(slot, tokens, 1)])
        row: NDArray[np.float32] = rows[0]
        return row

    def _prompt(self, prompt: Tokens) -> Slot:
        """Give a slot that holds all but the last token of a prompt; it is kept, since a prompt is asked many times."""
        if prompt not in self._read_prompts:
            self._read_prompts[prompt] = self._model.open()
            fill(self._model, self._read_prompts[prompt], prompt[:-1])
        return self._read_prompts[prompt]

    @contextmanager
    def _slot(self, root: Slot | None = None) -> Iterator[Slot]:
        slot = self._model.open() if root is None else self._model.fork(root)
        try:
            yield slot
        finally:
            self._model.close(slot)
