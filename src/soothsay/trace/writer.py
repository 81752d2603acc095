"""A line of JSON for each step of an engine."""

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from soothsay.errors import OptionError, TraceError
from soothsay.record import Details, Drafted, Record
from soothsay.request import Request

SCHEMA = 1
"""To be raised when a reader of the lines before it would misread those after it. See docs/traces.md."""


_JSON = json.JSONEncoder(separators=(",", ":"))


class Tracer:
    """Writes each step of an engine to a file, as one line of JSON that is there when the step is over.

    with Tracer("steps.jsonl") as tracer:
        Engine("smollm2-135m", trace=tracer).generate("Why is the sky blue?")

    `about` goes into the first line. The first step writes over an existing file; OptionError where that cannot be. A
    file that cannot take more, on a full disk say, leaves the answers alone: leaving the block then raises TraceError.
    """

    def __init__(self, path: str | Path, about: Mapping[str, object] | None = None) -> None:
        self._path = Path(path)
        try:
            self._file = self._path.open("ab", buffering=0)
        except OSError as error:
            raise OptionError(f"trace is {str(path)!r}, which cannot be written: {error.strerror}") from None
        self._about = about or {}
        self._failure: OSError | None = None
        self._steps = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        if self._failure is not None and error is None:
            raise TraceError(f"{self._path} ends after {self._steps} steps: {self._failure.strerror}")

    def __call__(self, record: Record) -> None:
        """Write a step, and a line before it for each request that is new in it."""
        if self._steps == 0 and self._failure is None:
            self._begin()
        told = [(draft, draft.details) for draft in record.drafts if draft.details is not None]
        for _, details in told:
            if details.position == details.request.prompt_tokens:
                self._write(_request(details.request))
        self._write(_step(self._steps, record, [_turn(draft, details) for draft, details in told]))
        self._steps += self._failure is None

    def close(self) -> None:
        """Let go of the file."""
        try:
            self._file.close()
        except OSError as error:
            self._failure = self._failure or error

    def _begin(self) -> None:
        with suppress(OSError):  # a pipe has nothing to write over
            self._file.truncate(0)
        self._write(_head(self._about))

    def _write(self, line: Mapping[str, object]) -> None:
        if self._failure is not None:
            return
        try:
            left = memoryview(f"{_JSON.encode(line)}\n".encode())
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            self._failure = error


def _head(about: Mapping[str, object]) -> dict[str, object]:
    written = datetime.now(UTC).isoformat(timespec="seconds")
    return {"kind": "trace", "schema": SCHEMA, "soothsay": version("soothsay"), "written": written, "about": {**about}}


def _request(request: Request) -> dict[str, object]:
    return {
        "kind": "request",
        "request": request.number,
        "prompt_tokens": request.prompt_tokens,
        "cached_tokens": request.cached_tokens,
        "temperature": request.sampling.temperature,
        "seed": request.seed,
        "sample": request.sampling.sample,
    }


def _step(number: int, record: Record, turns: list[dict[str, Any]]) -> dict[str, object]:
    return {
        "kind": "step",
        "step": number,
        "rows": record.rows,
        "draft_seconds": round(record.draft_seconds, 7),
        "verify_seconds": round(record.target_seconds, 7),
        "sample_seconds": round(record.verify_seconds, 7),
        "turns": turns,
    }


def _turn(draft: Drafted, details: Details) -> dict[str, Any]:
    """One sequence's part of a step. The tokens emitted are `accepted` of the draft, then the target's own, if any."""
    return {
        "request": details.request.number,
        "position": details.position,
        "drafter": draft.drafter,
        "gamma": details.gamma,
        "drafted": details.draft.tokens,
        "p": [None if p is None else _short(p) for p in details.p],
        "q": [_short(q) for q in details.q],
        "accepted": draft.accepted,
        "own": details.own,
        "emitted": [piece.token for piece in details.kept.pieces],
        "texts": [piece.text for piece in details.kept.pieces],
        "debt_seconds": None if details.debt_seconds is None else round(details.debt_seconds, 6),
        "finish_reason": details.finish_reason,
    }


def _short(probability: float) -> float:
    return float(f"{probability:.6g}")
