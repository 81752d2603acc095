"""Servers of the OpenAI form, each in a process of its own that runs only in its turn, and a client of streams."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Self

import httpx

PATIENCE_SECONDS = 600
"""Longest wait for a server to start, and for an answer."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that was streamed; seconds from its request, those of the first token to where its text appears."""

    text: str
    tokens: int
    first_token_seconds: float
    seconds: float


class Served:
    """A server, started with a command in which {port} stands for where it is to listen."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        """Raise RuntimeError for one that ends, or is not ready in ten minutes; the message has its last words."""
        self.name = name
        self._errors = TemporaryFile("w+", errors="replace")  # noqa: SIM115  # open for as long as the process writes
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [word.format(port=port) for word in command], stdout=self._errors, stderr=self._errors, process_group=0
        )
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def stop(self) -> None:
        """Let it rest: its threads may spin on after their work, and would take time from another's turn."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    @contextmanager
    def awake(self) -> Iterator[str]:
        """Let it work, at this address, and rest again."""
        self.process.send_signal(signal.SIGCONT)
        try:
            yield self.url
        finally:
            self.stop()

    def resident_bytes(self) -> int:
        """Tell how much memory it holds (Linux)."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def open_files(self) -> int:
        """Tell how many files and sockets it holds open (Linux)."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def threads(self) -> int:
        """Tell how many threads it has (Linux)."""
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))

    def close(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()
        self._errors.close()

    def _wait(self) -> None:
        limit = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < limit:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with status {self.process.returncode}: {self._last_words()}")
            try:
                if httpx.get(f"{self.url}/health").status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.2)
        raise RuntimeError(f"{self.name} was not ready in {PATIENCE_SECONDS} seconds")

    def _last_words(self) -> str:
        self._errors.seek(0)
        said = [line.strip() for line in self._errors if line.strip()]
        return said[-1] if said else "without a word"


async def ask(client: httpx.AsyncClient, url: str, body: Mapping[str, Any]) -> Reply:
    """Stream a chat; raise httpx.HTTPError for a refusal."""
    start = time.perf_counter()
    first, texts, tokens = None, [], 0
    asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
    async with client.stream("POST", f"{url}/v1/chat/completions", json=asked) as response:
        if response.is_error:
            await response.aread()
            response.raise_for_status()
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line.removeprefix("data: "))
            if text := "".join(choice["delta"].get("content") or "" for choice in chunk["choices"]):
                first = first or time.perf_counter() - start
                texts.append(text)
            if usage := chunk.get("usage"):
                tokens = usage["completion_tokens"]
    seconds = time.perf_counter() - start
    return Reply("".join(texts), tokens, first or seconds, seconds)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
