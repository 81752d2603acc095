"""A peer is a process of its own, in the interpreter that has it; it runs only while it is asked.

The threads of an engine may spin on for a while after its work: an idle peer is stopped by a signal, so that none takes
time from another's turn.
"""

import json
import os
import select
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any, Self

SERVE = Path(__file__).with_name("servers") / "serve.py"
PATIENCE_SECONDS = 900
"""Longest wait for one answer; a model of 3 GB is converted in less."""


class PeerFailed(Exception):
    """A peer that is absent, refuses or dies; the message is one line."""


class Peer:
    """A server of `bench/peers/servers`, started with another interpreter and opened with a model."""

    def __init__(self, python: str, server: str, **options: Any) -> None:
        """Raise PeerFailed for an interpreter that cannot be run or a peer that cannot be opened in it."""
        self._errors = TemporaryFile("w+", errors="replace")  # noqa: SIM115  # open for as long as the process writes
        self._process = self._start([python, str(SERVE), server])
        try:
            self.version = str(self.ask("open", **options)["version"])
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, verb: str, **fields: Any) -> Mapping[str, Any]:
        """Wake the peer, ask, and stop it again; PeerFailed for a refusal, a death or too long a silence."""
        self._process.send_signal(signal.SIGCONT)
        line = self._exchange(json.dumps({"verb": verb} | fields))
        self._stop()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerFailed(answer["error"])
        return answer

    def close(self) -> None:
        """End the process; nothing that it has is worth waiting for."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _stop(self) -> None:
        """Stop the process, and wait until all its threads have."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _start(self, command: list[str]) -> "subprocess.Popen[str]":
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                process_group=0,  # one of its own: the kernel ends it, stopped as it may be, should this process die
            )
        except OSError as error:
            self._errors.close()
            raise PeerFailed(f"{command[0]} cannot be run: {error.strerror}") from None

    def _exchange(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise PeerFailed(self._last_words()) from None
        if not select.select([self._process.stdout], [], [], PATIENCE_SECONDS)[0]:
            self._process.kill()
            self._process.wait()
            raise PeerFailed(f"no answer in {PATIENCE_SECONDS} seconds")
        if answer := self._process.stdout.readline():
            return answer
        raise PeerFailed(self._last_words())

    def _last_words(self) -> str:
        status = self._process.wait()
        self._errors.seek(0)
        said = [line.strip() for line in self._errors if line.strip()]
        return f"its process ended with status {status}" + (f": {said[-1]}" if said else "")
