"""Tables and figures on a terminal, the same everywhere."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

WIDTH = 120
"""Of tables that go to a file."""


def console() -> Console:
    """Give standard output, wide enough for a table when it is not a terminal."""
    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(highlight=False, width=WIDTH)


def table(title: str, heads: Sequence[str], caption: str | None = None) -> Table:
    """Begin a table: names at the left, figures at the right."""
    made = Table(title=title, caption=caption, title_style="", caption_style="dim")
    for place, head in enumerate(heads):
        made.add_column(head, justify="left" if place == 0 else "right")
    return made


def number(value: float | None, digits: int = 2) -> str:
    """Write a figure; what is not known is a dash."""
    return "-" if value is None else f"{value:.{digits}f}"
