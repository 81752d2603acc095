"""A drafter that costs next to nothing: what followed the last time the text read like this?"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, cycle, islice

from soothsay.draft.base import Ask, Draft, Outlook, Reader
from soothsay.errors import OptionError

ROOT = 0
NONE = -1
REFRESH_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Match:
    """The longest suffix of a text that occurs earlier too: its length, and the end of its most recent occurrence."""

    length: int
    end: int


class SuffixAutomaton:
    """All substrings of a growing text, each with the end of its most recent occurrence (Blumer et al., 1985).

    A state is a set of substrings that end at the same places; its link leads to the longest suffix that also ends
    elsewhere. So the link of the whole text is the longest suffix that occurs earlier: the match.

    Appending takes amortised constant time: transitions are only ever added, at most 3 a token, the copies for split
    states included. A new occurrence is told to the `REFRESH_DEPTH` longest repeated suffixes. There are more of them
    only deep inside a long run of one period; the shorter ones then keep an older occurrence, still a true one.
    """

    def __init__(self) -> None:
        self.size = 0
        self.match = Match(0, 0)
        self._whole = ROOT
        self._next: list[dict[int, int]] = [{}]
        self._link: list[int] = [NONE]
        self._length: list[int] = [0]
        self._latest: list[int] = [0]

    def append(self, token: int) -> None:
        """Grow the text by one token and find its match."""
        self.size += 1
        whole = self._add(self.size, {}, ROOT, self.size)
        suffix = self._whole
        while suffix != NONE and token not in self._next[suffix]:
            self._next[suffix][token] = whole
            suffix = self._link[suffix]
        repeated = ROOT if suffix == NONE else self._extend(suffix, token)
        self._link[whole] = repeated
        self._whole = whole
        self.match = Match(self._length[repeated], self._latest[repeated])
        self._refresh(repeated)

    def _add(self, length: int, transitions: dict[int, int], link: int, latest: int) -> int:
        self._next.append(transitions)
        self._link.append(link)
        self._length.append(length)
        self._latest.append(latest)
        return len(self._next) - 1

    def _extend(self, suffix: int, token: int) -> int:
        """Find the state whose longest substring is that of `suffix` plus `token`."""
        state = self._next[suffix][token]
        if self._length[state] == self._length[suffix] + 1:
            return state
        return self._split(suffix, token, state)

    def _split(self, suffix: int, token: int, state: int) -> int:
        """Part from `state` the substrings that now end in one place more than the others."""
        length = self._length[suffix] + 1
        part = self._add(length, dict(self._next[state]), self._link[state], self._latest[state])
        self._link[state] = part
        while suffix != NONE and self._next[suffix].get(token) == state:
            self._next[suffix][token] = part
            suffix = self._link[suffix]
        return part

    def _refresh(self, state: int) -> None:
        for _ in range(REFRESH_DEPTH):
            if state == ROOT:
                return
            self._latest[state] = self.size
            state = self._link[state]


class NgramDrafter:
    """Drafts what followed the most recent occurrence of the longest repeated suffix of prompt and output.

    `min_match`: shorter matches draft nothing. One token in common says little about the next (that is a unigram's
    successor), two already do, and a wrong draft still costs a wider pass. Prompt lookup: Saxena, 2023; by suffix
    automaton: Hu et al., arXiv 2411.10666.
    """

    def __init__(self, min_match: int = 2) -> None:
        if min_match < 1:
            raise OptionError(f"min_match is {min_match}; it must be at least 1")
        self._min_match = min_match
        self._texts: dict[Reader, SuffixAutomaton] = {}
        self._readers = count()

    def open(self) -> Reader:
        reader = Reader(next(self._readers))
        self._texts[reader] = SuffixAutomaton()
        return reader

    def outlook(self, reader: Reader, context: Sequence[int]) -> Outlook | None:
        """Give the length of the match."""
        match = self._match(reader, context)
        return Outlook(match=match.length) if match.length >= self._min_match else None

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [self._guess(ask) for ask in asks]

    def close(self, reader: Reader) -> None:
        del self._texts[reader]

    def _guess(self, ask: Ask) -> Draft:
        if ask.gamma == 0:
            return Draft()
        match = self._match(ask.reader, ask.context)
        if match.length < self._min_match:
            return Draft()
        return Draft(_continuation(ask.context, match.end, ask.gamma))

    def _match(self, reader: Reader, context: Sequence[int]) -> Match:
        """Read what the context has grown by; give its longest repeated suffix."""
        text = self._texts[reader]
        for place in range(text.size, len(context)):
            text.append(context[place])
        return text.match


def _continuation(context: Sequence[int], end: int, gamma: int) -> tuple[int, ...]:
    """Give the `gamma` tokens after `end`; past the context's own end the text goes on with period `len - end`."""
    return tuple(islice(cycle(context[end : end + gamma]), gamma))
