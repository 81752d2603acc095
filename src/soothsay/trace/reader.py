"""Back from lines of JSON to what happened. The file may come from anywhere: whatever is wrong in it has its line."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from soothsay.errors import TraceError
from soothsay.trace.writer import SCHEMA

LONGEST_LINE_BYTES = 16 << 20
UNTOLD = "?"
"""Where a token came from, when the line does not say."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as its line says it; `prompt_tokens`, of which `cached_tokens` were in the cache."""

    request: int
    prompt_tokens: int
    cached_tokens: int
    temperature: float
    seed: int
    sample: int


@dataclass(frozen=True, slots=True)
class Turn:
    """One request's part of a step, as docs/traces.md has it."""

    request: int
    position: int
    drafter: str | None
    gamma: int
    drafted: tuple[int, ...]
    p: tuple[float | None, ...]
    q: tuple[float, ...]
    accepted: int
    own: str | None
    emitted: tuple[int, ...]
    texts: tuple[str, ...]
    debt_seconds: float | None
    finish_reason: str | None

    @property
    def origins(self) -> tuple[str, ...]:
        """Where each emitted token came from: the drafter, or what kind of the target's own it is."""
        return ((self.drafter or UNTOLD,) * self.accepted + (self.own or UNTOLD,))[: len(self.emitted)]


@dataclass(frozen=True, slots=True)
class Step:
    """A step: rows of the target's pass, seconds of each part, and the requests that emitted."""

    rows: int
    draft_seconds: float
    verify_seconds: float
    sample_seconds: float
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """A whole file; `cut` says that its last line is only begun, as when the writer was killed."""

    about: dict[str, Any]
    requests: dict[int, Asked]
    steps: tuple[Step, ...]
    cut: bool


def read(path: str | Path) -> Trace:
    """Read a trace; TraceError, naming the line, for what is not one."""
    try:
        with Path(path).open("rb") as file:
            return _read(file, str(path))
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}") from None


def _read(file: BinaryIO, name: str) -> Trace:
    about: dict[str, Any] | None = None
    requests: dict[int, Asked] = {}
    steps: list[Step] = []
    cut = False
    for number, text in enumerate(_lines(file, name), start=1):
        cut = not text.endswith(b"\n")
        try:
            line = _Line(json.loads(text))
            match line.kind:
                case "trace":
                    about = _about(line)
                case "request":
                    asked = _asked(line)
                    requests[asked.request] = asked
                case "step":
                    steps.append(_step(line))
                case kind:
                    raise ValueError(f"kind {kind!r} is none of trace, request and step")
        except (ValueError, RecursionError) as error:
            if cut and about is not None:
                break
            said = "it is not JSON" if isinstance(error, json.JSONDecodeError | UnicodeDecodeError) else error
            raise TraceError(f"{name}, line {number}: {said}") from None
        if about is None:
            raise TraceError(f"{name}, line {number}: the first line must have kind 'trace'")
    if about is None:
        raise TraceError(f"{name} is empty; a trace has a first line of kind 'trace'")
    return Trace(about, requests, tuple(steps), cut)


def _lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    while line := file.readline(LONGEST_LINE_BYTES + 1):
        if len(line) > LONGEST_LINE_BYTES:
            raise TraceError(f"{name} has a line of more than {LONGEST_LINE_BYTES} bytes")
        yield line


class _Line:
    """The fields of one JSON object, each asked for by name and type."""

    def __init__(self, value: object) -> None:
        if not isinstance(value, dict):
            raise ValueError("it is not a JSON object")
        self._fields = value

    @property
    def kind(self) -> str:
        return self.text("kind")

    def whole(self, name: str) -> int:
        return int(self._of(name, _is_whole, "a whole number"))

    def number(self, name: str) -> float:
        return float(self._of(name, _is_number, "a number"))

    def perhaps_number(self, name: str) -> float | None:
        return None if self._fields.get(name) is None else self.number(name)

    def text(self, name: str) -> str:
        return str(self._of(name, lambda value: isinstance(value, str), "a text"))

    def perhaps_text(self, name: str) -> str | None:
        return None if self._fields.get(name) is None else self.text(name)

    def mapping(self, name: str) -> dict[str, Any]:
        return dict(self._of(name, lambda value: isinstance(value, dict), "an object"))

    def all(self, name: str, legal: Callable[[object], bool], what: str) -> tuple[Any, ...]:
        found = self._of(name, lambda value: isinstance(value, list) and all(map(legal, value)), f"a list of {what}")
        return tuple(found)

    def _of(self, name: str, legal: Callable[[object], bool], what: str) -> Any:
        if name not in self._fields:
            raise ValueError(f"{name} is missing")
        if not legal(self._fields[name]):
            raise ValueError(f"{name} must be {what}")
        return self._fields[name]


def _about(line: _Line) -> dict[str, Any]:
    if (schema := line.whole("schema")) != SCHEMA:
        raise ValueError(f"schema is {schema}; this version reads {SCHEMA}")
    return line.mapping("about")


def _asked(line: _Line) -> Asked:
    names = ("request", "prompt_tokens", "cached_tokens")
    request, prompt_tokens, cached_tokens = (line.whole(name) for name in names)
    return Asked(
        request, prompt_tokens, cached_tokens, line.number("temperature"), line.whole("seed"), line.whole("sample")
    )


def _step(line: _Line) -> Step:
    turns = line.all("turns", lambda value: isinstance(value, dict), "objects")
    draft, verify, sample = (line.number(f"{part}_seconds") for part in ("draft", "verify", "sample"))
    return Step(line.whole("rows"), draft, verify, sample, tuple(_turn(_Line(turn)) for turn in turns))


def _turn(line: _Line) -> Turn:
    turn = Turn(
        request=line.whole("request"),
        position=line.whole("position"),
        drafter=line.perhaps_text("drafter"),
        gamma=line.whole("gamma"),
        drafted=line.all("drafted", _is_whole, "token ids"),
        p=line.all("p", lambda value: value is None or _is_number(value), "numbers"),
        q=line.all("q", _is_number, "numbers"),
        accepted=line.whole("accepted"),
        own=line.perhaps_text("own"),
        emitted=line.all("emitted", _is_whole, "token ids"),
        texts=line.all("texts", lambda value: isinstance(value, str), "texts"),
        debt_seconds=line.perhaps_number("debt_seconds"),
        finish_reason=line.perhaps_text("finish_reason"),
    )
    if not len(turn.drafted) == len(turn.p) == len(turn.q) >= turn.accepted:
        raise ValueError("drafted, p and q must be of one length, and accepted no more than that")
    if not turn.accepted <= len(turn.emitted) == len(turn.texts) <= turn.accepted + 1:
        raise ValueError("emitted and texts must have the accepted tokens and at most one more")
    return turn


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
