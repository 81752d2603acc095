"""`soothsay serve` as a process: its address, its end at a signal, and options that cannot be."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import httpx
import pytest

from soothsay.hub import MODELS, cached

COMMAND = [sys.executable, "-c", "from soothsay.cli import main; main()", "serve", "--port", "0", "--draft", "none"]
CHAT = {"messages": [{"role": "user", "content": "Tell me a long story."}], "stream": True, "temperature": 0}

real = pytest.mark.skipif(
    cached(MODELS["smollm2-135m"]) is None or find_spec("soothsay._native") is None,
    reason="the small model is not in the cache, or the native runtime is not built",
)


@contextmanager
def process(*options: str, **environment: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Start a server and give its address, once it has told it."""
    with subprocess.Popen(
        [*COMMAND, *options], stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    ) as found:
        try:
            assert found.stderr is not None
            line = next(line for line in found.stderr if "serving" in line)
            address = re.search(r"http://\S+", line)
            assert address is not None, line
            yield found, address[0]
        finally:
            found.kill()


def lines(address: str, **fields: object) -> Iterator[str]:
    with httpx.stream("POST", f"{address}/v1/chat/completions", json=CHAT | fields, timeout=60) as reply:
        yield from (line for line in reply.iter_lines() if line)


@real
def test_at_sigterm_answers_end_and_then_the_server() -> None:
    with process("--grace", "60") as (server, address):
        told = lines(address, max_tokens=60)
        assert [next(told) for _ in range(3)]
        server.send_signal(signal.SIGTERM)
        assert list(told)[-1] == "data: [DONE]"
        assert server.wait(30) == -signal.SIGTERM


@real
def test_who_takes_too_long_is_told_so() -> None:
    with process("--grace", "0.2") as (server, address):
        told = lines(address, max_tokens=8000)
        assert [next(told) for _ in range(3)]
        server.send_signal(signal.SIGTERM)
        last = list(told)[-1]
        assert '"code": "shutting_down"' in last
        assert server.wait(30) == -signal.SIGTERM


@real
def test_a_key_may_come_from_the_environment() -> None:
    with process(SOOTHSAY_API_KEY="a-key") as (server, address):
        assert httpx.get(f"{address}/v1/models").status_code == 401
        assert httpx.get(f"{address}/v1/models", headers={"Authorization": "Bearer a-key"}).status_code == 200
        server.send_signal(signal.SIGINT)
        server.wait(30)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--max-batch", "0"], "max-batch is 0"),
        (["--max-queue", "-1"], "max-queue is -1"),
        (["--grace", "-1"], "grace is -1"),
        (["--api-key", "a b"], "printable ASCII"),
        (["--gamma", "x"], "gamma is 'x'"),
        (["--verify", "maybe"], "verify is 'maybe'"),
        (["--host", "203.0.113.1"], "cannot listen"),
        (["--port", "99999"], "cannot listen"),
    ],
    ids=repr,
)
def test_options_that_cannot_be_end_with_2_and_one_line(options: list[str], says: str) -> None:
    run = subprocess.run([*COMMAND, "--model", "/nowhere.gguf", *options], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert says in run.stderr
    assert run.stderr.count("\n") == 1


@real
def test_a_context_that_the_model_cannot_hold_is_refused() -> None:
    run = subprocess.run([*COMMAND, "--context", "9000"], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "from 2 to the 8192 tokens" in run.stderr
