"""`soothsay trace`: what happened in each step, from a file that `--trace` wrote."""

import json
from pathlib import Path
from typing import Annotated

import typer

from soothsay.cli.guard import guard

trace = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="See what each step did.")


@trace.callback()
def _traces() -> None:
    """See what each step did, from a file that `--trace` wrote."""


@trace.command()
def show(
    file: Annotated[Path, typer.Argument(help="What `generate` or `bench run` wrote with --trace.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object instead.")] = False,
) -> None:
    """Print the answers, each token in the colour of where it came from, and what drafts were worth."""
    with guard():
        from soothsay.terminal import console
        from soothsay.trace import show
        from soothsay.trace.reader import read
        from soothsay.trace.summary import summarise

        found = read(file)
        summary = summarise(found)
        if as_json:
            print(json.dumps(show.as_object(summary)))
            return
        screen, colours = console(), show.styles(summary)
        for heading, text in show.answers(found, colours):
            screen.print(heading, style="dim", markup=False)
            screen.print(text, soft_wrap=True)
            screen.print()
        screen.print(show.legend(summary, colours))
        screen.print(show.table(summary))
        if found.cut:
            screen.print("the last line is only begun: the writer was interrupted", style="dim")
