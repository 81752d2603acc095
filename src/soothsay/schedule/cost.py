"""What a pass costs: how fast the machine is now, times a shape that is measured once and kept on disk."""

import json
import math
import os
import tempfile
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Self

from soothsay.errors import OptionError

FORMAT = 1
"""Of the file of shapes; a file with another is as good as none."""

TILE_ROWS = 8
"""Rows that share one unpacking of the weights; each row beyond them costs more than one within."""

DEVIATION = 0.05
"""How far a real row count strays from the smooth shape (a kernel with its own kink), as a share: the prior spread."""

UNKNOWN_SPREAD = 0.1
"""Spread of one timed pass, as a share, where too few were timed to tell."""

WINDOW = 9
"""Passes whose median is the pace of the machine: five slow ones in a row are the machine, fewer are chance."""

BESIDE_WINDOW = 25
"""Of a draft model's own pace, which does not change by itself: long enough to outlast a change of the machine's."""

DOUBTS = 2
"""Passes that a draft model's probes count for: if the first one was interrupted, it would never be asked again."""

LEAST_GAIN, DRIFT_GAIN = 0.02, 0.2
"""How much of a surprise between two neighbouring passes is believed after many, and after several of one sign."""

INTERRUPTION = 1.1
"""A pass that took over three times (the logarithm) what its neighbour lets expect was interrupted."""

DRIFT_MEMORY, DRIFT = 0.75, 0.7
"""Surprises have one sign when their mean is this share of their mean size (Trigg, 1964), over some four of them."""

PRIOR_WEIGHT = 0.003
"""Of a pass that was only imagined, where one that was measured has 1: it settles what the probes left open."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A timed pass; those of one `round` ran right after each other, so that they met the same machine."""

    round: int
    rows: int
    context: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Shape:
    """Seconds of a pass on a machine at its usual pace.

    `coefficients`: seconds of a one-row pass, of a further row, of a further row beyond the tile, of a cached token,
    of a cached token for a further row of its sequence. `effects[rows]`: what a row count costs beside that smooth
    form, as a factor. `extra`: what each row beyond the first turned out to cost more in use, as a share of a one-row
    pass. `rounds`: of probes behind it all (0: a guess).
    """

    coefficients: tuple[float, ...]
    effects: tuple[float, ...] = (1.0,)
    extra: float = 0.0
    rounds: int = 0

    @classmethod
    def prior(cls, one_row_seconds: float = 0.03) -> Self:
        """Give the shape that a machine has before anything was measured: a two-core machine's."""
        return cls(tuple(one_row_seconds * share for share in (1.0, 0.08, 0.09, 9e-5, 3e-5)))

    @classmethod
    def reading(cls, draft_seconds: float = 2e-5, token_seconds: float = 3e-6) -> Self:
        """Give the shape of a drafter that computes no pass: a fixed price a drafted token, another a token read."""
        return cls((draft_seconds, token_seconds, 0.0, 0.0, 0.0))

    @classmethod
    def fit(cls, probes: Iterable[Probe]) -> Self:
        """Fit the smooth form to medians, then give each row count the share of its own deviation that noise allows.

        Believing each cell would make the cheapest of many noisy ones win; the shrinkage is the one of a normal prior
        (James and Stein, 1961). Raises OptionError without probes.
        """
        cells = _leveled(list(probes))
        if not cells:
            raise OptionError("no pass was timed; a shape needs at least one")
        typical = {cell: median(values) for cell, values in cells.items()}
        smooth = cls(_non_negative_fit(typical, _imagined(typical)))
        rounds = max(len(values) for values in cells.values())
        return replace(smooth, effects=_effects(smooth, cells, typical), rounds=rounds)

    def seconds(self, rows: int, context: float, sequences: int = 1) -> float:
        """Give the seconds of a pass of `rows` over `sequences` that hold `context` tokens each on average."""
        first, row, beyond, token, token_row = self.coefficients
        effects = self.effects
        further = max(0.0, row + self.extra * first) * (rows - 1)
        if rows > TILE_ROWS:
            further += beyond * (rows - TILE_ROWS)
        attention = token * context * sequences + token_row * context * (rows - sequences)
        effect = effects[rows] if rows < len(effects) else effects[-1]
        return (first + further + attention) * effect

    def widened(self, rows: int, ratio: float) -> Self:
        """Give the shape whose pass of `rows` takes `ratio` times a one-row pass: all further rows scaled alike."""
        first, row, beyond, *attention = self.coefficients
        one = replace(self, coefficients=(first, 0.0, 0.0, *attention), extra=0.0)
        further = self.seconds(rows, 0) - one.seconds(rows, 0)
        if further <= 0:
            return self
        scale = max(0.0, ratio * self.seconds(1, 0) - one.seconds(rows, 0)) / further
        extra = min(1.0, max(-1.0, scale * self.extra))
        return replace(self, coefficients=(first, scale * row, scale * beyond, *attention), extra=extra)


