"""Who runs in the next step, what is fed, and how far a draft may go. Decides; touches no array."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from soothsay.schedule.plan import LONGEST
from soothsay.schedule.sequence import Sequence

S = TypeVar("S", bound=Sequence)

SPARE_TOKENS = 64
"""Cache that must be free beside a context before it is let in, or it would have to leave again at once."""


@dataclass(frozen=True, slots=True)
class Turn(Generic[S]):
    """What one sequence does in a step: feed `pending` tokens of its context and then a draft of up to `reach`.

    `complete` says that the whole context is then in the cache, so that tokens can be emitted; `decoding`, that it
    was all but its last token before.
    """

    sequence: S
    pending: list[int]
    complete: bool
    reach: int

    @property
    def decoding(self) -> bool:
        return self.complete and len(self.pending) == 1


class Scheduler(Generic[S]):
    """Runs up to `max_batch` sequences at once, the others in order of arrival.

    Long prompts go in chunks of `chunk_tokens` a step, of all prompts together, the earliest first; of less where
    others decode meanwhile. `cache_tokens` bounds what the running ones may hold (None: nothing does): nobody is let in
    who would not fit, and where the cache grows full all the same, the latest leaves and waits in front of the others.
    """

    def __init__(
        self, *, max_length: int, max_batch: int = 32, chunk_tokens: int = 256, cache_tokens: int | None = None
    ) -> None:
        self._max_length = max_length
        self._max_batch = max_batch
        self._chunk_tokens = chunk_tokens
        self._cache_tokens = cache_tokens
        self._waiting: deque[S] = deque()
        self._running: list[S] = []

    @property
    def running(self) -> tuple[S, ...]:
        return tuple(self._running)

    @property
    def waiting(self) -> tuple[S, ...]:
        return tuple(self._waiting)

    @property
    def needed_tokens(self) -> int:
        """Cache that the running sequences may hold after the next step."""
        return sum(self._need(sequence) for sequence in self._running)

    def add(self, sequence: S) -> None:
        self._waiting.append(sequence)

    def remove(self, sequence: S) -> None:
        (self._running if sequence in self._running else self._waiting).remove(sequence)

    def preempt(self) -> list[S]:
        """Send back those for whom the cache has no room any more, the latest first; the first one always stays."""
        leaving: list[S] = []
        while self._cache_tokens is not None and len(self._running) > 1 and self.needed_tokens > self._cache_tokens:
            leaving.append(self._running.pop())
            self._waiting.appendleft(leaving[-1])
        return leaving

    def admit(self) -> list[S]:
        """Let those in for whom there is room, in order, and name them."""
        entering: list[S] = []
        while self._waiting and len(self._running) < self._max_batch and self._fits(self._waiting[0]):
            entering.append(self._waiting.popleft())
            self._running.append(entering[-1])
        return entering

    def plan(self, cached: Callable[[S], int], prompt_rows: Callable[[int], int] | None = None) -> list[Turn[S]]:
        """Give those who run their turns; `cached` tells how many of its tokens the target's cache holds of each.

        `prompt_rows` tells how many rows of prompts may go with so many sequences that decode (None: a whole chunk).
        """
        self.admit()
        held = [(sequence, cached(sequence)) for sequence in self._running]
        decoding = sum(tokens >= len(sequence.context) - 1 for sequence, tokens in held)
        left = self._chunk_tokens
        if decoding and prompt_rows is not None:
            left = min(left, prompt_rows(decoding))
        turns: list[Turn[S]] = []
        for sequence, tokens in held:
            reading = tokens < len(sequence.context) - 1
            if not reading or left > 0:
                turns.append(self._turn(sequence, tokens, left))
                left -= len(turns[-1].pending) if reading else 0
        return turns

    def _fits(self, sequence: S) -> bool:
        if self._cache_tokens is None or not self._running:
            return True
        return self.needed_tokens + self._need(sequence) + SPARE_TOKENS <= self._cache_tokens

    def _need(self, sequence: S) -> int:
        return min(len(sequence.context) + 1 + LONGEST, self._max_length)

    def _turn(self, sequence: S, cached: int, most: int) -> Turn[S]:
        pending = sequence.context[cached : cached + max(1, most)]
        complete = cached + len(pending) == len(sequence.context)
        return Turn(sequence, pending, complete, self._reach(sequence))

    def _reach(self, sequence: S) -> int:
        """A draft of D tokens emits up to D + 1, and neither `max_tokens` nor the context may be passed."""
        wanted = sequence.max_tokens - sequence.emitted - 1
        room = self._max_length - len(sequence.context) - 1
        return max(0, min(wanted, room))
