"""A drafter that is a model itself: smaller than the target, and right often enough."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from math import exp

from soothsay.draft.base import Ask, Draft, Outlook, Reader
from soothsay.errors import OptionError
from soothsay.model.base import Feed, Logits, Model, Slot
from soothsay.patience import ENDLESS
from soothsay.sampling import Law, Sampling, law

CHUNK_TOKENS = 512
COMMON_TOKENS = 49_152
"""Ids below it are a vocabulary's common tokens: byte-pair encodings number them as they merge them, commonest first.

Guessing among them alone reads a third of a large output matrix, which makes a drafted token a fifth cheaper
(Qwen2.5-Coder-0.5B, 151,936 tokens) and costs about one of ninety points of acceptance.
"""
RECENT_TOKENS, RARE_TOKENS = 64, 6
"""A text with more rare tokens than that among its latest is in another language: all are guessed from."""
SHOWN = Sampling(temperature=1.0)
"""What a greedy draft's confidence is taken from; its own laws are certain of everything."""


@dataclass(slots=True)
class Place:
    """Where one sequence stands in the draft model.

    The slot holds context[start:known], then `guesses`: its own drafts, which the context may or may not have taken up.
    """

    slot: Slot
    start: int = 0
    known: int = 0
    guesses: list[int] = field(default_factory=list)
    foreign: bool = False

    def held(self, context: Sequence[int]) -> int:
        """Give how much of the context the slot's content reaches; its last token is always to be fed."""
        taken_up = _common(self.guesses, context[self.known : self.known + len(self.guesses)])
        return min(self.known + taken_up, len(context) - 1)


@dataclass(slots=True)
class Work:
    """One ask on its way to a draft of up to `wanted` tokens.

    `unread` is what the model must see before the next one; `survival` the chance that all so far are accepted.
    """

    ask: Ask
    place: Place
    wanted: int
    unread: Sequence[int]
    tokens: list[int] = field(default_factory=list)
    laws: list[Law] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)
    survival: float = 1.0

    @property
    def ended(self) -> bool:
        return len(self.tokens) >= self.wanted or self.survival < self.ask.patience.least


class ModelDrafter:
    """Drafts with a second model over the same tokens; either vocabulary may have more padding than the other.

    All asks go through the model together, one pass for each drafted position. `top_k` cuts each law to its likeliest
    tokens before drawing, of the vocabulary's common ones while the text has few others (None: no cut of either kind).
    That keeps the verifier's work small and its promise whole, since the law recorded is the one drawn from. At
    temperature 0 the laws are point masses and none are recorded.

    An ask with a `window` waits for no more than so many tokens to be read: the model starts anew from the latest ones.
    A draft ends early where the ask's patience does or where the draft model's own context ends, and is empty for a
    sequence with a token beyond its vocabulary.
    """

    def __init__(self, model: Model, target_vocab_size: int, top_k: int | None = 32) -> None:
        if top_k is not None and top_k < 1:
            raise OptionError(f"the draft model's top_k is {top_k}; it must be at least 1, or None for no cut")
        self._model = model
        self._vocab_size = min(model.vocab_size, target_vocab_size)
        self._top_k = top_k
        self._places: dict[Reader, Place] = {}
        self._readers = count()

    @property
    def model(self) -> Model:
        """The model that drafts."""
        return self._model

    def open(self) -> Reader:
        reader = Reader(next(self._readers))
        self._places[reader] = Place(self._model.open())
        return reader

    def close(self, reader: Reader) -> None:
        self._model.close(self._places.pop(reader).slot)

    def outlook(self, reader: Reader, context: Sequence[int]) -> Outlook | None:
        """Give what is unread, beyond the one token that each pass reads anyway."""
        place = self._places[reader]
        if place.foreign or len(context) > self._model.max_length:
            return None
        return Outlook(lag_tokens=len(context) - place.held(context) - 1)

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return self._drafts([self._begin(ask) for ask in asks])

    def _drafts(self, works: Sequence[Work]) -> list[Draft]:
        while active := [work for work in works if not work.ended]:
            feeds = [self._feed(work) for work in active]
            for work, feed, logits in zip(active, feeds, self._model.forward(feeds), strict=True):
                self._advance(work, feed, logits)
        return [_draft(work) for work in works]

    def _begin(self, ask: Ask) -> Work:
        place, room = self._places[ask.reader], self._model.max_length - len(ask.context) + 1
        wanted = 0 if place.foreign else min(ask.gamma, room)
        unread = self._catch_up(place, ask) if wanted > 0 else ()
        return Work(ask, place, 0 if place.foreign else wanted, unread)

    def _catch_up(self, place: Place, ask: Ask) -> Sequence[int]:
        """Roll back the guesses that the context did not take up; give what it has beyond, the last token at least."""
        place.known = place.held(ask.context)
        place.guesses = []
        if ask.window is not None and place.known + ask.window + 1 < len(ask.context):
            place.start = place.known = len(ask.context) - ask.window - 1
        self._model.truncate(place.slot, place.known - place.start)
        unread = ask.context[place.known :]
        place.foreign = max(unread) >= self._model.vocab_size
        return unread

    def _feed(self, work: Work) -> Feed:
        """Give the next bounded chunk of what is unread, with logits when it is the last one."""
        chunk = work.unread[:CHUNK_TOKENS]
        columns = None if self._top_k is None else _columns(work.ask.context)
        return Feed(work.place.slot, chunk, int(len(chunk) == len(work.unread)), columns)

    def _advance(self, work: Work, feed: Feed, logits: Logits) -> None:
        """Note what the model has read, and draw the next token once it has read all."""
        if work.tokens:
            work.place.guesses.extend(feed.tokens)
        else:
            work.place.known += len(feed.tokens)
        work.unread = work.unread[len(feed.tokens) :]
        if feed.rows:
            self._draw(work, logits)

    def _draw(self, work: Work, logits: Logits) -> None:
        row, ask = logits[0, : self._vocab_size], work.ask
        if ask.adjust is not None:
            adjusted = ask.adjust(row, work.tokens)
            if adjusted is None:
                work.wanted = len(work.tokens)
                return
            row = adjusted
        drawn_from = law(row, ask.sampling, limit=self._top_k)
        token = ask.draw(drawn_from, len(ask.context) + len(work.tokens))
        work.tokens.append(token)
        work.laws.append(drawn_from)
        work.unread = (token,)
        if ask.patience is not ENDLESS:
            shown = law(row, SHOWN, limit=self._top_k) if ask.sampling.temperature == 0 else drawn_from
            work.confidences.append(exp(shown.log_probabilities.max()))
            work.survival *= ask.patience.chance(work.confidences[-1])


def _columns(context: Sequence[int]) -> int | None:
    """Give how many tokens to guess from: the common ones, or (None) all where others are not rare."""
    rare = sum(token >= COMMON_TOKENS for token in context[-RECENT_TOKENS:])
    return COMMON_TOKENS if rare <= RARE_TOKENS else None


def _draft(work: Work) -> Draft:
    laws = None if work.ask.sampling.temperature == 0 else tuple(work.laws)
    return Draft(tuple(work.tokens), laws, tuple(work.confidences))


def _common(guesses: Sequence[int], tokens: Sequence[int]) -> int:
    """Count the leading tokens that two sequences share."""
    for place, (guess, token) in enumerate(zip(guesses, tokens, strict=False)):
        if guess != token:
            return place
    return min(len(guesses), len(tokens))
