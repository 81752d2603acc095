"""Where target, drafter, verification, schedule and text meet: one step for all requests, again and again."""

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from soothsay.assemble import Parts
from soothsay.completion import Origin, Piece, TokenLogprob
from soothsay.draft.base import Draft
from soothsay.errors import OptionError, SoothsayError
from soothsay.model.base import Feed, Logits, Slot
from soothsay.model.prefix import PrefixCache
from soothsay.record import Details, Drafted, Kept, Record, Watch
from soothsay.request import Request
from soothsay.sampling import Adjustment, Constraint, Laws, Sampling, check_tokens, logprob
from soothsay.schedule.scheduler import Scheduler, Turn
from soothsay.schedule.wish import NO_WISH, Wish
from soothsay.speculation import Proposal, Speculation
from soothsay.text.stream import TextStream
from soothsay.text.tokenizer import Wordless
from soothsay.verify.base import Verdict
from soothsay.verify.noise import Noise
from soothsay.verify.rules import Rule, verifier

if TYPE_CHECKING:
    from soothsay.text.grammar import Grammars

GREEDY = Sampling()
PLAIN, BONUS, CORRECTION = Origin(None, "plain"), Origin(None, "bonus"), Origin(None, "correction")


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much one engine takes on.

    `max_batch` requests run at once. `context` tokens, prompt and answer, are the most that one may have (None: as many
    as the model can hold). `cache_tokens` are the most that the target's cache holds (None: no bound): where it grows
    full, finished sequences give way, then the latest request, which is read again later. `kept_prefixes` finished
    sequences are kept for prompts that continue them.
    """

    max_batch: int = 32
    context: int | None = None
    cache_tokens: int | None = None
    kept_prefixes: int = 4

    def within(self, most: int) -> int:
        """Give the longest context, of a model that can hold `most` tokens; OptionError for what cannot be."""
        longest = most if self.context is None else self.context
        if not 1 < longest <= most:
            raise OptionError(f"context is {longest}; it must be from 2 to the {most} tokens that the model can hold")
        if self.cache_tokens is not None and self.cache_tokens < longest:
            raise OptionError(f"cache_tokens is {self.cache_tokens}; it must hold one context of {longest} tokens")
        if self.max_batch < 1 or self.kept_prefixes < 0:
            raise OptionError(f"max_batch is {self.max_batch}, kept_prefixes {self.kept_prefixes}; legal: 1 and 0 up")
        return longest


class Core:
    """Token ids in, pieces out: requests share the target's passes, and none of them can tell.

    It may be used from several threads. `watch` hears of each step, of its details too with `details`.
    """

    def __init__(
        self,
        parts: Parts,
        rule: Rule,
        capacity: Capacity,
        *,
        clock: Callable[[], float] = time.perf_counter,
        watch: Watch | None = None,
        details: bool = False,
    ) -> None:
        self._rule, self._watch, self._details = rule, watch, details
        self._loaded, self._model = parts.loaded, parts.model
        self._capacity = capacity
        self.max_length = capacity.within(self._model.max_length)
        self._speculation = Speculation(parts.drafters, parts.policy, clock)
        self._scheduler: Scheduler[Request] = Scheduler(
            max_length=self.max_length, max_batch=capacity.max_batch, cache_tokens=capacity.cache_tokens
        )
        self._prefixes = PrefixCache(self._model, capacity.kept_prefixes)
        self._clock = clock
        self._numbers = count()
        self._grammars: Grammars | None = None
        self._lock = threading.RLock()
        self._leaving: list[Request] = []
        self._depth = 0

    @property
    def drafters(self) -> tuple[str, ...]:
        """The names of those that guess."""
        return self._speculation.names

    def vet(self, sampling: Sampling) -> None:
        """Raise OptionError for what this model cannot do of it, and have its grammar ready; fit for any thread."""
        check_tokens(sampling, self._model.vocab_size)
        self._constraint(sampling)

    def pass_seconds(self, rows: int, sequences: int) -> float | None:
        """Give what a pass of the target over so many rows takes at the moment; None where nobody has measured."""
        return self._speculation.pass_seconds(rows, sequences)

    def submit(
        self,
        tokens: Sequence[int],
        sampling: Sampling = GREEDY,
        *,
        verify: str | None = None,
        wish: Wish = NO_WISH,
    ) -> Request:
        """Let a prompt from `encode` join the next step; whoever calls `step` reads the request's pieces.

        `verify` and `wish` are for this request alone.
        """
        return self._submit(list(tokens), sampling, Rule(verify) if verify is not None else None, wish)

    def cancel(self, requests: Iterable[Request]) -> None:
        """End what has not ended by itself, each once; it takes no part in the next step."""
        self._drop(requests)

    @property
    def held_tokens(self) -> int:
        """Tokens in the target's cache, those that sequences share counted for each."""
        requests = (*self._scheduler.running, *self._scheduler.waiting)
        return sum(self._model.length(request.slot) for request in requests) + self._prefixes.held_tokens

    def check(self) -> None:
        """Raise AssertionError where the books do not agree; for tests, between steps."""
        with self._held():
            running, waiting = self._scheduler.running, self._scheduler.waiting
            requests = (*running, *waiting)
            slots = [*(request.slot for request in requests), *self._prefixes.slots]
            assert len(set(slots)) == len(slots), "a slot has two owners"
            assert not any(request.ended for request in requests), "a request that has ended still runs"
            for request in requests:
                held = self._model.length(request.slot)
                assert held < len(request.context) <= self.max_length, "a slot holds more than its text"
                assert request.emitted <= request.max_tokens, "a request has more tokens than it asked for"
            if self._capacity.cache_tokens is not None:
                assert self.held_tokens <= self._capacity.cache_tokens, "more is held than the cache may hold"

    def step(self) -> None:
        """Run one step for every running request: plan, propose, forward, verify, commit."""
        with self._held():
            self._seat()
            turns = self._scheduler.plan(
                lambda request: self._model.length(request.slot), self._speculation.prompt_rows
            )
            try:
                self._run(turns)
            finally:
                for turn in turns:
                    self._settle(turn.sequence)

    def _seat(self) -> None:
        """Let requests in, each from what the cache has of it already, and keep the cache within its bound.

        Finished sequences give way first, then the latest running ones.
        """
        for request in self._scheduler.preempt():
            self._change_slot(request, self._model.open())
        for request in self._scheduler.admit():
            others = [(one.slot, one.context) for one in self._scheduler.running if one is not request]
            self._change_slot(request, self._prefixes.open(request.context, others))
            if request.emitted == 0:
                request.cached_tokens = self._model.length(request.slot)
        if self._capacity.cache_tokens is not None:
            self._prefixes.shrink(max(0, self._capacity.cache_tokens - self._scheduler.needed_tokens))

    def _change_slot(self, request: Request, slot: Slot) -> None:
        self._model.close(request.slot)
        request.slot = slot

    def _run(self, turns: Sequence[Turn[Request]]) -> None:
        begun = self._clock()
        proposal = self._speculation.propose(turns)
        proposed = self._clock()
        feeds = [_feed(turn, draft) for turn, draft in zip(turns, proposal.drafts, strict=True)]
        logits = self._model.forward(feeds)
        computed = self._clock()
        kept: dict[int, Kept] = {}
        for place, turn in enumerate(turns):
            turn.sequence.spent.draft_seconds += proposed - begun
            turn.sequence.spent.target_seconds += computed - proposed
            if turn.complete:
                kept[place] = self._commit(turn.sequence, proposal, place, logits[place])
        emitted = {place: (one.accepted, len(one.pieces)) for place, one in kept.items()}
        self._speculation.learn(proposal, emitted, self._clock() - proposed)
        if self._watch is not None:
            seconds = (proposed - begun, computed - proposed, sum(one.verify_seconds for one in kept.values()))
            drafts = tuple(self._drafted(turns[place].sequence, proposal, place, kept[place]) for place in kept)
            self._watch(Record(sum(len(feed.tokens) for feed in feeds), drafts, *seconds))

    def _commit(self, request: Request, proposal: Proposal, place: int, rows: Logits) -> Kept:
        """Judge the draft and emit what is kept; an error that one request's options make ends that request alone."""
        draft, start, begun = proposal.drafts[place], len(request.context), self._clock()
        laws = Laws(rows, request.sampling, request.adjust, draft.tokens)
        try:
            verdict = request.verifier.verify(laws, draft.tokens, draft.laws, start)
            shown = _logprobs(verdict.tokens, rows, laws, request.sampling)
        except SoothsayError as error:
            request.error = error
            return Kept(laws, None, (), self._clock() - begun)
        now = self._clock()
        request.spent.add(drafted=len(draft.tokens), verify_seconds=now - begun)
        origins = _origins(draft, verdict, proposal.author(place)[0], told=request.sampling.logprobs is not None)
        pieces: list[Piece] = []
        for token, origin, entry in zip(verdict.tokens, origins, shown, strict=True):
            pieces.append(request.emit(token, origin, now, entry))
            if request.completion is not None:
                break
        return Kept(laws, verdict, tuple(pieces), now - begun)

    def _drafted(self, request: Request, proposal: Proposal, place: int, kept: Kept) -> Drafted:
        draft, emitted = proposal.drafts[place], len(kept.pieces)
        drafter, gamma = proposal.author(place)
        told = None
        if self._details:
            debt = self._speculation.debt_seconds(request)
            told = Details(request, len(request.context) - emitted, gamma, draft, kept, debt)
        return Drafted(drafter, len(draft.tokens), min(kept.accepted, emitted), emitted, told)

    def _settle(self, request: Request) -> None:
        """Roll the cache back to all but the last token, also when the step was interrupted; let go at the end."""
        held = min(self._model.length(request.slot), len(request.context) - 1)
        self._model.truncate(request.slot, held)
        if request.ended:
            self._retire(request)

    def _submit(
        self, context: list[int], sampling: Sampling, rule: Rule | None = None, wish: Wish = NO_WISH
    ) -> Request:
        """Let a context wait for its turn."""
        with self._held():
            seed = secrets.randbits(64) if sampling.seed is None else int(sampling.seed)
            words = TextStream(
                self._loaded.tokenizer if self._loaded else Wordless(),
                sampling.stop,
                sampling.max_tokens,
                stop_ids=sampling.stop_ids,
                ignore_ends=sampling.ignore_eos,
            )
            constraint = self._constraint(sampling)
            adjust = Adjustment.of(
                sampling, context, len(context), self._model.vocab_size, words.ending_ids, constraint
            )
            readers = self._speculation.open()
            request = Request(
                number=next(self._numbers),
                context=context,
                prompt_tokens=len(context),
                max_tokens=sampling.max_tokens,
                sampling=sampling,
                adjust=adjust,
                seed=seed,
                verifier=verifier(rule or self._rule, Noise(seed, sampling.sample)),
                slot=self._model.open(),
                readers=readers,
                words=words,
                max_length=self.max_length,
                cached_tokens=0,
                started=self._clock(),
                wish=wish,
            )
            self._scheduler.add(request)
            return request

    def _constraint(self, sampling: Sampling) -> Constraint | None:
        if sampling.grammar is None:
            return None
        if self._loaded is None:
            raise OptionError("this engine has no tokenizer; a grammar needs one")
        if self._grammars is None:
            from soothsay.text.grammar import Grammars  # which few need, and takes a while to load

            self._grammars = Grammars(self._loaded.tokenizer, self._model.vocab_size)
        return self._grammars.start(sampling.grammar)

    def _drop(self, requests: Iterable[Request]) -> None:
        """End what has not ended by itself."""
        with self._held():
            self._leaving.extend(request for request in requests if not request.ended)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the engine; what is dropped meanwhile leaves at the end.

        The garbage collector may drop a stream at any point of a step, in the very thread that runs it.
        """
        with self._lock:
            self._depth += 1
            try:
                yield
            finally:
                try:
                    self._part()
                finally:
                    self._depth -= 1

    def _part(self) -> None:
        """Let those go that were dropped, unless a step is still at work with them."""
        while self._depth == 1 and self._leaving:
            request = self._leaving.pop()
            if not request.ended:
                self._retire(request)

    def _retire(self, request: Request) -> None:
        self._scheduler.remove(request)
        self._speculation.close(request)
        self._prefixes.keep(request.slot, request.context)


def _feed(turn: Turn[Request], draft: Draft) -> Feed:
    rows = len(draft.tokens) + 1 if turn.complete else 0
    return Feed(turn.sequence.slot, [*turn.pending, *draft.tokens], rows)


def _origins(draft: Draft, verdict: Verdict, drafter: str | None, *, told: bool) -> Iterator[Origin]:
    """Tell where each token of a verdict came from; the probabilities of drafts too where they are to be told."""
    for place in range(verdict.accepted):
        yield Origin(drafter, None, draft.probability(place) if told else None)
    if not draft.tokens:
        yield PLAIN
    else:
        yield BONUS if verdict.accepted == len(draft.tokens) else CORRECTION


def _logprobs(tokens: Sequence[int], rows: Logits, laws: Laws, sampling: Sampling) -> Sequence[TokenLogprob | None]:
    if sampling.logprobs is None:
        return [None] * len(tokens)
    return [logprob(token, rows[place], laws[place], sampling) for place, token in enumerate(tokens)]
