"""The command line as a process: signals, closed pipes, bytes in and out, and one run with the real small model."""

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec

import pytest

from soothsay.hub import MODELS, cached

FAKE = """
import sys, threading
from types import SimpleNamespace as N
import soothsay

class Engine:
    def __init__(self, *arguments, **options): pass
    def stream(self, prompt, *arguments, **options):
        yield N(text=prompt, token=1, source="model", completion=None)
        {then}

soothsay.Engine = Engine
from soothsay.cli import main
main()
"""
WAIT = "threading.Event().wait()"
HEARS_INTERRUPTS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
FLOOD = "yield from (N(text='x' * 1000, token=1, source='model', completion=None) for _ in range(10_000))"


def start(code: str, *arguments: str) -> "subprocess.Popen[bytes]":
    """Start the command line in a plain locale, where Python would otherwise write ASCII.

    What a shell starts in the background ignores interrupts, these tests perhaps; the program must not inherit that.
    """
    environment = {**os.environ, "LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", HEARS_INTERRUPTS + code, "generate", *arguments],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env=environment,
    )


def test_interrupt_ends_with_130_and_no_traceback() -> None:
    with start(FAKE.format(then=WAIT), "hello") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(5) == b"hello"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read().strip() == b""
    assert process.returncode == 130


def test_closed_pipe_is_quiet() -> None:
    """`soothsay generate ... | head` must not end in a traceback, nor in a complaint while Python shuts down."""
    with start(FAKE.format(then=FLOOD), "hello") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(5) == b"hello"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_text_is_utf8_whatever_the_locale() -> None:
    with start(FAKE.format(then=WAIT)) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdin.write("naïve 日本\n".encode())
        process.stdin.close()
        assert process.stdout.read(len("naïve 日本".encode())) == "naïve 日本".encode()
        process.kill()


@pytest.mark.skipif(cached(MODELS["smollm2-135m"]) is None, reason="the small model is not in the cache")
@pytest.mark.skipif(find_spec("soothsay._native") is None, reason="the native runtime is not built")
@pytest.mark.parametrize("temperature", ["0", "0.8"])
def test_drafts_do_not_change_the_answer(temperature: str) -> None:
    """The promise, as a user can check it from the shell."""
    common = ["--json", "--temperature", temperature, "--seed", "3", "--max-tokens", "24", "Say a a a b b b a a a."]
    answers = {}
    for draft in ("none", "ngram"):
        code = "from soothsay.cli import main; main()"
        process = start(code, "--draft", draft, *common)
        out, err = process.communicate()
        assert (process.returncode, err) == (0, b"")
        answers[draft] = json.loads(out.splitlines()[-1])
    assert answers["none"]["token_ids"] == answers["ngram"]["token_ids"]
    assert answers["none"]["text"] == answers["ngram"]["text"]
    assert answers["none"]["drafted"] == 0
    assert answers["ngram"]["steps"] + answers["ngram"]["accepted"] >= answers["ngram"]["tokens"]
