"""`soothsay bench`: what passes cost here, and what drafts save."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from soothsay.cli.guard import guard
from soothsay.cli.options import gamma_of, integers, words
from soothsay.cli.tracing import tracing

bench = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Measure it yourself.")

MODEL = typer.Option(help="An alias, or the path of a .gguf file.")
THREADS = typer.Option(help="Worker threads.", show_default="all cores")
JSON = typer.Option("--json", help="Print the JSON line alone, without the table.")


@bench.command()
def cost(
    model: Annotated[str, MODEL] = "smollm2-135m",
    context: Annotated[int, typer.Option(help="Tokens in the cache before the pass.")] = 128,
    rows: Annotated[
        str, typer.Option(metavar="1,2,...", help="Rows of a pass; one row is always among them.")
    ] = "1,2,3,4,5,6,8,16",
    rounds: Annotated[int, typer.Option(help="How often each is timed; figures are medians.")] = 15,
    threads: Annotated[int | None, THREADS] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Time passes over several rows, beside what the machine could do at most.

    The last line is JSON. v is the time of a pass over that of one row; the limit is the larger of bytes over the
    bandwidth of a plain read and products over the peak of the dot product instruction, both measured in the same run.
    """
    with guard():
        from soothsay.bench import report
        from soothsay.bench.cost import measure
        from soothsay.terminal import console

        found = measure(model, context=context, rows=integers(rows, "rows"), threads=threads, rounds=rounds)
        if not as_json:
            console().print(report.cost_table(found))
        print(json.dumps(report.cost_object(found)))


@bench.command()
def run(
    model: Annotated[str, MODEL] = "smollm2-135m",
    draft: Annotated[str, typer.Option(metavar="auto|ngram|self|MODEL", help="Who guesses.")] = "auto",
    gamma: Annotated[str, typer.Option(metavar="auto|N", help="How many tokens are guessed a step.")] = "auto",
    prompts: Annotated[
        Path | None,
        typer.Option(
            help='A file with one JSON object a line: {"question_id": 1, "category": "coding", "turns": ["..."]}, the '
            "form of Spec-Bench; the first turn is asked.",
            show_default="a few of our own",
        ),
    ] = None,
    categories: Annotated[
        str | None, typer.Option(metavar="A,B", help="Ask prompts of these alone.", show_default="all")
    ] = None,
    count: Annotated[int | None, typer.Option(help="The first N prompts of each.", show_default="all")] = None,
    max_tokens: Annotated[int, typer.Option(help="An answer's length in tokens, at most.")] = 128,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token.")] = 0.0,
    seed: Annotated[int, typer.Option(help="The same for both ways, so that their answers can be compared.")] = 7,
    verify: Annotated[
        str, typer.Option(metavar="coupled|block|token", help="The rule; only coupled owes plain decoding its tokens.")
    ] = "coupled",
    batch: Annotated[int, typer.Option(help="Answer N prompts at a time; a batch is then what is timed.")] = 1,
    rounds: Annotated[int, typer.Option(help="How often all prompts are asked; a prompt counts as its median.")] = 1,
    threads: Annotated[int | None, THREADS] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write what each step with drafts did, for `soothsay trace`.")
    ] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Answer prompts with and without drafts, in turn, and compare the two.

    The last line is JSON; one line a prompt goes to standard error. The exit status is 1 when an answer differs from
    plain decoding's where the rule promises the same. A speedup is plain seconds over speculative ones, from the first
    emitted token to the last.
    """
    with guard():
        from soothsay import Sampling
        from soothsay.bench import report
        from soothsay.bench.prompts import batches, read
        from soothsay.bench.run import contest
        from soothsay.terminal import console

        asked = batches(read(prompts, words(categories, "categories"), count), batch)
        sampling = Sampling(temperature=temperature, seed=seed, max_tokens=max_tokens)
        options = {"model": model, "draft": draft, "gamma": gamma_of(gamma), "verify": verify}
        with tracing(trace, options) as tracer:
            ways = contest(model, draft, gamma_of(gamma), threads, verify, tracer)
            ways.warm_up()
            pairs = []
            for pair in ways.pairs(asked, sampling, rounds):
                pairs.append(pair)
                print(report.line(pair), file=sys.stderr, flush=True)
        if not as_json:
            console().print(report.run_table(pairs))
        found = report.run_object(pairs, model=model, draft=draft, temperature=temperature, verify=verify)
        print(json.dumps(found))
        if found["identical"] is False:
            raise typer.Exit(1)
