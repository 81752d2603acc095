"""What passes of a model cost on this machine: a second of paired probes, the first time only."""

import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from soothsay.model.base import Feed, Model
from soothsay.schedule.cost import Probe, Shape, load, save

KERNELS = 1
"""To be raised when the native code is made faster: shapes measured before it are then measured anew."""

TARGET_ROWS = (1, 2, 3, 5, 8, 16)
DRAFT_ROWS = (1, 2, 8, 24)
CONTEXT_TOKENS = 32
ROUNDS = 4


def shape(
    model: Model, name: str, rows: tuple[int, ...], path: Path, clock: Callable[[], float] = time.perf_counter
) -> Shape:
    """Give the shape of a model's passes, kept in the file `path` by its name, the machine and the version of the kernels."""
    key = f"{name} {KERNELS} {platform.node()} {platform.machine()} {os.cpu_count()}"
    if (kept := load(path, key)) is not None:
        return kept
    measured = Shape.fit(probes(model, rows, clock))
    save(path, key, measured)
    return measured


def probes(model: Model, rows: tuple[int, ...], clock: Callable[[], float]) -> Iterator[Probe]:
    """Time passes of each number of rows, round by round, so that each round meets one machine."""
    slot = model.open()
    try:
        context = [token % model.vocab_size for token in range(CONTEXT_TOKENS + max(rows))]
        model.forward([Feed(slot, context[:CONTEXT_TOKENS], rows=0)])
        for turn in range(ROUNDS + 1):
            for count in rows:
                begun = clock()
                model.forward([Feed(slot, context[CONTEXT_TOKENS : CONTEXT_TOKENS + count], rows=count)])
                if turn > 0:  # the first round only warms up
                    yield Probe(turn, count, CONTEXT_TOKENS, clock() - begun)
                model.truncate(slot, CONTEXT_TOKENS)
    finally:
        model.close(slot)
