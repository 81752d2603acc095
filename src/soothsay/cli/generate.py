"""`soothsay generate`: one prompt in, one answer out, streamed."""

import json
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from soothsay.cli.guard import guard
from soothsay.cli.options import gamma_of
from soothsay.errors import EmptyPrompt, PromptError

if TYPE_CHECKING:
    from rich.console import Console

    from soothsay import Completion, Piece

ACCEPTED_STYLE = "green"


def generate(
    prompt: Annotated[str | None, typer.Argument(help="The prompt; read from standard input when not given.")] = None,
    model: Annotated[str, typer.Option(help="An alias, or the path of a .gguf file.")] = "smollm2-135m",
    draft: Annotated[
        str, typer.Option(metavar="auto|none|ngram|self|MODEL", help="Who guesses; auto takes the best at hand.")
    ] = "auto",
    gamma: Annotated[
        str, typer.Option(metavar="auto|N", help="How many tokens are guessed a step; auto measures what pays.")
    ] = "auto",
    max_tokens: Annotated[int, typer.Option(help="The answer's length in tokens, at most.")] = 256,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token.")] = 0.0,
    top_k: Annotated[int, typer.Option(help="Draw from the K likeliest tokens; 0 is off.")] = 0,
    top_p: Annotated[float, typer.Option(help="Draw from the likeliest tokens of this mass; 1 is off.")] = 1.0,
    min_p: Annotated[float, typer.Option(help="Draw from tokens this likely against the likeliest; 0 is off.")] = 0.0,
    seed: Annotated[
        int | None, typer.Option(help="The same seed gives the same answer.", show_default="random")
    ] = None,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="End before this text; may be repeated.")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the prompt as it is, without a chat template.")] = False,
    system: Annotated[str | None, typer.Option(help="The system message.")] = None,
    verify: Annotated[
        str, typer.Option(metavar="coupled|block|token", help="The rule that keeps the answer the model's own.")
    ] = "coupled",
    threads: Annotated[int | None, typer.Option(help="Worker threads.", show_default="all cores")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the text.")] = False,
) -> None:
    """Answer a prompt: stream the text, then one line of figures.

    In a terminal, accepted drafts are in another colour. Elsewhere the text goes to standard output and the figures to
    standard error.
    """
    with guard():
        from soothsay import Engine, Sampling

        text = _given(prompt) if prompt is not None else _read(raw)
        sampling = Sampling(temperature, top_k, top_p, min_p, seed, max_tokens, tuple(stop or ()))
        engine = Engine(model, draft=draft, gamma=gamma_of(gamma), verify=verify, threads=threads)
        pieces = engine.stream(text, sampling, raw=raw, system=system)
        if as_json:
            options = {"model": model, "draft": draft, "gamma": gamma_of(gamma), "verify": verify}
            _print_json(pieces, options)
        else:
            _show(pieces)


def _given(prompt: str) -> str:
    return _text(os.fsencode(prompt), "the prompt")


def _read(raw: bool) -> str:
    """Read standard input; a chat message goes without the newline that ends it, a raw prompt is taken to the byte."""
    if sys.stdin.isatty():
        print("soothsay: type the prompt, then Ctrl-D", file=sys.stderr)
    text = _text(sys.stdin.buffer.read(), "standard input")
    return text if raw else text.removesuffix("\n")


def _text(data: bytes, source: str) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise PromptError(f"{source} has byte 0x{data[error.start]:02x} at {error.start}; it must be UTF-8") from None
    if not text:
        raise EmptyPrompt(f"{source} is empty; a prompt needs at least one character")
    return text


def _print_json(pieces: Iterable["Piece"], options: dict[str, Any]) -> None:
    """Run to the end, and print what there is even when a full context ends it with an error."""
    done = None
    try:
        for piece in pieces:
            done = piece.completion
    finally:
        if done is not None:
            print(json.dumps(_report(done) | options))


def _show(pieces: Iterable["Piece"]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    before, after = _codes(console, ACCEPTED_STYLE)
    done = None
    try:
        for piece in pieces:
            accepted = piece.source == "draft" and piece.text
            print(f"{before}{piece.text}{after}" if accepted else piece.text, end="", flush=True)
            done = piece.completion
    finally:
        print(flush=True)
        if done is not None:
            figures = console if sys.stdout.isatty() else Console(stderr=True, highlight=False)
            figures.out(_figures(done), style="dim")


def _codes(console: "Console", style: str) -> tuple[str, str]:
    """Give what starts and what ends a style; nothing where there are no colours. Printing by rich expands tabs."""
    with console.capture() as capture:
        console.out("|", style=style, end="")
    before, after = capture.get().split("|")
    return before, after


def _figures(done: "Completion") -> str:
    stats = done.stats
    return ", ".join(
        [
            f"{stats.tokens} tokens in {stats.seconds:.2f} s",
            f"first after {stats.first_token_seconds:.2f} s",
            *([f"then {stats.tokens_per_second:.1f} tokens/s"] if stats.tokens_per_second is not None else []),
            f"{stats.tokens_per_step:.2f} tokens a step",
            *([f"{stats.accepted} of {stats.drafted} drafted tokens accepted"] if stats.drafted else []),
            f"seed {done.seed}",
        ]
    )


def _report(done: "Completion") -> dict[str, Any]:
    stats = done.stats
    return {
        "text": done.text,
        "token_ids": list(done.tokens),
        "tokens": stats.tokens,
        "finish_reason": done.finish_reason,
        "seed": done.seed,
        "seconds": stats.seconds,
        "tokens_per_second": stats.tokens_per_second,
        "first_token_seconds": stats.first_token_seconds,
        "steps": stats.steps,
        "drafted": stats.drafted,
        "accepted": stats.accepted,
        "tokens_per_step": stats.tokens_per_step,
        "acceptance_rate": stats.acceptance_rate,
    }