class Cost:
    """Seconds of the passes of one model, now.

    The pace of the machine is the median of the latest ratios of measured to expected seconds: a pass that was
    interrupted does not move it, a core that is taken away does, for all row counts alike. A draft model runs `beside`
    its target, on the same machine, and is measured relative to it; otherwise a drafter that was put aside while the
    machine was slow would be remembered as slow.
    """

    def __init__(self, shape: Shape, beside: "Cost | None" = None) -> None:
        self.shape = shape
        self._beside = beside
        self._ratios = deque(maxlen=WINDOW) if beside is None else deque([1.0] * DOUBTS, BESIDE_WINDOW)
        self._own_pace = 1.0
        self._last: tuple[int, float, int, float] | None = None
        self._pairs = 1 + shape.rounds
        self._surprise, self._surprise_size = 0.0, 0.0

    @property
    def pace(self) -> float:
        """How much slower than the shape passes are now."""
        return self._own_pace if self._beside is None else self._own_pace * self._beside.pace

    @property
    def drifting(self) -> bool:
        """Whether neighbouring passes of different widths lately told that the shape is off, all in the same way."""
        return abs(self._surprise) > max(DRIFT * self._surprise_size, DEVIATION)

    def pass_seconds(self, rows: int, context: float, sequences: int = 1) -> float:
        """Give the seconds expected of a pass; arguments as in `Shape.seconds`."""
        return self.pace * self.shape.seconds(rows, context, sequences)

    def observe(self, rows: int, context: float, seconds: float, sequences: int = 1) -> None:
        """Learn from one timed pass; a clock that did not move teaches nothing."""
        if seconds <= 0:
            return
        self._learn_extra(rows, context, sequences, seconds)
        self.observe_total(self.shape.seconds(rows, context, sequences), seconds)

    def observe_total(self, shape_seconds: float, seconds: float) -> None:
        """Learn from some passes that were timed together and have `shape_seconds` by the shape."""
        if seconds <= 0:
            return
        others = 1.0 if self._beside is None else self._beside.pace
        self._ratios.append(seconds / (shape_seconds * others))
        self._own_pace = sorted(self._ratios)[(len(self._ratios) - 1) // 2]

    def _learn_extra(self, rows: int, context: float, sequences: int, seconds: float) -> None:
        """Compare this pass with the one before, on the same machine therefore, when their row counts differ."""
        before, self._last = self._last, (rows, context, sequences, seconds)
        if before is None or before[0] == rows:
            return
        expected, expected_before = self.shape.seconds(*self._last[:3]), self.shape.seconds(*before[:3])
        surprise = math.log(seconds / expected) - math.log(before[3] / expected_before)
        if abs(surprise) > INTERRUPTION:
            return
        leverage = self.shape.coefficients[0] * ((rows - 1) / expected - (before[0] - 1) / expected_before)
        self._note_surprise(math.copysign(surprise, surprise * leverage))
        gain = max(DRIFT_GAIN if self.drifting else LEAST_GAIN, 1 / (1 + self._pairs))
        step = gain * min(0.5, max(-0.5, surprise)) * leverage / (leverage**2 + 0.02)
        self.shape = replace(self.shape, extra=min(1.0, max(-1.0, self.shape.extra + step)))
        self._pairs += 1

    def _note_surprise(self, surprise: float) -> None:
        self._surprise += (1 - DRIFT_MEMORY) * (surprise - self._surprise)
        self._surprise_size += (1 - DRIFT_MEMORY) * (abs(surprise) - self._surprise_size)


Cell = tuple[int, int]


def _leveled(probes: Sequence[Probe]) -> dict[Cell, list[float]]:
    """Give the seconds of each (rows, context) as if every round had met the machine at the same pace."""
    raw: dict[Cell, list[float]] = defaultdict(list)
    for probe in probes:
        raw[probe.rows, probe.context].append(probe.seconds)
    typical = {cell: median(values) for cell, values in raw.items()}
    ratios: dict[int, list[float]] = defaultdict(list)
    for probe in probes:
        ratios[probe.round].append(probe.seconds / typical[probe.rows, probe.context])
    leveled: dict[Cell, list[float]] = defaultdict(list)
    for probe in probes:
        leveled[probe.rows, probe.context].append(probe.seconds / median(ratios[probe.round]))
    return leveled


def _imagined(typical: Mapping[Cell, float]) -> dict[Cell, float]:
    """Give the corners of the plane as the prior sees them, at the pace of the measured cells."""
    prior = Shape.prior()
    pace = median(seconds / prior.seconds(*cell) for cell, seconds in typical.items())
    corners = ((rows, context) for rows in (1, TILE_ROWS, 2 * TILE_ROWS) for context in (0, 4096))
    return {cell: pace * prior.seconds(*cell) for cell in corners}


def _features(rows: int, context: float) -> tuple[float, ...]:
    return (1.0, rows - 1.0, max(0.0, rows - TILE_ROWS), context, context * (rows - 1.0))


def _non_negative_fit(measured: Mapping[Cell, float], imagined: Mapping[Cell, float]) -> tuple[float, ...]:
    """Find the coefficients of least squared relative error, none below 0, by descent along one after the other."""
    lines = [
        (weight, [feature / seconds for feature in _features(*cell)])
        for cells, weight in ((measured, 1.0), (imagined, PRIOR_WEIGHT))
        for cell, seconds in cells.items()
    ]
    found = [0.0] * 5
    missing = [1.0] * len(lines)
    for sweep in range(5 * 400):
        place = sweep % 5
        slope = sum(weight * line[place] * rest for (weight, line), rest in zip(lines, missing, strict=True))
        change = max(-found[place], slope / sum(weight * line[place] ** 2 for weight, line in lines))
        found[place] += change
        missing = [rest - change * line[place] for (_, line), rest in zip(lines, missing, strict=True)]
    return tuple(found)


def _effects(smooth: Shape, cells: Mapping[Cell, Sequence[float]], typical: Mapping[Cell, float]) -> tuple[float, ...]:
    """Give each row count's own factor, on a straight line between those that were measured."""
    spread = _spread(cells, typical)
    shrunk: dict[int, float] = {}
    for rows in sorted({rows for rows, _ in cells}):
        same = [cell for cell in cells if cell[0] == rows]
        deviation = sum(math.log(typical[cell] / smooth.seconds(*cell)) for cell in same) / len(same)
        variance = (1.25 * spread) ** 2 / sum(len(cells[cell]) for cell in same)  # of a median: pi/2 that of a mean
        shrunk[rows] = deviation * DEVIATION**2 / (DEVIATION**2 + variance)
    return tuple(math.exp(_between(shrunk, rows)) for rows in range(max(shrunk) + 1))


def _spread(cells: Mapping[Cell, Sequence[float]], typical: Mapping[Cell, float]) -> float:
    """Estimate the spread of a single pass from the median deviation, which a few interruptions do not move."""
    pairs = [(value, typical[cell]) for cell, values in cells.items() if len(values) > 2 for value in values]
    strays = [abs(math.log(value / middle)) for value, middle in pairs if value != middle]  # the median is no stray
    return 1.4826 * median(strays) if strays else UNKNOWN_SPREAD


def _between(points: Mapping[int, float], place: int) -> float:
    below = max((point for point in points if point <= place), default=min(points))
    above = min((point for point in points if point >= place), default=max(points))
    share = (place - below) / (above - below) if above > below else 0.0
    return points[below] + share * (points[above] - points[below])


def load(path: Path, key: str) -> Shape | None:
    """Read the shape kept under `key` (model, machine and version); None when there is no such, or it is damaged."""
    try:
        found = _read(path)[key]
        shape = Shape(
            coefficients=tuple(float(value) for value in found["coefficients"]),
            effects=tuple(float(value) for value in found["effects"]),
            extra=float(found["extra"]),
            rounds=int(found["rounds"]),
        )
    except (KeyError, TypeError, ValueError):
        return None
    return shape if _sound(shape) else None


def save(path: Path, key: str, shape: Shape) -> None:
    """Keep a shape beside the others of the file, whole or not at all; OSError when that cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"format": FORMAT, "shapes": _read(path) | {key: asdict(shape)}}
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        try:
            json.dump(content, file)
            file.close()
            os.replace(file.name, path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _read(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict) and content.get("format") == FORMAT and isinstance(content.get("shapes"), dict):
            return dict(content["shapes"])
    return {}


def _sound(shape: Shape) -> bool:
    numbers = (*shape.coefficients, *shape.effects)
    return (
        len(shape.coefficients) == 5
        and len(shape.effects) > 0
        and all(math.isfinite(number) and number >= 0 for number in numbers)
        and min(shape.coefficients[0], *shape.effects) > 0
        and -1 <= shape.extra <= 1
    )
