"""Where target, drafter, verification, schedule and text meet."""

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Self, overload

from soothsay.assemble import DRAFT_TOP_K, Gamma, Parts, assemble
from soothsay.completion import Completion, Piece, Source, TokenLogprob
from soothsay.draft.base import Draft, Drafter
from soothsay.errors import ContextFull, OptionError, SoothsayError
from soothsay.model.base import Feed, Logits, Model, Slot
from soothsay.model.prefix import PrefixCache
from soothsay.prompt import Encoder, Prompt, is_prompt
from soothsay.record import Details, Drafted, Kept, Record, Watch
from soothsay.request import Request
from soothsay.sampling import Adjustment, Laws, Sampling, logprob
from soothsay.schedule.scheduler import Scheduler, Turn
from soothsay.speculation import Proposal, Speculation
from soothsay.text.stream import TextStream
from soothsay.text.tokenizer import Wordless
from soothsay.verify.noise import Noise
from soothsay.verify.rules import Rule, verifier

GREEDY = Sampling()

KEPT_PREFIXES = 4
"""Finished sequences that are kept for prompts that continue them."""


class Engine:
    """Generates with a target model, helped by a drafter, in the target's own words.

    `model` is a path, an alias, or an object with the `Model` protocol (then prompts are token ids). `draft` is
    "auto" (the model's usual draft model where the cache folder has it), "none", "ngram", "self" (the target's own
    weights in 4 bits), the path or alias of a draft model, or an object with the `Drafter` protocol. `gamma` tokens are
    guessed a step; "auto" guesses as many as measurement says will pay, by n-gram too wherever a model drafts. Guesses
    are judged by the rule `verify`: "coupled", "block" or "token". `draft_top_k` and `draft_requantise` make a draft
    model lighter (None and False: as it is). None of these changes the law of the output; with "coupled" none changes
    a token. `clock` gives seconds; `trace`, a `Tracer` for instance, hears of each step in detail.

    One engine may be used from several threads; their requests then share its steps.
    """

    def __init__(
        self,
        model: str | Path | Model,
        *,
        draft: str | Path | Drafter = "auto",
        gamma: Gamma = "auto",
        verify: str = "coupled",
        threads: int | None = None,
        draft_top_k: int | None = DRAFT_TOP_K,
        draft_requantise: bool = True,
        clock: Callable[[], float] = time.perf_counter,
        trace: Watch | None = None,
    ) -> None:
        rule = Rule(verify)
        parts = assemble(
            model, draft, gamma, threads=threads, top_k=draft_top_k, requantise=draft_requantise, clock=clock
        )
        self._begin(parts, rule, clock, KEPT_PREFIXES, trace, details=True)

    @classmethod
    def of(
        cls,
        parts: Parts,
        *,
        verify: str = "coupled",
        clock: Callable[[], float] = time.perf_counter,
        kept_prefixes: int = KEPT_PREFIXES,
        watch: Watch | None = None,
        details: bool = False,
    ) -> Self:
        """Make an engine of what is already there, so that two of them can run one model.

        `kept_prefixes` finished sequences are kept for prompts that continue them; `watch` hears of each step, of its
        details too with `details`.
        """
        engine = cls.__new__(cls)
        engine._begin(parts, Rule(verify), clock, kept_prefixes, watch, details)
        return engine

    def _begin(
        self,
        parts: Parts,
        rule: Rule,
        clock: Callable[[], float],
        kept_prefixes: int,
        watch: Watch | None,
        details: bool,
    ) -> None:
        self._rule, self._watch, self._details = rule, watch, details
        self._loaded, self._model = parts.loaded, parts.model
        self._speculation = Speculation(parts.drafters, parts.policy, clock)
        self._encoder = Encoder(self._loaded, self._model.vocab_size, self._model.max_length)
        self._scheduler: Scheduler[Request] = Scheduler(max_length=self._model.max_length)
        self._prefixes = PrefixCache(self._model, kept_prefixes)
        self._clock = clock
        self._numbers = count()
        self._lock = threading.RLock()
        self._leaving: list[Request] = []
        self._depth = 0

    @overload
    def generate(  # type: ignore[overload-overlap]  # a text is a sequence of texts, but it is one prompt
        self, prompts: Prompt, sampling: Sampling = ..., *, raw: bool = ..., system: str | None = ...
    ) -> Completion: ...
    @overload
    def generate(
        self, prompts: Sequence[Prompt], sampling: Sampling = ..., *, raw: bool = ..., system: str | None = ...
    ) -> list[Completion]: ...
    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling: Sampling = GREEDY,
        *,
        raw: bool = False,
        system: str | None = None,
    ) -> Completion | list[Completion]:
        """Answer one prompt, or many in one ragged batch.

        A text becomes the user's message of a chat, after the `system` message; `raw` continues it as it is.
        Raises PromptError for a prompt that cannot be answered, and ContextFull, with all answers in its
        `completions`, when one of them reached the model's context length.
        """
        if is_prompt(prompts):
            return self._answers([prompts], sampling, raw, system)[0]
        return self._answers(prompts, sampling, raw, system)  # type: ignore[arg-type]  # many, then

    def samples(
        self,
        prompt: Prompt,
        count: int,
        sampling: Sampling = GREEDY,
        *,
        raw: bool = False,
        system: str | None = None,
    ) -> list[Completion]:
        """Answer one prompt `count` times in one batch, each time with noise of its own; the prompt is read once.

        The answers are those of one seed and of `count` samples from `sampling.sample` on. Errors as in `generate`.
        """
        if not isinstance(count, int) or count < 1:
            raise OptionError(f"the number of samples is {count!r}; it must be an integer, 1 or more")
        context = self._encoder.encode(prompt, raw=raw, system=system)
        seed = secrets.randbits(64) if sampling.seed is None else sampling.seed
        branches = [replace(sampling, seed=seed, sample=sampling.sample + place) for place in range(count)]
        return self._all(self._branches(context, branches))

    def stream(
        self, prompt: Prompt, sampling: Sampling = GREEDY, *, raw: bool = False, system: str | None = None
    ) -> Iterator[Piece]:
        """Answer one prompt piece by piece; options and errors as in `generate`, the prompt checked at once."""
        return self._pieces(self._encoder.encode(prompt, raw=raw, system=system), sampling)

    def step(self) -> None:
        """Run one step for every running request: plan, propose, forward, verify, commit."""
        with self._held():
            turns = self._scheduler.plan(lambda request: self._model.length(request.slot))
            try:
                self._run(turns)
            finally:
                for turn in turns:
                    self._settle(turn.sequence)

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
                kept[place] = self._commit(turn.sequence, proposal.drafts[place], logits[place])
        emitted = {place: (one.accepted, len(one.pieces)) for place, one in kept.items()}
        self._speculation.learn(proposal, emitted, self._clock() - proposed)
        if self._watch is not None:
            seconds = (proposed - begun, computed - proposed, sum(one.verify_seconds for one in kept.values()))
            drafts = tuple(self._drafted(turns[place].sequence, proposal, place, kept[place]) for place in kept)
            self._watch(Record(sum(len(feed.tokens) for feed in feeds), drafts, *seconds))

    def _commit(self, request: Request, draft: Draft, rows: Logits) -> Kept:
        """Judge the draft and emit what is kept; an error that one request's options make ends that request alone."""
        start, begun = len(request.context), self._clock()
        laws = Laws(rows, request.sampling, request.adjust, draft.tokens)
        try:
            verdict = request.verifier.verify(laws, draft.tokens, draft.laws, start)
            shown = _logprobs(verdict.tokens, rows, laws, request.sampling)
        except SoothsayError as error:
            request.error = error
            return Kept(laws, None, (), self._clock() - begun)
        now = self._clock()
        request.spent.add(drafted=len(draft.tokens), verify_seconds=now - begun)
        pieces: list[Piece] = []
        for place, token in enumerate(verdict.tokens):
            source: Source = "draft" if place < verdict.accepted else "model"
            pieces.append(request.emit(token, source, now, shown[place]))
            if request.completion is not None:
                break
        return Kept(laws, verdict, tuple(pieces), now - begun)

    def _drafted(self, request: Request, proposal: Proposal, place: int, kept: Kept) -> Drafted:
        choice, draft, emitted = proposal.choices.get(place), proposal.drafts[place], len(kept.pieces)
        drafter, gamma = (None, 0) if choice is None else (choice.drafter, choice.gamma)
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

    def _answers(
        self, prompts: Sequence[Prompt], sampling: Sampling, raw: bool, system: str | None
    ) -> list[Completion]:
        contexts = [self._encoder.encode(prompt, raw=raw, system=system) for prompt in prompts]
        return self._all(self._submit(context, sampling) for context in contexts)

    def _all(self, asked: Iterable[Request]) -> list[Completion]:
        """Run requests to their ends, all of them submitted before the first one ends."""
        requests: list[Request] = []
        try:
            requests.extend(asked)
            for request in requests:
                while not request.ended:
                    self.step()
        finally:
            self._drop(requests)
        return self._whole(requests)

    def _branches(self, context: list[int], samplings: Sequence[Sampling]) -> Iterator[Request]:
        """Submit one context several times: once the first has read it, the others start from its cache."""
        first = self._submit(context, samplings[0])
        yield first
        while len(samplings) > 1 and first.emitted == 0 and not first.ended:
            self.step()
        for sampling in samplings[1:]:
            yield self._submit(list(first.context[: first.prompt_tokens]), sampling, first)

    def _pieces(self, context: list[int], sampling: Sampling) -> Iterator[Piece]:
        request = self._submit(context, sampling)
        try:
            while not request.ended or request.pieces:
                while request.pieces:
                    yield request.pieces.popleft()
                if not request.ended:
                    self.step()
        finally:
            self._drop([request])
        self._whole([request])

    def _submit(self, context: list[int], sampling: Sampling, origin: Request | None = None) -> Request:
        """Let a context in; where `origin` is still running, whose prompt it is, it starts from that one's cache."""
        with self._held():
            seed = secrets.randbits(64) if sampling.seed is None else int(sampling.seed)
            words = TextStream(
                self._loaded.tokenizer if self._loaded else Wordless(),
                sampling.stop,
                sampling.max_tokens,
                stop_ids=sampling.stop_ids,
                ignore_ends=sampling.ignore_eos,
            )
            adjust = Adjustment.of(sampling, context, len(context), self._model.vocab_size, words.ending_ids)
            readers, slot = self._speculation.open(), self._slot(context, origin)
            request = Request(
                number=next(self._numbers),
                context=context,
                prompt_tokens=len(context),
                max_tokens=sampling.max_tokens,
                sampling=sampling,
                adjust=adjust,
                seed=seed,
                verifier=verifier(self._rule, Noise(seed, sampling.sample)),
                slot=slot,
                readers=readers,
                words=words,
                max_length=self._model.max_length,
                cached_tokens=self._model.length(slot),
                started=self._clock(),
            )
            self._scheduler.add(request)
            return request

    def _slot(self, context: Sequence[int], origin: Request | None) -> Slot:
        """Give a slot with as much of the context as is at hand, but never its last token: that one is to be fed."""
        if origin is None or origin.ended:
            return self._prefixes.open(context)
        slot = self._model.fork(origin.slot)
        self._model.truncate(slot, len(context) - 1)
        return slot

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

    def _whole(self, requests: Sequence[Request]) -> list[Completion]:
        """Give the answers of requests that have ended; their own error, or ContextFull when the context ended one."""
        for request in requests:
            if request.error is not None:
                raise request.error
        done = [request.completion for request in requests if request.completion is not None]
        if any(answer.finish_reason == "context" for answer in done):
            raise ContextFull(f"an answer reached the model's context of {self._model.max_length} tokens", tuple(done))
        return done


def _feed(turn: Turn[Request], draft: Draft) -> Feed:
    rows = len(draft.tokens) + 1 if turn.complete else 0
    return Feed(turn.sequence.slot, [*turn.pending, *draft.tokens], rows)


def _logprobs(tokens: Sequence[int], rows: Logits, laws: Laws, sampling: Sampling) -> Sequence[TokenLogprob | None]:
    if sampling.logprobs is None:
        return [None] * len(tokens)
    return [logprob(token, rows[place], laws[place], sampling) for place, token in enumerate(tokens)]
