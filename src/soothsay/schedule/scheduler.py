"""Who runs in the next step, what is fed, and how far a draft may go. Decides; touches no array."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from soothsay.schedule.sequence import Sequence

S = TypeVar("S", bound=Sequence)


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
    """Runs up to `max_batch` sequences at once, the others in order of arrival; long prompts go in chunks."""

    def __init__(self, *, max_length: int, max_batch: int = 32, chunk_tokens: int = 256) -> None:
        self._max_length = max_length
        self._max_batch = max_batch
        self._chunk_tokens = chunk_tokens
        self._waiting: deque[S] = deque()
        self._running: list[S] = []

    def add(self, sequence: S) -> None:
        self._waiting.append(sequence)

    def remove(self, sequence: S) -> None:
        (self._running if sequence in self._running else self._waiting).remove(sequence)

    def plan(self, cached: Callable[[S], int]) -> list[Turn[S]]:
        """Give each running sequence its turn; `cached` tells how many of its tokens the target's cache holds."""
        while self._waiting and len(self._running) < self._max_batch:
            self._running.append(self._waiting.popleft())
        return [self._turn(sequence, cached(sequence)) for sequence in self._running]

    def _turn(self, sequence: S, cached: int) -> Turn[S]:
        pending = sequence.context[cached : cached + self._chunk_tokens]
        complete = cached + len(pending) == len(sequence.context)
        return Turn(sequence, pending, complete, self._reach(sequence))

    def _reach(self, sequence: S) -> int:
        """A draft of D tokens emits up to D + 1, and neither `max_tokens` nor the context may be passed."""
        wanted = sequence.max_tokens - sequence.emitted - 1
        room = self._max_length - len(sequence.context) - 1
        return max(0, min(wanted, room))
