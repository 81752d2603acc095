"""What an answer is made of."""

from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["end", "stop", "length", "context"]
"""An end-of-text token, a stop string or token, `max_tokens`, or the model's context length."""

Source = Literal["model", "draft"]
"""Whose token it was first: an accepted draft, or the target's own (a correction, a bonus, a plain step)."""


@dataclass(frozen=True, slots=True)
class Stats:
    """What an answer cost.

    `prompt_tokens`, of which `cached_tokens` were already in the cache; `tokens` emitted in `steps` target passes;
    `accepted` of `drafted` tokens kept. `seconds` run from the request to its last token, `first_token_seconds` to its
    first. `draft_seconds`, `target_seconds` and `verify_seconds` are those of the steps it took part in, batch mates
    included.
    """

    prompt_tokens: int
    cached_tokens: int
    tokens: int
    steps: int
    drafted: int
    accepted: int
    seconds: float
    first_token_seconds: float
    draft_seconds: float
    target_seconds: float
    verify_seconds: float

    @property
    def tokens_per_step(self) -> float:
        """Emitted tokens over target passes."""
        return self.tokens / self.steps

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted over drafted; None when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def tokens_per_second(self) -> float | None:
        """The pace from the first emitted token to the last; None for a single token."""
        elapsed = self.seconds - self.first_token_seconds
        return (self.tokens - 1) / elapsed if self.tokens > 1 and elapsed > 0 else None


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token's natural log-probability, and the likeliest tokens at its place with theirs, the likeliest first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer: its text, the ids of its tokens (the one that ended it included), why it ended, and what it cost.

    `seed` and `sample` are those that were used; asking again with them gives the same answer. `logprobs`, where they
    were asked for, has one entry a token.
    """

    text: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason
    seed: int
    stats: Stats
    sample: int = 0
    logprobs: tuple[TokenLogprob, ...] | None = None


Own = Literal["plain", "bonus", "correction"]
"""The target's own token of a step: where nothing was drafted, after a draft that was kept whole, or in its place."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a token came from: `drafter` where it was drafted, else what kind of the target's own it is.

    `q` is the probability that it was drafted with, where log-probabilities were asked for.
    """

    drafter: str | None
    own: Own | None
    q: float | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """One token of a stream and the text that it completes; the last one carries the completion.

    `logprob` is there where it was asked for, `origin` where the engine made the piece.
    """

    text: str
    token: int
    source: Source
    completion: Completion | None = None
    logprob: TokenLogprob | None = None
    origin: Origin | None = None
