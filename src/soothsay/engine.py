"""Where target, drafter, verification, schedule and text meet."""

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeGuard, overload

from soothsay.completion import Completion, Piece
from soothsay.draft.base import Ask, Draft, Drafter
from soothsay.draft.ngram import NgramDrafter
from soothsay.draft.silent import SilentDrafter
from soothsay.errors import ContextFull, OptionError
from soothsay.load import DRAFT_TOP_K, Loaded, Loader
from soothsay.model.base import Feed, Logits, Model
from soothsay.model.prefix import PrefixCache
from soothsay.prompt import Encoder, Prompt, is_prompt
from soothsay.request import Request
from soothsay.sampling import Laws, Sampling
from soothsay.schedule.scheduler import Scheduler, Turn
from soothsay.text.stream import TextStream
from soothsay.text.tokenizer import Wordless
from soothsay.verify.noise import Noise
from soothsay.verify.rules import Rule, verifier

GREEDY = Sampling()


class Engine:
    """Generates with a target model, helped by a drafter, in the target's own words.

    `model` is a path, an alias, or an object with the `Model` protocol (then prompts are token ids). `draft` is
    "none", "ngram", the path or alias of a draft model, or an object with the `Drafter` protocol. `gamma` tokens are
    guessed a step and judged by the rule `verify`: "coupled", "block" or "token". `draft_top_k` and `draft_requantise`
    make a draft model lighter (None and False: as it is). None of these changes the law of the output; with "coupled"
    none changes a token. `clock` gives seconds.

    One engine may be used from several threads; their requests then share its steps.
    """

    def __init__(
        self,
        model: str | Path | Model,
        *,
        draft: str | Path | Drafter = "ngram",
        gamma: int = 4,
        verify: str = "coupled",
        threads: int | None = None,
        draft_top_k: int | None = DRAFT_TOP_K,
        draft_requantise: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._rule = Rule(verify)
        self._loaded, self._model, self._drafter = _loaded(model, draft, threads, draft_top_k, draft_requantise)
        self._encoder = Encoder(self._loaded, self._model.vocab_size, self._model.max_length)
        self._scheduler: Scheduler[Request] = Scheduler(gamma=gamma, max_length=self._model.max_length)
        self._prefixes = PrefixCache(self._model)
        self._clock = clock
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
        drafts = self._propose(turns)
        proposed = self._clock()
        logits = self._model.forward([_feed(turn, draft) for turn, draft in zip(turns, drafts, strict=True)])
        computed = self._clock()
        for turn, draft, rows in zip(turns, drafts, logits, strict=True):
            turn.sequence.spent.draft_seconds += proposed - begun
            turn.sequence.spent.target_seconds += computed - proposed
            if turn.complete:
                self._commit(turn.sequence, draft, rows)

    def _propose(self, turns: Sequence[Turn[Request]]) -> list[Draft]:
        drafting = {place: turn for place, turn in enumerate(turns) if turn.gamma > 0}
        asks = [_ask(turn.sequence, turn.gamma) for turn in drafting.values()]
        drafts = dict(zip(drafting, self._drafter.propose(asks) if asks else (), strict=True))
        return [drafts.get(place, Draft()) for place in range(len(turns))]

    def _commit(self, request: Request, draft: Draft, rows: Logits) -> None:
        """Judge the draft and emit what is kept."""
        start, begun = len(request.context), self._clock()
        verdict = request.verifier.verify(Laws(rows, request.sampling), draft.tokens, draft.laws, start)
        now = self._clock()
        request.spent.add(drafted=len(draft.tokens), verify_seconds=now - begun)
        for place, token in enumerate(verdict.tokens):
            request.emit(token, "draft" if place < verdict.accepted else "model", now)
            if request.completion is not None:
                break

    def _settle(self, request: Request) -> None:
        """Roll the cache back to all but the last token, also when the step was interrupted; let go at the end."""
        held = min(self._model.length(request.slot), len(request.context) - 1)
        self._model.truncate(request.slot, held)
        if request.completion is not None:
            self._retire(request)

    def _answers(
        self, prompts: Sequence[Prompt], sampling: Sampling, raw: bool, system: str | None
    ) -> list[Completion]:
        contexts = [self._encoder.encode(prompt, raw=raw, system=system) for prompt in prompts]
        requests: list[Request] = []
        try:
            requests.extend(self._submit(context, sampling) for context in contexts)
            for request in requests:
                while request.completion is None:
                    self.step()
        finally:
            self._drop(requests)
        return self._whole(request.completion for request in requests)

    def _pieces(self, context: list[int], sampling: Sampling) -> Iterator[Piece]:
        request = self._submit(context, sampling)
        try:
            while request.completion is None or request.pieces:
                while request.pieces:
                    yield request.pieces.popleft()
                if request.completion is None:
                    self.step()
        finally:
            self._drop([request])
        self._whole([request.completion])

    def _submit(self, context: list[int], sampling: Sampling) -> Request:
        with self._held():
            seed = secrets.randbits(64) if sampling.seed is None else int(sampling.seed)
            reader, slot = self._drafter.open(), self._prefixes.open(context)
            request = Request(
                context=context,
                prompt_tokens=len(context),
                max_tokens=sampling.max_tokens,
                sampling=sampling,
                seed=seed,
                verifier=verifier(self._rule, Noise(seed)),
                slot=slot,
                reader=reader,
                words=TextStream(
                    self._loaded.tokenizer if self._loaded else Wordless(), sampling.stop, sampling.max_tokens
                ),
                max_length=self._model.max_length,
                cached_tokens=self._model.length(slot),
                started=self._clock(),
            )
            self._scheduler.add(request)
            return request

    def _drop(self, requests: Iterable[Request]) -> None:
        """End what has not ended by itself."""
        with self._held():
            self._leaving.extend(request for request in requests if request.completion is None)

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
            if request.completion is None:
                self._retire(request)

    def _retire(self, request: Request) -> None:
        self._scheduler.remove(request)
        self._drafter.close(request.reader)
        self._prefixes.keep(request.slot, request.context)

    def _whole(self, answers: Iterable[Completion | None]) -> list[Completion]:
        """Give the answers, all of which have ended; ContextFull when the context ended one."""
        done = [answer for answer in answers if answer is not None]
        if any(answer.finish_reason == "context" for answer in done):
            raise ContextFull(f"an answer reached the model's context of {self._model.max_length} tokens", tuple(done))
        return done


def _loaded(
    model: str | Path | Model, draft: str | Path | Drafter, threads: int | None, top_k: int | None, requantise: bool
) -> tuple[Loaded | None, Model, Drafter]:
    """Give the target, with its words when it comes from a file, and the drafter."""
    if not _named(draft) and (top_k, requantise) != (DRAFT_TOP_K, True):
        raise OptionError("draft_top_k and draft_requantise are options of draft models that are loaded by name")
    if not isinstance(model, str | Path):
        if threads is not None:
            raise OptionError("threads is an option of models that are loaded by name; this one is already built")
        return None, model, _simple(draft)
    loader = Loader(threads)
    target = loader.target(model)
    if _named(draft):
        return target, target.model, loader.drafter(draft, target, top_k=top_k, requantise=requantise)
    return target, target.model, _simple(draft)


def _named(draft: str | Path | Drafter) -> TypeGuard[str | Path]:
    """Tell the name of a draft model from the drafters that need no file."""
    return isinstance(draft, str | Path) and draft not in ("none", "ngram")


def _simple(draft: str | Path | Drafter) -> Drafter:
    match draft:
        case "none":
            return SilentDrafter()
        case "ngram":
            return NgramDrafter()
        case str() | Path():
            raise OptionError(f"draft is {str(draft)!r}; for a model object it must be none, ngram or a drafter object")
        case _ if not hasattr(draft, "propose"):
            raise OptionError(f"draft is {draft!r}; it must be none, ngram, a path, an alias or a drafter object")
        case _:
            return draft


def _ask(request: Request, gamma: int) -> Ask:
    draw = request.verifier.drafting(len(request.context))
    return Ask(request.reader, request.context, gamma, request.sampling, draw)


def _feed(turn: Turn[Request], draft: Draft) -> Feed:
    rows = len(draft.tokens) + 1 if turn.complete else 0
    return Feed(turn.sequence.slot, [*turn.pending, *draft.tokens], rows)
