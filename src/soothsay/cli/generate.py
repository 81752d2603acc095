"""`soothsay generate`: one prompt in, one answer out, streamed."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from soothsay.cli.guard import guard
from soothsay.cli.options import biases, gamma_of, integers
from soothsay.cli.tracing import tracing
from soothsay.errors import ContextFull, EmptyPrompt, OptionError, PromptError

if TYPE_CHECKING:
    from rich.console import Console

    from soothsay import Completion, Grammar, Piece, TokenLogprob

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
    sample: Annotated[int, typer.Option(help="Which of the answers that the seed gives.")] = 0,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="End before this text; may be repeated.")
    ] = None,
    stop_ids: Annotated[
        str | None, typer.Option(metavar="ID,ID", help="End at any of these tokens, and do not print it.")
    ] = None,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Go on where the model would end its answer.")
    ] = False,
    min_tokens: Annotated[int, typer.Option(help="Draw no token that ends the answer before so many.")] = 0,
    repetition_penalty: Annotated[
        float, typer.Option(help="Make tokens of prompt and answer unlikelier by this factor; 1 is off.")
    ] = 1.0,
    frequency_penalty: Annotated[
        float, typer.Option(help="Take this from a logit for each time that the answer has the token.")
    ] = 0.0,
    presence_penalty: Annotated[float, typer.Option(help="The same, once for each token that it has at all.")] = 0.0,
    logit_bias: Annotated[
        list[str] | None, typer.Option(metavar="ID=BIAS", help="Add this to a token's logit; may be repeated.")
    ] = None,
    banned_tokens: Annotated[str | None, typer.Option(metavar="ID,ID", help="Never draw these tokens.")] = None,
    allowed_tokens: Annotated[str | None, typer.Option(metavar="ID,ID", help="Draw only these tokens.")] = None,
    json_schema: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Answer in JSON that this JSON Schema accepts.")
    ] = None,
    regex: Annotated[str | None, typer.Option(metavar="PATTERN", help="Answer what matches this, as a whole.")] = None,
    grammar: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Answer what follows this grammar, in Lark's notation.")
    ] = None,
    logprobs: Annotated[
        int | None, typer.Option(metavar="N", help="With --json: log-probabilities of each token and the N likeliest.")
    ] = None,
    logprobs_of: Annotated[
        str, typer.Option(metavar="model|sampler", help="Log-probabilities before all these options, or after them.")
    ] = "model",
    n: Annotated[int, typer.Option("-n", "--n", help="Draw N answers; with --json one object a line.")] = 1,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the prompt as it is, without a chat template.")] = False,
    system: Annotated[str | None, typer.Option(help="The system message.")] = None,
    verify: Annotated[
        str, typer.Option(metavar="coupled|block|token", help="The rule that keeps the answer the model's own.")
    ] = "coupled",
    threads: Annotated[int | None, typer.Option(help="Worker threads.", show_default="all cores")] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write what each step did; `soothsay trace show` reads it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the text.")] = False,
) -> None:
    """Answer a prompt: stream the text, then one line of figures.

    In a terminal, accepted drafts are in another colour. Elsewhere the text goes to standard output and the figures to
    standard error.
    """
    with guard():
        from soothsay import Engine, Sampling

        text = _given(prompt) if prompt is not None else _read(raw)
        sampling = Sampling(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            seed=seed,
            sample=sample,
            max_tokens=max_tokens,
            stop=tuple(stop or ()),
            stop_ids=_ids(stop_ids, "stop-ids"),
            ignore_eos=ignore_eos,
            min_tokens=min_tokens,
            repetition_penalty=repetition_penalty,
            frequency_penalty=frequency_penalty,
            presence_penalty=presence_penalty,
            logit_bias=biases(logit_bias or ()),
            banned_tokens=_ids(banned_tokens, "banned-tokens"),
            allowed_tokens=None if allowed_tokens is None else _ids(allowed_tokens, "allowed-tokens"),
            grammar=_grammar(json_schema, regex, grammar),
            logprobs=logprobs,
            logprobs_of=logprobs_of,  # type: ignore[arg-type]  # it is checked there
        )
        if logprobs is not None and not as_json:
            raise OptionError("logprobs has no place in a text; give --json too")
        options = {"model": model, "draft": draft, "gamma": gamma_of(gamma), "verify": verify}
        with tracing(trace, options) as tracer:
            engine = Engine(model, draft=draft, gamma=gamma_of(gamma), verify=verify, threads=threads, trace=tracer)
            if n != 1:
                _show_all(
                    lambda: engine.samples(text, n, sampling, raw=raw, system=system), options if as_json else None
                )
            elif as_json:
                _print_json(engine.stream(text, sampling, raw=raw, system=system), options)
            else:
                _show(engine.stream(text, sampling, raw=raw, system=system))


def _grammar(json_schema: Path | None, regex: str | None, lark: Path | None) -> "Grammar | None":
    from soothsay import Grammar

    given = [
        *([Grammar.json_schema(_contents(json_schema, "json-schema"))] if json_schema is not None else []),
        *([Grammar.regex(regex)] if regex is not None else []),
        *([Grammar.lark(_contents(lark, "grammar"))] if lark is not None else []),
    ]
    if len(given) > 1:
        raise OptionError("json-schema, regex and grammar exclude each other; give one of them")
    return given[0] if given else None


def _contents(file: Path, option: str) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise OptionError(f"{option} cannot be read from {str(file)!r}: {reason}") from None


def _ids(text: str | None, option: str) -> tuple[int, ...]:
    return () if text is None else tuple(integers(text, option))


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


def _show_all(ask: Callable[[], Sequence["Completion"]], options: dict[str, Any] | None) -> None:
    """Print several answers, also when a full context ends one of them with an error.

    As JSON, with `options`, one object a line; else each with its figures below.
    """
    answers: Sequence[Completion] = ()
    try:
        answers = ask()
    except ContextFull as full:
        answers = full.completions
        raise
    finally:
        for place, done in enumerate(answers, start=1):
            if options is not None:
                print(json.dumps(_report(done) | options))
            else:
                print(done.text, flush=True)
                print(f"[{place} of {len(answers)}] {_figures(done)}", file=sys.stderr)


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
        "sample": done.sample,
        **({"logprobs": [_shown(entry) for entry in done.logprobs]} if done.logprobs is not None else {}),
        "seconds": stats.seconds,
        "tokens_per_second": stats.tokens_per_second,
        "first_token_seconds": stats.first_token_seconds,
        "steps": stats.steps,
        "drafted": stats.drafted,
        "accepted": stats.accepted,
        "tokens_per_step": stats.tokens_per_step,
        "acceptance_rate": stats.acceptance_rate,
    }


def _shown(entry: "TokenLogprob") -> dict[str, Any]:
    return {"token": entry.token, "logprob": entry.logprob, "top": [list(pair) for pair in entry.top]}
