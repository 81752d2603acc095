"""Texts that end an answer, wherever the token boundaries fall."""

from collections.abc import Iterable

from soothsay.errors import OptionError


class StopStrings:
    """Watches a growing text for the first stop string to be complete.

    What could still turn out to be the beginning of one is held back. The outcome depends on the text alone, not on
    the pieces that it comes in: the stop string that ends first counts, and of several that end together the longest.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        """Watch for any of `stops`; OptionError when one is empty."""
        self._stops = tuple(stops)
        if "" in self._stops:
            raise OptionError("a stop string is empty; legal is any text of at least one character")
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """Take more text and give what is safe to show; sets `stopped` when a stop string is complete.

        Text from the stop string on is dropped, and so is everything pushed after it.
        """
        if self.stopped:
            return ""
        seen = self._held + text
        self.stopped, shown = self._scan(seen)
        self._held = "" if self.stopped else seen[shown:]
        return seen[:shown]

    def flush(self) -> str:
        """End the text and give what was held back."""
        held, self._held = self._held, ""
        return held

    def _scan(self, seen: str) -> tuple[bool, int]:
        """Whether `seen` holds a stop string, and how many of its characters to show."""
        found = [(place + len(stop), place) for stop in self._stops if (place := seen.find(stop)) >= 0]
        if found:
            return True, min(found)[1]
        return False, len(seen) - max((_overlap(seen, stop) for stop in self._stops), default=0)


def _overlap(seen: str, stop: str) -> int:
    """Length of the longest end of `seen` that is a beginning of `stop`."""
    longest = min(len(seen), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if seen.endswith(stop[:size])), 0)
