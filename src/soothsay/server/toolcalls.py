"""Tool calls in the form of Hermes and Qwen: <tool_call>{"name": ..., "arguments": {...}}</tool_call>."""

import json
import secrets
from dataclasses import dataclass

OPEN, CLOSE = "<tool_call>", "</tool_call>"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function that the model wants called; `arguments` is a JSON object, as text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Read:
    """What became clear of an answer: text to show, and calls."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()


class ToolCallReader:
    """Tells the tool calls in a growing answer from its text; what is no valid call stays text, tags and all.

    The outcome depends on the whole text alone, not on the pieces that it comes in.
    """

    def __init__(self) -> None:
        self._held = ""
        self._called = False

    def push(self, text: str) -> Read:
        """Take more text and give what is clear by now."""
        self._held += text
        shown: list[str] = []
        calls: list[ToolCall] = []
        while (start := self._held.find(OPEN)) >= 0 and (end := self._held.find(CLOSE, start)) >= 0:
            before, body = self._held[:start], self._held[start + len(OPEN) : end]
            self._held = self._held[end + len(CLOSE) :]
            call = _call(body)
            shown.append(before.rstrip() if call else f"{before}{OPEN}{body}{CLOSE}")
            calls += [call] if call else []
        self._called = self._called or bool(calls)
        return Read("".join(shown) + self._clear(), tuple(calls))

    def flush(self) -> str:
        """End the answer and give the text that was held back."""
        held, self._held = self._held, ""
        return "" if self._called and not held.strip() else held

    def _clear(self) -> str:
        """Take what can no longer belong to a call: white space before one does."""
        start = self._held.find(OPEN)
        if start < 0:
            start = len(self._held) - _overlap(self._held)
        start = len(self._held[:start].rstrip())
        clear, self._held = self._held[:start], self._held[start:]
        return clear


def _overlap(text: str) -> int:
    """Length of the longest end of `text` that is a beginning of OPEN."""
    return next((size for size in range(min(len(text), len(OPEN) - 1), 0, -1) if text.endswith(OPEN[:size])), 0)


def _call(body: str) -> ToolCall | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        return None
    arguments = found.get("arguments", {})
    if not isinstance(arguments, dict):
        return None
    return ToolCall(f"call_{secrets.token_hex(12)}", found["name"], json.dumps(arguments, ensure_ascii=False))
