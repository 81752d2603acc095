"""A trace for people: the text, coloured by where each token came from, and what drafts were worth."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from soothsay.terminal import number
from soothsay.terminal import table as begin_table
from soothsay.trace.reader import Trace, Turn
from soothsay.trace.summary import TraceSummary

OWN_STYLES = {"plain": "", "bonus": "yellow", "correction": "red"}
DRAFTER_STYLES = ("green", "cyan", "magenta", "blue")
SHOWN_POSITIONS = 8


def styles(summary: TraceSummary) -> dict[str, str]:
    """Give each origin its colour: one for each drafter, and three for the target's own tokens."""
    colours = {name: DRAFTER_STYLES[place % len(DRAFTER_STYLES)] for place, name in enumerate(sorted(summary.drafters))}
    return OWN_STYLES | colours


def answers(trace: Trace, colours: Mapping[str, str]) -> Iterator[tuple[str, Text]]:
    """Give a heading and the coloured text of each request, in order."""
    turns = defaultdict[int, list[Turn]](list)
    for step in trace.steps:
        for turn in step.turns:
            turns[turn.request].append(turn)
    for request, mine in sorted(turns.items()):
        yield _heading(trace, request, mine), _text(mine, colours)


def legend(summary: TraceSummary, colours: Mapping[str, str]) -> Text:
    """Give how many tokens came from where, each in its colour."""
    parts = [Text(f"{name} {count}", style=colours.get(name, "")) for name, count in summary.origins.items()]
    return Text.assemble(Text(f"{summary.tokens} tokens: "), Text(", ").join(parts))


def table(summary: TraceSummary) -> Table:
    """Draw what each drafter's guesses were worth."""
    parts = ("draft", summary.draft_seconds), ("verify", summary.verify_seconds), ("sample", summary.sample_seconds)
    seconds = ", ".join(f"{name} {spent:.2f} s" for name, spent in parts)
    made = begin_table(
        f"{summary.requests} requests, {summary.steps} steps, {number(summary.tokens_per_step)} tokens a step",
        ("drafter", "steps", "drafted", "accepted", "rate", "by position"),
        caption=seconds,
    )
    for name, one in summary.drafters.items():
        places = " ".join(f"{share:.2f}" for share in one.acceptance_by_position[:SHOWN_POSITIONS])
        made.add_row(
            _plain(name), str(one.steps), str(one.drafted), str(one.accepted), f"{one.acceptance_rate:.2f}", places
        )
    return made


def as_object(summary: TraceSummary) -> dict[str, Any]:
    """Give the same for machines."""
    found = asdict(summary)
    for name, one in summary.drafters.items():
        found["drafters"][name]["acceptance_rate"] = one.acceptance_rate
    return found


def _heading(trace: Trace, request: int, turns: list[Turn]) -> str:
    said = [f"request {request}"]
    if (asked := trace.requests.get(request)) is not None:
        said += [f"{asked.prompt_tokens} prompt tokens", f"temperature {asked.temperature:g}", f"seed {asked.seed}"]
        said += [f"sample {asked.sample}"] if asked.sample else []
    return ", ".join([*said, f"end: {_plain(turns[-1].finish_reason or 'not reached')}"])


def _text(turns: list[Turn], colours: Mapping[str, str]) -> Text:
    text = Text()
    for turn in turns:
        for piece, origin in zip(turn.texts, turn.origins, strict=True):
            text.append(_plain(piece), style=colours.get(origin, ""))
    return text


def _plain(text: str) -> str:
    """Leave out what could steer a terminal: the file may come from anywhere."""
    return "".join(char for char in text if char.isprintable() or char in "\n\t")
