"""Recorded answers, and what a draft model and n-grams would have guessed in them (made by bench/traces.py)."""

import json
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.schedule.simulator import Guesser, Text

Trace = dict[str, Any]


@cache
def traces(category: str, temperature: float) -> list[Trace]:
    found: list[Trace] = json.loads((Path(__file__).parents[1] / "fixtures" / "traces.json").read_text())
    return [trace for trace in found if (trace["category"], trace["temperature"]) == (category, temperature)]


def text(trace: Trace, name: Hashable = 0, *, ngram: bool = True) -> Text:
    guessers: dict[str, Guesser] = {"model": TracedModel(trace)}
    if ngram:
        guessers["ngram"] = TracedNgram(trace)
    return Text(name, trace["tokens"], guessers, trace["prompt_tokens"])


@dataclass(frozen=True, slots=True)
class TracedModel:
    """The draft model that was recorded, from the whole prompt or from a window of it."""

    trace: Trace

    def hint(self, position: int) -> int | None:
        return 0

    def right(self, start: int, depth: int, seen: int) -> bool:
        return bool(self.trace["right"][self._window(start + depth, seen)][start + depth] == "1")

    def confidence(self, start: int, depth: int, seen: int) -> float:
        wrong = next((place for place in range(depth) if not self.right(start, place, seen)), None)
        if wrong is None:
            return float(self.trace["confidence"][self._window(start + depth, seen)][start + depth]) / 100
        beyond = self.trace["beyond"]
        nearest = min(beyond, key=lambda place: abs(int(place) - start - wrong))
        return float(beyond[nearest][min(depth - wrong - 1, len(beyond[nearest]) - 1)]) / 100

    def _window(self, position: int, seen: int) -> str:
        """Choose between the two nearest recorded windows, the more often the nearer it is."""
        windows = sorted(int(window) for window in self.trace["right"])
        if seen >= self.trace["prompt_tokens"]:
            return str(windows[-1])
        wider = next(window for window in windows if window >= seen)
        narrower = max((window for window in windows if window <= seen), default=windows[0])
        return str(wider if position * 7 % 11 / 11 * (wider - narrower) < seen - narrower else narrower)


@dataclass(frozen=True, slots=True)
class TracedNgram:
    """The n-gram drafter, which was recorded from the text itself; it has no confidence."""

    trace: Trace

    def hint(self, position: int) -> int | None:
        return self.trace["ngram"][position][0] or None

    def right(self, start: int, depth: int, seen: int) -> bool:
        return bool(depth < self.trace["ngram"][start][1])

    def confidence(self, start: int, depth: int, seen: int) -> float | None:
        return None
