"""What passes of a model cost on this machine: probes the first time, and a few passes of each pair at its start."""

import os
import platform
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from soothsay.model.base import Feed, Model
from soothsay.schedule.cost import Cost, Probe, Shape, load, save

KERNELS = 4
"""To be raised when the native code is made faster: shapes measured before it are then measured anew."""

TARGET_ROWS = (1, 2, 3, 5, 8, 16)
DRAFT_ROWS = (1, 2, 8, 24)
CONTEXT_TOKENS = 32
ROUNDS = 4
GREETINGS = 3
VERIFIED_ROWS, READ_ROWS = 5, 24
"""Of a usual draft's verification, and of a draft model's first reading."""


def shape(model: Model, name: str, rows: tuple[int, ...], path: Path, clock: Callable[[], float]) -> Shape:
    """Give the shape of a model's passes, kept in the file `path` by `name`, machine and version of the kernels.

    A file that cannot be read or written costs the probes anew each time, and nothing else.
    """
    key = f"{name} {KERNELS} {platform.node()} {platform.machine()} {os.cpu_count()}"
    if (kept := load(path, key)) is not None:
        return kept
    measured = Shape.fit(probes(model, rows, clock))
    with suppress(OSError):
        save(path, key, measured)
    return measured


def probes(model: Model, rows: tuple[int, ...], clock: Callable[[], float]) -> Iterator[Probe]:
    """Time passes of each number of rows that fits, round by round, so that each round meets one machine."""
    held = min(CONTEXT_TOKENS, model.max_length // 2)
    fitting = [count for count in rows if held + count <= model.max_length]
    slot = model.open()
    try:
        tokens = [token % model.vocab_size for token in range(held + max(fitting))]
        model.forward([Feed(slot, tokens[:held], rows=0)])
        for turn in range(ROUNDS + 1):
            for count in fitting:
                begun = clock()
                model.forward([Feed(slot, tokens[held : held + count], rows=count)])
                if turn > 0:  # the first round only warms up
                    yield Probe(turn, count, held, clock() - begun)
                model.truncate(slot, held)
    finally:
        model.close(slot)


@dataclass(frozen=True, slots=True)
class Guest:
    """A model to be greeted: its cost, and the rows of the wide passes that are usual for it."""

    model: Model
    cost: Cost
    usual_rows: int

    @property
    def rows(self) -> int:
        """As many as its context takes."""
        return min(self.usual_rows, self.model.max_length)


def greet(guests: Sequence[Guest], clock: Callable[[], float]) -> None:
    """Tell the costs of a target and its draft model how fast the machine is now, by a few passes of each in turn.

    Shapes that were kept may have met different machines, a busy one and an idle one: what they say of a draft model
    beside its target, or of wide passes beside narrow ones, is then wrong until many drafts have told otherwise.
    """
    times = defaultdict[tuple[int, int], list[float]](list)
    for turn in range(GREETINGS + 1):
        for place, guest in enumerate(guests):
            for rows in (1, guest.rows):
                seconds = _seconds(guest.model, rows, clock)
                if turn > 0:  # the first round only warms up
                    times[place, rows].append(seconds)
    for place, guest in enumerate(guests):
        ratio = median(times[place, guest.rows]) / median(times[place, 1])
        guest.cost.shape = guest.cost.shape.widened(guest.rows, ratio)
        for seconds in times[place, 1]:
            guest.cost.observe(1, 0, seconds)


def _seconds(model: Model, rows: int, clock: Callable[[], float]) -> float:
    slot = model.open()
    try:
        begun = clock()
        model.forward([Feed(slot, [0] * rows, rows=1)])
        return clock() - begun
    finally:
        model.close(slot)
