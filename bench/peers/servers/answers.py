"""What a peer is asked and what it answers: the same end and the same clock for all."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Ask:
    """One prompt, by its token ids, and how it is to be continued.

    At most `max_tokens`, to the first of the ids in `end`; greedy at temperature 0, else by the law of the model as it
    is. Guesses are made by nothing, a draft model, n-grams of the text so far, or (soothsay alone) the target's own
    lighter weights, `gamma` tokens a step; None is the peer's own choice.
    """

    tokens: list[int]
    end: list[int]
    max_tokens: int
    temperature: float
    seed: int
    drafter: Literal["none", "model", "ngram", "self"]
    gamma: int | Literal["auto"] | None


class Emitted:
    """The tokens of one answer, and the moments of the first and the last; made when the request begins."""

    def __init__(self, ask: Ask) -> None:
        self._end, self._most = frozenset(ask.end), ask.max_tokens
        self._tokens: list[int] = []
        self._begun = self._first = self._last = time.perf_counter()

    @property
    def ended(self) -> bool:
        return len(self._tokens) == self._most or (bool(self._tokens) and self._tokens[-1] in self._end)

    def add(self, tokens: Iterable[int]) -> bool:
        """Take what was emitted just now, up to the end of the answer; tell whether the answer has ended."""
        now = time.perf_counter()
        for token in tokens:
            if not self.ended:
                self._first = self._first if self._tokens else now
                self._last = now
                self._tokens.append(int(token))
        return self.ended

    def answer(self) -> dict[str, Any]:
        """Give the tokens, `first_token_seconds` from the request to the first, `seconds` from there to the last."""
        return {
            "tokens": self._tokens,
            "first_token_seconds": self._first - self._begun,
            "seconds": self._last - self._first,
        }
