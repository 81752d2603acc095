"""Under load every answer is what the same request gets alone and without drafts, whoever comes, goes and hangs up.

A small random model, two hundred requests of all kinds at a time; the books are checked after every step.
"""

import asyncio
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from soothsay import Engine, Grammar, Sampling
from soothsay.assemble import DRAFT_TOP_K, assemble
from soothsay.core import Capacity
from soothsay.server.run import service_of
from soothsay.server.service import Limits, Service
from tests.checkpoints import Kind, Recipe, Words, write_checkpoint
from tests.server.doubles import serving

REQUESTS = 200
CONTEXT = 200
CACHE_TOKENS = 500
"""Less than what sixteen answers would like to hold: some have to step back."""

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}, "k": {"enum": ["ab", "ba"]}},
    "required": ["n", "k"],
    "additionalProperties": False,
}
FORMATS: dict[str, tuple[dict[str, Any], Grammar]] = {
    "schema": (
        {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
        Grammar.json_schema(SCHEMA),
    ),
    "regex": ({"type": "regex", "pattern": "(ab|ba){1,9}c"}, Grammar.regex("(ab|ba){1,9}c")),
    "choice": ({"type": "choice", "choices": ["abab", "abba"]}, Grammar.choice(["abab", "abba"])),
}
SHARED = "ab abba baab " * 6


def wish(rng: random.Random, number: int) -> dict[str, Any]:
    """One request: some options, a prompt that may begin like others, perhaps a grammar, and how it guesses."""
    prompt = (SHARED if rng.random() < 0.5 else "") + "".join(rng.choices("ab c", k=rng.randint(1, 60)))
    options: dict[str, Any] = {
        "temperature": rng.choice([0, 0.5, 1.0, 1.5]),
        "seed": number,
        "max_tokens": rng.randint(1, 50),
        **rng.choice([{}, {"top_k": 20}, {"top_p": 0.8}, {"min_p": 0.1}]),
        **rng.choice([{}, {"repetition_penalty": 1.3}, {"frequency_penalty": 0.5, "presence_penalty": -0.5}]),
        **rng.choice([{}, {"stop": ["ba", "c"]}, {"logit_bias": {"97": 2.0, "98": -3.0}}]),
    }
    drafts = rng.choice([{}, {"draft": "none"}, {"draft": "ngram", "gamma": 5}, {"gamma": 3}])
    kind = rng.choice([None, None, *FORMATS])
    return {"prompt": prompt, "options": options, "drafts": drafts, "format": kind, "stream": rng.random() < 0.5}


def alone(engine: Engine, asked: dict[str, Any]) -> tuple[str, str, int]:
    """What the engine says to it without drafts and without company."""
    options = dict(asked["options"])
    if "stop" in options:
        options["stop"] = tuple(options["stop"])
    if "logit_bias" in options:
        options["logit_bias"] = {int(token): bias for token, bias in options["logit_bias"].items()}
    grammar = FORMATS[asked["format"]][1] if asked["format"] else None
    answer = engine.generate(asked["prompt"], Sampling(**options, grammar=grammar), raw=True)
    reason = {"end": "stop", "stop": "stop", "length": "length"}[answer.finish_reason]
    return answer.text, reason, len(answer.tokens)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    recipe = Recipe("llama", Kind.Q8_0, vocab_size=264, max_length=CONTEXT)
    return write_checkpoint(tmp_path_factory.mktemp("load") / "tiny.gguf", recipe, Words())


@pytest.fixture(scope="module")
def service(path: Path) -> Service:
    parts = assemble(path, path, "auto", threads=1, top_k=DRAFT_TOP_K, requantise=False, clock=time.perf_counter)
    capacity = Capacity(max_batch=16, cache_tokens=CACHE_TOKENS, kept_prefixes=8)
    return service_of(parts, "tiny", limits=Limits(capacity, max_queue=REQUESTS))


@pytest.fixture(scope="module")
def wanted(path: Path) -> list[tuple[dict[str, Any], tuple[str, str, int]]]:
    rng, engine = random.Random(4), Engine(path, draft="none", threads=1)
    asked = [wish(rng, number) for number in range(REQUESTS)]
    return [(one, alone(engine, one)) for one in asked]


async def ask(client: httpx.AsyncClient, asked: dict[str, Any], leaves: bool) -> tuple[str, str, int] | None:
    """Ask over HTTP; None for a client that leaves in the middle."""
    body = {"prompt": asked["prompt"], **asked["options"], **asked["drafts"]}
    if asked["format"]:
        body["response_format"] = FORMATS[asked["format"]][0]
    if not (asked["stream"] or leaves):
        reply = await client.post("/v1/completions", json=body)
        assert reply.status_code == 200, reply.text
        found = reply.json()
        return found["choices"][0]["text"], found["choices"][0]["finish_reason"], found["usage"]["completion_tokens"]
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    text, reason, tokens = "", "", 0
    async with client.stream("POST", "/v1/completions", json=body) as reply:
        assert reply.status_code == 200
        async for line in reply.aiter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = httpx.Response(200, text=line.removeprefix("data: ")).json()
            assert "error" not in chunk, chunk
            for choice in chunk["choices"]:
                text += choice["text"]
                reason = choice["finish_reason"] or reason
            tokens = chunk["usage"]["completion_tokens"] if chunk.get("usage") else tokens
            if leaves:
                return None
    return text, reason, tokens


async def everyone(address: str, wanted: list[tuple[dict[str, Any], tuple[str, str, int]]], at_once: int) -> int:
    """Ask everything, so many at a time; one in eight hangs up. Gives how many answers were right."""
    rng, places = random.Random(at_once), asyncio.Semaphore(at_once)
    leaving = [rng.random() < 0.125 for _ in wanted]
    limits = httpx.Limits(max_connections=at_once + 2)
    async with httpx.AsyncClient(base_url=address, timeout=60, limits=limits) as client:

        async def one(asked: dict[str, Any], right: tuple[str, str, int], leaves: bool) -> int:
            async with places:
                found = await ask(client, asked, leaves)
            if not leaves:
                assert found == right, asked
            return not leaves

        return sum(await asyncio.gather(*(one(*pair, gone) for pair, gone in zip(wanted, leaving, strict=True))))


def test_every_answer_is_what_it_would_be_alone(
    monkeypatch: pytest.MonkeyPatch, service: Service, wanted: list[tuple[dict[str, Any], tuple[str, str, int]]]
) -> None:
    step, checked = Engine.step, [0]
    preempted = [0]

    def checking(self: Engine) -> None:
        step(self)
        self.check()
        checked[0] += 1

    send_back = service.engine._scheduler.preempt

    def counting() -> Any:
        gone = send_back()
        preempted[0] += len(gone)
        return gone

    monkeypatch.setattr("soothsay.schedule.scheduler.SPARE_TOKENS", 0)  # so that it grows full more often
    monkeypatch.setattr(Engine, "step", checking)
    monkeypatch.setattr(service.engine._scheduler, "preempt", counting)
    threads = threading.active_count()
    files = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    with serving(service) as address:
        for at_once in (1, 4, 16):
            answered = asyncio.run(everyone(address, wanted, at_once))
            assert answered > REQUESTS / 2
        deadline = threading.Event()
        for _ in range(100):
            if service.runner.running == service.runner.waiting == 0:
                break
            deadline.wait(0.05)
        assert (service.runner.running, service.runner.waiting) == (0, 0)
    assert checked[0] > REQUESTS
    assert preempted[0] > 0
    engine = service.engine
    engine.check()
    assert engine.held_tokens == engine._prefixes.held_tokens <= CACHE_TOKENS
    assert engine._speculation._drafters["model"]._places == {}  # type: ignore[attr-defined]
    assert threading.active_count() <= threads
    if files:
        assert len(os.listdir("/proc/self/fd")) <= files + 2
