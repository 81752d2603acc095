"""The command line: one file a verb, and nothing heavy loaded before a verb has its options.

Exit status: 0, 1 for an error, 2 for a wrong option, 130 for an interrupt.
"""

import sys
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated

import typer

from soothsay.cli.audit import audit
from soothsay.cli.bench import bench
from soothsay.cli.generate import generate
from soothsay.cli.serve import serve
from soothsay.cli.trace import trace

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
app.command()(generate)
app.command()(serve)
app.command()(audit)
app.add_typer(bench, name="bench")
app.add_typer(trace, name="trace")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"soothsay {version('soothsay')}")
        raise typer.Exit


@app.callback()
def soothsay(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Make a large language model answer sooner, without changing what it says."""


def main() -> None:
    """Run the command line; models speak UTF-8, whatever the locale says."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8")
    app()
