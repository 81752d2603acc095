"""Does it pay? Plain and speculative decoding in turn, prompt by prompt, in one process, over the same weights."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from soothsay.assemble import DRAFT_TOP_K, Gamma, Parts, assemble
from soothsay.bench.bound import QuietPasses, bound, widths
from soothsay.bench.prompts import Prompt
from soothsay.completion import Completion
from soothsay.core import Capacity
from soothsay.draft.model import ModelDrafter
from soothsay.engine import Engine
from soothsay.errors import ContextFull, OptionError
from soothsay.record import Record, Watch
from soothsay.sampling import Sampling
from soothsay.schedule.policy import FixedGamma
from soothsay.verify.rules import Rule

WARM_UP = "Write a function that adds two numbers."
WARM_UP_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Side:
    """A batch answered one way: its answers, and the steps after the one that emitted the first token."""

    answers: tuple[Completion, ...]
    steps: tuple[Record, ...]

    @property
    def seconds(self) -> float:
        """From the first token that any answer emitted to the last of all, everything in between included."""
        stats = [answer.stats for answer in self.answers]
        return max(one.seconds for one in stats) - min(one.first_token_seconds for one in stats)

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens of all answers in those seconds; None when the first step was all."""
        emitted = sum(draft.emitted for step in self.steps for draft in step.drafts)
        return emitted / self.seconds if emitted and self.seconds > 0 else None


@dataclass(frozen=True, slots=True)
class Pair:
    """A batch of prompts answered both ways; `draft_seconds` is what the draft model's passes alone would take.

    `comparable` says whether the two owe each other the same tokens: not where another rule than coupled draws them.
    """

    batch: tuple[Prompt, ...]
    plain: Side
    drafted: Side
    draft_seconds: float
    comparable: bool = True

    @property
    def name(self) -> str:
        return ", ".join(prompt.name for prompt in self.batch)

    @property
    def category(self) -> str:
        return self.batch[0].category

    @property
    def speedup(self) -> float | None:
        """Plain seconds over speculative seconds; None when the first token was all."""
        return self.plain.seconds / self.drafted.seconds if self.drafted.steps and self.drafted.seconds > 0 else None

    @property
    def bound(self) -> float | None:
        """The speedup that the same steps would have had if passes alone took time."""
        return bound(self.plain.steps, self.drafted.steps, self.draft_seconds)

    @property
    def bound_share(self) -> float | None:
        """Speedup over bound."""
        return self.speedup / self.bound if self.speedup is not None and self.bound else None

    @property
    def identical(self) -> bool | None:
        """Whether all answers are equal to plain decoding's, token by token; None where they need not be."""
        return (
            None
            if not self.comparable
            else [answer.tokens for answer in self.plain.answers] == [answer.tokens for answer in self.drafted.answers]
        )


class _Way:
    """One way of answering; it keeps no prefix of what it answered, or a second round would begin elsewhere."""

    def __init__(self, parts: Parts, rule: Rule, trace: Watch | None = None) -> None:
        self._steps: list[Record] = []
        self._trace = trace
        details = trace is not None
        self._engine = Engine.of(
            parts, verify=rule, capacity=Capacity(kept_prefixes=0), watch=self._watch, details=details
        )

    def _watch(self, step: Record) -> None:
        self._steps.append(step.brief())
        if self._trace is not None:
            self._trace(step)

    def answer(self, texts: Sequence[str], sampling: Sampling) -> Side:
        self._steps.clear()
        try:
            answers = self._engine.generate(list(texts), sampling)
        except ContextFull as full:
            answers = list(full.completions)
        first = next(place for place, step in enumerate(self._steps) if step.drafts)
        return Side(tuple(answers), tuple(self._steps[first + 1 :]))


class Contest:
    """A target with its drafters against the same target alone."""

    def __init__(self, parts: Parts, rule: Rule, trace: Watch | None = None) -> None:
        """Takes the parts of an engine; raises OptionError where none of them drafts.

        `trace` hears of the steps with drafts, in detail.
        """
        if not parts.drafters:
            raise OptionError("there is nothing to compare: draft must not be none")
        self._rule = rule
        self._plain = _Way(replace(parts, drafters={}, policy=FixedGamma(None, 0)), rule)
        self._drafted = _Way(parts, rule, trace)
        models = {name: one.model for name, one in parts.drafters.items() if isinstance(one, ModelDrafter)}
        self._quiet = {name: QuietPasses(model) for name, model in models.items()}

    def warm_up(self) -> None:
        """Answer something short both ways."""
        for way in (self._plain, self._drafted):
            way.answer([WARM_UP], Sampling(max_tokens=WARM_UP_TOKENS))

    def pairs(self, batches: Sequence[tuple[Prompt, ...]], sampling: Sampling, rounds: int = 1) -> Iterator[Pair]:
        """Answer all batches, round by round; who goes first changes each time."""
        if rounds < 1:
            raise OptionError(f"rounds is {rounds}; it must be at least 1")
        for turn in range(rounds):
            for place, batch in enumerate(batches):
                yield self._pair(batch, sampling, plain_first=(turn + place) % 2 == 0)

    def _pair(self, batch: tuple[Prompt, ...], sampling: Sampling, *, plain_first: bool) -> Pair:
        texts = [prompt.text for prompt in batch]
        ways = [self._plain, self._drafted] if plain_first else [self._drafted, self._plain]
        sides = {way: way.answer(texts, sampling) for way in ways}
        drafted = sides[self._drafted]
        comparable = self._rule is Rule.COUPLED or sampling.temperature == 0
        return Pair(batch, sides[self._plain], drafted, self._draft_seconds(drafted.steps), comparable)

    def _draft_seconds(self, steps: Sequence[Record]) -> float:
        """Time, in quiet, the passes that the draft models could not have done without."""
        total = 0.0
        for name, quiet in self._quiet.items():
            needed = [width for step in steps for width in widths(step, name)]
            seconds = quiet.seconds(set(needed))
            total += sum(seconds[width] for width in needed)
        return total


def contest(
    model: str | Path,
    draft: str | Path,
    gamma: Gamma,
    threads: int | None = None,
    verify: str = Rule.COUPLED,
    trace: Watch | None = None,
) -> Contest:
    """Load a target and its drafters; options and errors as of `Engine`, and OptionError when nobody would draft."""
    clock = time.perf_counter
    rule = Rule(verify)
    parts = assemble(model, draft, gamma, threads=threads, top_k=DRAFT_TOP_K, requantise=True, clock=clock)
    return Contest(parts, rule, trace)
