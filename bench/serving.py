"""Tokens a second of `soothsay serve` and of llama-server, plain and with its draft model, at 1 to 16 clients.

Usage: python -m bench.serving --llama-server PATH [--model MODEL] [--draft DRAFT] [--prompts FILE.jsonl] [--rounds 3]

The same files, clients, prompts and lengths, greedy, over the same HTTP. At each number of clients the servers take
turns, and who begins changes from round to round; those that wait are stopped by a signal. A ratio is soothsay's
tokens a second over those of the better of llama-server's two, round by round; a wait is from a request to its first
text. The last line printed is one JSON object; the status is 1 when a ratio is below the bar.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from statistics import median

import httpx

from bench.served import PATIENCE_SECONDS, Reply, Served, ask
from soothsay import hub
from soothsay.bench.prompts import Prompt, read, spread

OURS, PLAIN, DRAFTED = "soothsay", "llama-server", "llama-server with the draft model"
BARS = {1: 1.8, 2: 2.2, 4: 2.5, 8: 2.5, 16: 1.5}
"""By clients: what soothsay should reach of llama-server's tokens a second."""
LEAST_REQUESTS = 4
WARM_UP = Prompt("warm-up", "", "Write a function that adds two numbers.")


@dataclass(frozen=True, slots=True)
class Load:
    """What a server made of the requests of a round."""

    server: str
    clients: int
    tokens: int
    seconds: float
    first_token_seconds: float
    """The median of the requests."""

    @property
    def pace(self) -> float:
        return self.tokens / self.seconds


def main() -> int:
    options = _options()
    prompts = cycle(spread(read(options.prompts), 480))
    loads: list[Load] = []
    with ExitStack() as stack:
        servers = [stack.enter_context(server) for server in _servers(options)]
        for server in servers:
            _loaded(server, [WARM_UP] * 2, 2, options.max_tokens)
        for clients in options.clients:
            for turn in range(options.rounds):
                asked = list(islice(prompts, max(LEAST_REQUESTS, options.waves * clients)))
                for place in range(len(servers)):
                    server = servers[(turn + place) % len(servers)]
                    loads.append(_loaded(server, asked, clients, options.max_tokens))
                    print(_told(loads[-1]), file=sys.stderr, flush=True)
    return _print(loads)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-server", required=True, help="its program")
    parser.add_argument("--model", default="qwen2.5-coder-1.5b", help="an alias or the path of a .gguf file")
    parser.add_argument("--draft", default="qwen2.5-coder-0.5b", help="a draft model")
    parser.add_argument("--prompts", type=Path, help="a file of prompts; by default our own")
    parser.add_argument("--clients", type=int, nargs="+", default=list(BARS), help="how many at once")
    parser.add_argument("--waves", type=int, default=2, help="requests of each client in a round, at least")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each server at each number of clients")
    parser.add_argument("--max-tokens", type=int, default=128, help="length of the answers")
    parser.add_argument("--context", type=int, default=1024, help="tokens of a prompt and its answer")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="worker threads of each server")
    parser.add_argument("--spec-draft-n-max", type=int, default=3, help="llama-server's drafts; 3 is its default")
    return parser.parse_args()


def _servers(options: argparse.Namespace) -> Iterator[Served]:
    model, draft = str(hub.resolve(options.model)), str(hub.resolve(options.draft))
    most, context, threads = max(options.clients), options.context, str(options.threads)
    at = ["--port", "{port}", "--threads", threads]
    ours = ["--model", model, "--draft", draft, "--context", str(context), "--max-batch", str(most)]
    theirs = ["--model", model, "--ctx-size", str(context * most), "--parallel", str(most), "--no-ui"]
    guess = ["--spec-type", "draft-simple", "--spec-draft-n-max", str(options.spec_draft_n_max)]
    drafted = ["--spec-draft-model", draft, "--spec-draft-threads", threads, *guess]
    yield Served(OURS, [str(Path(sys.executable).with_name("soothsay")), "serve", *ours, *at])
    for name, more in ((PLAIN, []), (DRAFTED, drafted)):
        yield Served(name, [options.llama_server, *theirs, "--threads-batch", threads, *at, *more])


def _loaded(server: Served, prompts: Sequence[Prompt], clients: int, max_tokens: int) -> Load:
    with server.awake() as url:
        start = time.perf_counter()
        replies = asyncio.run(_asked(url, prompts, clients, max_tokens))
        seconds = time.perf_counter() - start
    waits = median(reply.first_token_seconds for reply in replies)
    return Load(server.name, clients, sum(reply.tokens for reply in replies), seconds, waits)


async def _asked(url: str, prompts: Sequence[Prompt], clients: int, max_tokens: int) -> list[Reply]:
    """Each client asks, waits for the whole answer, and takes the next prompt."""
    left, replies = iter(prompts), []

    async def work(client: httpx.AsyncClient) -> None:
        for prompt in left:
            message = {"role": "user", "content": prompt.text}
            body = {"messages": [message], "max_tokens": max_tokens, "temperature": 0}
            replies.append(await ask(client, url, body))

    async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
        await asyncio.gather(*(work(client) for _ in range(clients)))
    return replies


def _told(load: Load) -> str:
    return f"{load.clients:3} {load.server:34} {load.pace:7.1f} tokens/s, first token {load.first_token_seconds:6.2f} s"


def _print(loads: Sequence[Load]) -> int:
    print(f"{'clients':>7} {OURS:>10} {'plain':>8} {'drafted':>8} {'ratio':>7} {'bar':>5} {'first token, ratio':>19}")
    ratios, waits = {}, {}
    for clients in dict.fromkeys(load.clients for load in loads):
        ours, plain, drafted = (
            [load for load in loads if (load.clients, load.server) == (clients, name)]
            for name in (OURS, PLAIN, DRAFTED)
        )
        rounds = list(zip(ours, plain, drafted, strict=True))
        ratios[clients] = median(a.pace / max(b.pace, c.pace) for a, b, c in rounds)
        best = [(a, b if b.pace > c.pace else c) for a, b, c in rounds]
        waits[clients] = median(a.first_token_seconds / b.first_token_seconds for a, b in best)
        paces = [median(load.pace for load in mine) for mine in (ours, plain, drafted)]
        print(
            f"{clients:7} {paces[0]:10.1f} {paces[1]:8.1f} {paces[2]:8.1f} {ratios[clients]:7.2f} "
            f"{BARS.get(clients, 1.0):5.1f} {waits[clients]:19.2f}"
        )
    figures = {"ratios": ratios, "first_token_ratios": waits, "loads": [asdict(load) for load in loads]}
    print(json.dumps(figures))
    return 1 if any(ratio < BARS.get(clients, 1.0) for clients, ratio in ratios.items()) else 0


if __name__ == "__main__":
    sys.exit(main())
