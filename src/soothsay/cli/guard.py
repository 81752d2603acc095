"""Where an error becomes a line and an exit status."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from soothsay.errors import OptionError, SoothsayError


@contextmanager
def guard() -> Iterator[None]:
    """Turn what soothsay raises on purpose into one line on standard error; typer sees to interrupts and pipes."""
    try:
        yield
    except SoothsayError as error:
        print(f"soothsay: error: {error}", file=sys.stderr)
        raise typer.Exit(2 if isinstance(error, OptionError) else 1) from None
