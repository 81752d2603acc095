"""What users hold in their hands: prompts in, answers out."""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self, overload

from soothsay.assemble import DRAFT_TOP_K, Gamma, Parts, assemble
from soothsay.completion import Completion, Piece
from soothsay.core import GREEDY, Capacity, Core
from soothsay.draft.base import Drafter
from soothsay.errors import ContextFull, OptionError
from soothsay.model.base import Model
from soothsay.prompt import Encoder, Prompt, is_prompt
from soothsay.record import Watch
from soothsay.request import Request
from soothsay.sampling import Sampling
from soothsay.verify.rules import Rule


class Engine(Core):
    """Generates with a target model, helped by a drafter, in the target's own words.

    `model` is a path, an alias, or an object with the `Model` protocol (then prompts are token ids). `draft` is
    "auto" (the model's usual draft model where the cache folder has it), "none", "ngram", "self" (the target's own
    weights in 4 bits), the path or alias of a draft model, or an object with the `Drafter` protocol. `gamma` tokens are
    guessed a step; "auto" guesses as many as measurement says will pay, by n-gram too wherever a model drafts. Guesses
    are judged by the rule `verify`: "coupled", "block" or "token". `draft_top_k` and `draft_requantise` make a draft
    model lighter (None and False: as it is). None of these changes the law of the output; with "coupled" none changes
    a token. `clock` gives seconds; `trace`, a `Tracer` for instance, hears of each step in detail. `capacity` bounds
    what runs and is kept at once.

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
        capacity: Capacity | None = None,
    ) -> None:
        rule = Rule(verify)
        parts = assemble(
            model, draft, gamma, threads=threads, top_k=draft_top_k, requantise=draft_requantise, clock=clock
        )
        self._begin(parts, rule, capacity, clock=clock, watch=trace, details=True)

    @classmethod
    def of(
        cls,
        parts: Parts,
        *,
        verify: str = "coupled",
        clock: Callable[[], float] = time.perf_counter,
        capacity: Capacity | None = None,
        watch: Watch | None = None,
        details: bool = False,
    ) -> Self:
        """Make an engine of what is already there, so that two of them can run one model.

        `watch` hears of each step, of its details too with `details`. OptionError for a capacity beyond the model's.
        """
        engine = cls.__new__(cls)
        engine._begin(parts, Rule(verify), capacity, clock=clock, watch=watch, details=details)
        return engine

    def _begin(
        self,
        parts: Parts,
        rule: Rule,
        capacity: Capacity | None,
        *,
        clock: Callable[[], float],
        watch: Watch | None,
        details: bool,
    ) -> None:
        super().__init__(parts, rule, capacity or Capacity(), clock=clock, watch=watch, details=details)
        self._encoder = Encoder(self._loaded, self._model.vocab_size, self.max_length)

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

    def encode(self, prompt: Prompt, *, raw: bool = False, system: str | None = None) -> list[int]:
        """Give the token ids of a prompt, checked; options and errors as in `generate`."""
        return self._encoder.encode(prompt, raw=raw, system=system)

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
            yield self._submit(list(first.context[: first.prompt_tokens]), sampling)

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

    def _whole(self, requests: Sequence[Request]) -> list[Completion]:
        """Give the answers of requests that have ended; their own error, or ContextFull when the context ended one."""
        for request in requests:
            if request.error is not None:
                raise request.error
        done = [request.completion for request in requests if request.completion is not None]
        if any(answer.finish_reason == "context" for answer in done):
            raise ContextFull(f"an answer reached the model's context of {self.max_length} tokens", tuple(done))
        return done
