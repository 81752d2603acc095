"""`soothsay serve`: a model behind OpenAI's interface."""

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from soothsay.cli.guard import guard
from soothsay.cli.options import gamma_of
from soothsay.cli.tracing import tracing
from soothsay.errors import OptionError

KEPT_PREFIXES = 64
"""Finished answers that are kept for prompts that continue them, as far as the cache has room."""


def serve(
    model: Annotated[str, typer.Option(help="An alias, or the path of a .gguf file.")] = "smollm2-135m",
    draft: Annotated[
        str, typer.Option(metavar="auto|none|ngram|self|MODEL", help="Who guesses; auto takes the best at hand.")
    ] = "auto",
    gamma: Annotated[
        str, typer.Option(metavar="auto|N", help="How many tokens are guessed a step; auto measures what pays.")
    ] = "auto",
    verify: Annotated[
        str, typer.Option(metavar="coupled|block|token", help="The rule that keeps answers the model's own.")
    ] = "coupled",
    host: Annotated[str, typer.Option(help="The address to listen on; 127.0.0.1 is this machine alone.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on; 0 takes any that is free.")] = 8000,
    api_key: Annotated[
        list[str] | None,
        typer.Option(envvar="SOOTHSAY_API_KEY", help="A key that clients must show; may be repeated."),
    ] = None,
    max_batch: Annotated[int, typer.Option(help="Answers that run at once.")] = 8,
    max_queue: Annotated[int, typer.Option(help="Answers that wait for their turn; more are refused.")] = 64,
    context: Annotated[
        int | None, typer.Option(help="Tokens of a prompt and its answer, at most.", show_default="the model's own")
    ] = None,
    cache_tokens: Annotated[
        int | None,
        typer.Option(help="Tokens in the cache, of all answers together.", show_default="what they need"),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds that an answer may take, its wait included.", show_default="no limit")
    ] = None,
    grace: Annotated[float, typer.Option(help="Seconds that answers have to end in when the server must.")] = 30.0,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write what each step did; `soothsay trace show` reads it.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Worker threads.", show_default="all cores")] = None,
) -> None:
    """Serve a model over HTTP in OpenAI's form; /metrics has its figures.

    One JSON line a request goes to standard error. SIGTERM and Ctrl-C let the answers on their way end.
    """
    with guard():
        _check(max_batch, max_queue, grace, timeout, api_key or [])
        from soothsay import Capacity
        from soothsay.server.run import listen, load, server
        from soothsay.server.service import Limits

        logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        listener = listen(host, port)
        capacity = Capacity(max_batch, context, cache_tokens, kept_prefixes=KEPT_PREFIXES)
        limits = Limits(capacity, max_queue, grace_seconds=grace, deadline_seconds=timeout)
        options = {"model": model, "draft": draft, "gamma": gamma_of(gamma), "verify": verify}
        with tracing(trace, options) as tracer:
            service = load(
                model,
                draft=draft,
                gamma=gamma_of(gamma),
                verify=verify,
                threads=threads,
                limits=limits,
                trace=tracer,
            )
            if not api_key and host not in ("127.0.0.1", "::1", "localhost"):
                print(
                    f"soothsay: warning: anyone who reaches {host} may use this server; see --api-key", file=sys.stderr
                )
            server(service, listener, api_key or [], lambda address: _announce(service.name, address)).run([listener])


def _check(max_batch: int, max_queue: int, grace: float, timeout: float | None, keys: list[str]) -> None:
    if not 1 <= max_batch <= 256:
        raise OptionError(f"max-batch is {max_batch}; it must be from 1 to 256")
    if not 0 <= max_queue <= 65536:
        raise OptionError(f"max-queue is {max_queue}; it must be from 0 to 65536")
    if not 0 <= grace <= 3600:
        raise OptionError(f"grace is {grace}; it must be from 0 to 3600 seconds")
    if timeout is not None and not 0 < timeout <= 86_400:
        raise OptionError(f"timeout is {timeout}; it must be above 0 and up to 86400 seconds")
    if any(not key or not key.isascii() or not key.isprintable() or " " in key for key in keys):
        raise OptionError("an API key must be printable ASCII without spaces, and not empty")


def _announce(name: str, address: str) -> None:
    print(f"soothsay: serving {name} on {address}", file=sys.stderr, flush=True)
