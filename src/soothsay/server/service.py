"""What the endpoints share: the engine behind its runner, the words of its model, and the answers on their way."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from fastapi import Request as HttpRequest
from starlette.concurrency import run_in_threadpool

from soothsay.completion import Completion
from soothsay.core import Capacity
from soothsay.engine import Engine
from soothsay.load import Loaded
from soothsay.server.bodies import Chance
from soothsay.server.mailbox import Letter, Mailbox
from soothsay.server.metrics import Metrics
from soothsay.server.options import sampling, vet, wish
from soothsay.server.recent import Recent
from soothsay.server.refusals import BadRequest, ClientGone, NotFound, blamed
from soothsay.server.runner import Order, Runner


@dataclass(frozen=True, slots=True)
class Limits:
    """What one server takes on: its engine's capacity, answers that wait, and bytes of a body.

    An answer has `deadline_seconds`, its wait included (None: as long as it takes), and `grace_seconds` to end in once
    the server must.
    """

    capacity: Capacity = field(default_factory=lambda: Capacity(max_batch=8, kept_prefixes=64))
    max_queue: int = 64
    body_bytes: int = 8 << 20
    grace_seconds: float = 30.0
    deadline_seconds: float | None = None

    @property
    def most_answers(self) -> int:
        """Answers that run or wait, at most."""
        return self.capacity.max_batch + self.max_queue

    def deadline(self, asked: float | None) -> float | None:
        """Give the seconds that an answer has when its request asks for so many."""
        return min((one for one in (asked, self.deadline_seconds) if one is not None), default=None)


class Answers:
    """The answers to one request, until `close`."""

    def __init__(self, runner: Runner, orders: Callable[[Mailbox], Sequence[Order]]) -> None:
        """Place the orders, all or none."""
        self._runner = runner
        self._mailbox = Mailbox()
        self._orders = orders(self._mailbox)
        self.count = len(self._orders)
        runner.submit(self._orders)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what has not ended by itself."""
        self._runner.cancel(self._orders)

    async def take(self) -> list[Letter]:
        """Wait for the next pieces."""
        return await self._mailbox.take()

    async def completions(self) -> list[Completion]:
        """Wait for all of the answers."""
        found: dict[int, Completion] = {}
        while len(found) < self.count:
            for letter in await self.take():
                if letter.piece.completion is not None:
                    found[letter.answer] = letter.piece.completion
        return [found[index] for index in range(self.count)]


@dataclass(frozen=True)
class Service:
    """A served model."""

    engine: Engine
    loaded: Loaded
    name: str
    fingerprint: str
    limits: Limits
    runner: Runner
    metrics: Metrics
    recent: Recent
    started: int = field(default_factory=lambda: int(time.time()))

    def check_model(self, asked: str | None) -> None:
        """Refuse a model that is not the served one."""
        if asked is not None and asked != self.name:
            message = f"the model {asked[:80]!r} is not served here; legal: {self.name!r}"
            raise NotFound(message, param="model", code="model_not_found")

    def encode(self, prompt: str | Sequence[int], field_name: str) -> list[int]:
        """Turn a text, as it is, or token ids into a checked prompt; `field_name` is blamed for what is wrong."""
        return blamed(field_name, lambda: self.engine.encode(prompt, raw=isinstance(prompt, str)))

    async def ask(self, body: Chance, contexts: Sequence[Sequence[int]], options: Mapping[str, Any]) -> Answers:
        """Place the orders for `body.n` answers to each context: number i x n + k is the k-th to the i-th context."""
        n = body.n or 1
        most = self.limits.most_answers
        if len(contexts) * n > most:
            raise BadRequest(f"{len(contexts) * n} answers are asked for; this server takes {most} at most", param="n")
        wished = wish(body, self.engine.drafters)
        samplings = [sampling(options, self.engine.max_length - len(context)) for context in contexts]
        await run_in_threadpool(vet, body, lambda: self.engine.vet(samplings[0]))
        return Answers(
            self.runner,
            lambda mailbox: [
                Order(
                    context,
                    replace(chance, sample=sample),
                    mailbox.slot(place * n + sample),
                    body.verify,
                    wished,
                    self.limits.deadline(body.timeout),
                )
                for place, (context, chance) in enumerate(zip(contexts, samplings, strict=True))
                for sample in range(n)
            ],
        )


async def unless_gone(http: HttpRequest, answers: Answers) -> list[Completion]:
    """Wait for all of the answers; ClientGone, and an end to them, when the client goes away."""
    waiting = asyncio.ensure_future(answers.completions())
    leaving = asyncio.ensure_future(_gone(http))
    try:
        await asyncio.wait((waiting, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise ClientGone("the client went away")
        return waiting.result()
    finally:
        waiting.cancel()
        leaving.cancel()


async def _gone(http: HttpRequest) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass
