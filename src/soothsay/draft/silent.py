"""The drafter of plain decoding."""

from collections.abc import Sequence

from soothsay.draft.base import Ask, Draft, Reader


class SilentDrafter:
    """Never guesses."""

    def open(self) -> Reader:
        return Reader(0)

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [Draft() for _ in asks]

    def close(self, reader: Reader) -> None:
        pass
