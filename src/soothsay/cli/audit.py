"""`soothsay audit`: does it say what the model alone would say? Measured here, on your model and your prompts."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from soothsay.cli.guard import guard
from soothsay.cli.options import integers, numbers, words
from soothsay.errors import OptionError

PROMPTS = 6
EVERY_PERCENT = 5


def audit(
    model: Annotated[str, typer.Option(help="An alias, or the path of a .gguf file.")] = "smollm2-135m",
    draft: Annotated[str, typer.Option(metavar="auto|ngram|self|MODEL", help="Who guesses.")] = "auto",
    prompts: Annotated[
        Path | None,
        typer.Option(help="A file of prompts, as of `soothsay bench run`.", show_default="a few of our own"),
    ] = None,
    count: Annotated[int, typer.Option(help="How many prompts are answered.")] = PROMPTS,
    temperature: Annotated[
        list[str] | None,
        typer.Option(metavar="T,T", help="Temperatures; may be repeated.", show_default="0, 0.7 and 1"),
    ] = None,
    verify: Annotated[
        list[str] | None,
        typer.Option(metavar="RULE,RULE", help="Rules; may be repeated.", show_default="coupled, block and token"),
    ] = None,
    samples: Annotated[int, typer.Option(help="Draws from each law: four times as many see half as much.")] = 1000,
    max_tokens: Annotated[int, typer.Option(help="The length of the answers that must be the same.")] = 32,
    gamma: Annotated[str, typer.Option(metavar="N,N", help="Lengths of drafts to try.")] = "2,5",
    seed: Annotated[int, typer.Option(help="Other draws for another seed.")] = 7,
    threads: Annotated[int | None, typer.Option(help="Worker threads.", show_default="all cores")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the report as JSON.")] = None,
    html_file: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write it as a page.")] = None,
) -> None:
    """Check that drafts change no word and no probability, and say what would have been noticed.

    The same tokens: answers with and without drafts, at several lengths, alone and in a batch, on another number of
    threads. The same law: the next three tokens, drawn through the whole engine by each rule, beside the model's own
    probabilities. The exit status is 1 when there is a defect.
    """
    with guard():
        from soothsay.audit import show
        from soothsay.audit.page import page
        from soothsay.audit.run import Plan, units
        from soothsay.audit.run import audit as run
        from soothsay.audit.subject import load
        from soothsay.bench.prompts import read, spread
        from soothsay.terminal import console
        from soothsay.verify.rules import Rule

        plan = Plan(
            temperatures=numbers(temperature or ["0,0.7,1"], "temperature"),
            rules=[Rule(name) for text in verify or [",".join(Rule)] for name in words(text, "verify")],
            samples=samples,
            max_tokens=max_tokens,
            gammas=integers(gamma, "gamma"),
            seed=seed,
        )
        for file in (json_file, html_file):
            _check_writable(file)
        asked = spread(read(prompts), count)
        subject = load(model, draft, [prompt.text for prompt in asked], threads)
        with _progress(units(subject, plan)) as tick:
            report = run(subject, plan, tick)
        screen = console()
        screen.print(show.equality_table(report))
        if report.laws:
            screen.print(show.law_table(report))
        for line in show.verdict(report):
            screen.print(line, markup=False, soft_wrap=True)
        if json_file is not None:
            json_file.write_text(json.dumps(show.as_object(report), indent=1) + "\n", encoding="utf-8")
        if html_file is not None:
            html_file.write_text(page(report), encoding="utf-8")
        if report.stage is not None:
            raise typer.Exit(1)


def _check_writable(file: Path | None) -> None:
    """Say at once what would only be noticed at the end."""
    try:
        if file is not None:
            file.open("a").close()
    except OSError as error:
        raise OptionError(f"the report cannot be written to {str(file)!r}: {error.strerror}") from None


@contextmanager
def _progress(units: int) -> Iterator[Callable[[str], None]]:
    """Show a bar on a terminal, and elsewhere a line now and then, on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    screen = Console(stderr=True)
    bar, share = BarColumn(), TextColumn("{task.percentage:>3.0f} %")
    with Progress(
        bar, share, TimeRemainingColumn(), TextColumn("{task.description}"), console=screen, transient=True
    ) as progress:
        task = progress.add_task("loading", total=units)

        def tick(what: str) -> None:
            before = int(progress.tasks[task].percentage)
            progress.update(task, advance=1, description=what)
            now = int(progress.tasks[task].percentage)
            if not screen.is_terminal and now // EVERY_PERCENT > before // EVERY_PERCENT:
                print(f"{now} %: {what}", file=sys.stderr, flush=True)

        yield tick
