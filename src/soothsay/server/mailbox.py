"""From the engine's thread to the event loop: pieces that wait to be read, up to a bound."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from soothsay.completion import Piece
from soothsay.server.refusals import Broken

MOST_UNREAD = 4096
"""Pieces of one answer that may wait for its client; whoever reads more slowly than that is let go."""


class Letter(NamedTuple):
    """A piece of one answer, by the answer's number."""

    answer: int
    piece: Piece


class Mailbox:
    """What the answers of one request bring, in order of arrival; read in the event loop that it was made in."""

    def __init__(self, most_unread: int = MOST_UNREAD) -> None:
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._letters: deque[Letter] = deque()
        self._error: Exception | None = None
        self._most = most_unread

    def slot(self, answer: int) -> "Slot":
        """Give what the runner calls for an answer."""
        return Slot(self, answer)

    async def take(self) -> list[Letter]:
        """Wait for letters and take all there are; raises the error that ended an answer, after the last letter."""
        while not self._letters:
            if self._error is not None:
                raise self._error
            self._news.clear()
            await self._news.wait()
        return [self._letters.popleft() for _ in range(len(self._letters))]

    def put(self, letters: Sequence[Letter]) -> bool:
        """Leave letters, from any thread; False when too many lie there unread."""
        if len(self._letters) + len(letters) > self._most:
            self.fail(Broken("the answer was read too slowly", code="slow_reader"))
            return False
        self._letters.extend(letters)
        return self._wake()

    def fail(self, error: Exception) -> None:
        """Leave word, from any thread, that there will be no more."""
        self._error = self._error or error
        self._wake()

    def _wake(self) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._news.set)
        except RuntimeError:  # the loop is closed: nobody reads any more
            return False
        return True


class Slot:
    """The runner's end of a mailbox, for one answer."""

    def __init__(self, mailbox: Mailbox, answer: int) -> None:
        self._mailbox = mailbox
        self._answer = answer

    def hear(self, pieces: Sequence[Piece]) -> bool:
        return self._mailbox.put([Letter(self._answer, piece) for piece in pieces])

    def fail(self, error: Exception) -> None:
        self._mailbox.fail(error)
