"""An audit's report for people at a terminal, and as an object for machines."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from soothsay.audit.equality import Equality
from soothsay.audit.fit import LEVEL, POWER
from soothsay.audit.law import LawTest
from soothsay.audit.run import Report
from soothsay.audit.stages import STAGES
from soothsay.terminal import number, table

SCHEMA = 1
SHOWN_DEFECTS = 12


@dataclass(frozen=True, slots=True)
class WayTotal:
    """One way of answering, all temperatures and options together."""

    way: str
    answers: int
    tokens: int
    drafted: int
    accepted: int
    differences: int


def totals(equalities: Sequence[Equality]) -> list[WayTotal]:
    """Sum up by way."""
    return [
        _total(way, [same for same in equalities if same.way == way])
        for way in dict.fromkeys(same.way for same in equalities)
    ]


def equality_table(report: Report) -> Table:
    """Draw how many answers were compared with plain decoding's, and how many differed."""
    drawn = table(
        "the same tokens as one at a time, without an engine",
        ("who drafts", "answers", "tokens", "drafted", "accepted", "different"),
        caption=f"at temperatures {_list(report.plan.temperatures)}, with no options and with all",
    )
    for one in totals(report.equalities):
        drawn.add_row(one.way, *map(str, (one.answers, one.tokens, one.drafted, one.accepted, one.differences)))
    return drawn


def law_table(report: Report) -> Table:
    """Draw the fits of the joint laws."""
    heads = (
        "rule",
        "drafter",
        "T",
        "options",
        "runs",
        "cells",
        "p",
        "variation",
        "at most",
        "caught",
        "accepted",
        "drafts' p",
    )
    drawn = table(
        "the law of the next 3 tokens beside the model's own probabilities",
        heads,
        caption=f"variation: half the sum of |seen - expected|; at most: the true one, with confidence {POWER}; "
        f"caught: one of this size fails with a chance of {POWER}; all tests together at {LEVEL} (Holm)",
    )
    for one in report.laws:
        drawn.add_row(*_law_cells(one))
    return drawn


def verdict(report: Report) -> Iterator[str]:
    """Give the lines that say what it all amounts to."""
    answers, tokens = (sum(getattr(one, name) for one in report.equalities) for name in ("answers", "tokens"))
    smallest = min(one.fit.p_value for one in report.noise)
    yield f"random numbers: {len(report.noise)} tests of independence, the smallest p {smallest:.2g}"
    if report.ties:
        yield f"{report.ties} differences that rounding explains (numeric ties)"
    if report.stage is None:
        yield f"no defect: {answers} answers, {tokens} tokens, as without drafts{_power(report)}"
        return
    yield f"DEFECT at the stage {report.stage!r}: {STAGES[report.stage]}"
    for defect in report.defects[:SHOWN_DEFECTS]:
        yield f"  {defect.stage}: {defect.what}"
    if len(report.defects) > SHOWN_DEFECTS:
        yield f"  and {len(report.defects) - SHOWN_DEFECTS} more"


def as_object(report: Report) -> dict[str, Any]:
    """Give the report for machines; what is infinite is null there."""
    found = {"schema": SCHEMA, "ok": report.stage is None, "stage": report.stage, "ties": report.ties} | asdict(report)
    return {name: _finite(value) for name, value in found.items()}


def _power(report: Report) -> str:
    if not report.laws:
        return ""
    caught = max(one.fit.caught for one in report.laws)
    return f"; {len(report.laws)} laws fit, where a total variation of {caught:.3f} would have failed with {POWER}"


def _total(way: str, same: Sequence[Equality]) -> WayTotal:
    sums = {name: sum(getattr(one, name) for one in same) for name in ("answers", "tokens", "drafted", "accepted")}
    return WayTotal(way, **sums, differences=sum(len(one.differences) for one in same))


def _law_cells(one: LawTest) -> tuple[str, ...]:
    return (
        one.rule,
        one.drafter,
        f"{one.temperature:g}",
        one.options,
        f"{one.fit.runs}{' (stopped)' if one.stopped else ''}",
        str(one.fit.cells),
        f"{one.fit.p_value:.2g}",
        number(one.fit.variation, 3),
        number(one.fit.bound, 3),
        number(one.fit.caught, 3),
        number(one.accepted / one.drafted if one.drafted else None),
        "-" if one.drafts is None else f"{one.drafts.p_value:.2g}",
    )


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {name: _finite(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_finite(inner) for inner in value]
        case float() if not math.isfinite(value):
            return None
    return value
