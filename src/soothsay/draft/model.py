"""A drafter that is a model itself: smaller than the target, and right often enough."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from soothsay.draft.base import Ask, Draft, Outlook, Reader
from soothsay.errors import OptionError
from soothsay.model.base import Feed, Logits, Model, Slot
from soothsay.sampling import Law, law

CHUNK_TOKENS = 512


@dataclass(slots=True)
class _Place:
    """Where one sequence stands in the draft model.

    The slot holds context[start:known], then `guesses`: its own drafts, which the context may or may not have taken up.
    While `start` is above 0, `whole` reads the context from its beginning: context[:whole_known] so far.
    """

    slot: Slot
    start: int = 0
    known: int = 0
    guesses: list[int] = field(default_factory=list)
    whole: Slot | None = None
    whole_known: int = 0
    foreign: bool = False

    def held(self, context: Sequence[int]) -> int:
        """Give how much of the context the slot's content reaches; its last token is always to be fed."""
        taken_up = _common(self.guesses, context[self.known : self.known + len(self.guesses)])
        return min(self.known + taken_up, len(context) - 1)


@dataclass(slots=True)
class _Work:
    """One ask on its way to a draft of `wanted` tokens; `unread` is what the model must see before the next one."""

    ask: Ask
    place: _Place
    wanted: int
    unread: Sequence[int]
    tokens: list[int] = field(default_factory=list)
    laws: list[Law] = field(default_factory=list)
    read_tokens: int = 0


class ModelDrafter:
    """Drafts with a second model over the same tokens; either vocabulary may have more padding than the other.

    All asks go through the model together, one pass for each drafted position. `top_k` cuts each law to its likeliest
    tokens before drawing (None: no cut), which keeps the verifier's work small and its promise whole, since the law
    recorded is the one drawn from. At temperature 0 the laws are point masses and none are recorded.

    With a `window`, a draft never waits for more than so many tokens to be read: the model starts from the most recent
    ones, and reads the context from its beginning as far as each ask allows. None reads all before the first guess.

    A draft is shorter where the draft model's own context ends, and empty for a sequence with a token beyond its
    vocabulary.
    """

    def __init__(self, model: Model, target_vocab_size: int, top_k: int | None = 32, window: int | None = None) -> None:
        if top_k is not None and top_k < 1:
            raise OptionError(f"the draft model's top_k is {top_k}; it must be at least 1, or None for no cut")
        self._model = model
        self._vocab_size = min(model.vocab_size, target_vocab_size)
        self._top_k = top_k
        self._window = window
        self._places: dict[Reader, _Place] = {}
        self._readers = count()

    @property
    def model(self) -> Model:
        """The model that drafts."""
        return self._model

    def open(self) -> Reader:
        reader = Reader(next(self._readers))
        self._places[reader] = _Place(self._model.open())
        return reader

    def close(self, reader: Reader) -> None:
        place = self._places.pop(reader)
        self._model.close(place.slot)
        if place.whole is not None:
            self._model.close(place.whole)

    def outlook(self, reader: Reader, context: Sequence[int]) -> Outlook | None:
        """Give what must be read before the first guess, beyond the one token that each pass reads anyway."""
        place = self._places[reader]
        if place.foreign or len(context) > self._model.max_length:
            return None
        unread = len(context) - place.held(context)
        return Outlook(lag_tokens=(unread if self._window is None else min(unread, self._window)) - 1)

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        works = [self._begin(ask) for ask in asks]
        while active := [work for work in works if len(work.tokens) < work.wanted]:
            feeds = [_feed(work) for work in active]
            for work, feed, logits in zip(active, feeds, self._model.forward(feeds), strict=True):
                self._advance(work, feed, logits)
        for work in works:
            self._read_on(work)
        return [_draft(work) for work in works]

    def _begin(self, ask: Ask) -> _Work:
        place, room = self._places[ask.reader], self._model.max_length - len(ask.context) + 1
        wanted = 0 if place.foreign else min(ask.gamma, room)
        unread = self._catch_up(place, ask.context) if wanted > 0 else ()
        return _Work(ask, place, 0 if place.foreign else wanted, unread)

    def _catch_up(self, place: _Place, context: Sequence[int]) -> Sequence[int]:
        """Roll back the guesses that the context did not take up; give what it has beyond, the last token at least."""
        place.known = place.held(context)
        place.guesses = []
        self._model.truncate(place.slot, place.known - place.start)
        if self._window is not None and len(context) - place.known > self._window:
            self._start_anew(place, len(context) - self._window)
        unread = context[place.known :]
        place.foreign = max(unread) >= self._model.vocab_size
        return unread

    def _start_anew(self, place: _Place, start: int) -> None:
        """Begin a window; a slot that reads from the context's beginning is kept to read on."""
        if place.start == 0:
            place.whole, place.whole_known = place.slot, place.known
        else:
            self._model.close(place.slot)
        place.slot, place.start, place.known = self._model.open(), start, start

    def _read_on(self, work: _Work) -> None:
        """Read of the skipped context what the ask allows; once the whole is nearly read, go on from there."""
        place, context = work.place, work.ask.context
        if place.whole is None or self._window is None or not work.tokens:
            return
        part = context[place.whole_known : min(place.whole_known + work.ask.reading, len(context) - 1)]
        if not part or max(part) >= self._model.vocab_size:
            return
        self._model.forward([Feed(place.whole, part, rows=0)])
        place.whole_known += len(part)
        work.read_tokens = len(part)
        if len(context) - place.whole_known <= self._window // 2:
            self._model.close(place.slot)
            place.slot, place.start, place.known, place.guesses = place.whole, 0, place.whole_known, []
            place.whole, place.whole_known = None, 0

    def _advance(self, work: _Work, feed: Feed, logits: Logits) -> None:
        """Note what the model has read, and draw the next token once it has read all."""
        if work.tokens:
            work.place.guesses.extend(feed.tokens)
        else:
            work.place.known += len(feed.tokens)
        work.unread = work.unread[len(feed.tokens) :]
        if feed.rows:
            self._draw(work, logits)

    def _draw(self, work: _Work, logits: Logits) -> None:
        drawn_from = law(logits[0, : self._vocab_size], work.ask.sampling, limit=self._top_k)
        token = work.ask.draw(drawn_from, len(work.ask.context) + len(work.tokens))
        work.tokens.append(token)
        work.laws.append(drawn_from)
        work.unread = (token,)


def _feed(work: _Work) -> Feed:
    """Give the next bounded chunk of what is unread, with logits when it is the last one."""
    chunk = work.unread[:CHUNK_TOKENS]
    return Feed(work.place.slot, chunk, rows=int(len(chunk) == len(work.unread)))


def _draft(work: _Work) -> Draft:
    laws = None if work.ask.sampling.temperature == 0 else tuple(work.laws)
    return Draft(tuple(work.tokens), laws, work.read_tokens)


def _common(guesses: Sequence[int], tokens: Sequence[int]) -> int:
    """Count the leading tokens that two sequences share."""
    for place, (guess, token) in enumerate(zip(guesses, tokens, strict=False)):
        if guess != token:
            return place
    return min(len(guesses), len(tokens))
