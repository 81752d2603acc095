"""What is audited, and the engines that are made of it."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from soothsay.assemble import DRAFT_TOP_K, Parts, assemble
from soothsay.audit.witness import Witness
from soothsay.core import Capacity
from soothsay.draft.base import Drafter
from soothsay.engine import Engine
from soothsay.errors import OptionError
from soothsay.load import Loaded
from soothsay.prompt import Encoder
from soothsay.record import Watch
from soothsay.sampling import Sampling
from soothsay.schedule.policy import FixedGamma, Policy
from soothsay.verify.rules import Rule

CONTEXT_TOKENS = 12
AUTO = "auto"
PLAIN = "none"


@dataclass(frozen=True, slots=True)
class Way:
    """One way to answer: who drafts ("none", "auto" or a drafter), how far, and on which copy of the target."""

    drafter: str
    gamma: int = 0
    batched: bool = False
    copy: str | None = None

    def __str__(self) -> str:
        who = self.drafter if self.drafter in (AUTO, PLAIN) else f"{self.drafter}, gamma {self.gamma}"
        return ", ".join([who, *(["one batch"] if self.batched else []), *([self.copy] if self.copy else [])])


@dataclass(frozen=True, slots=True)
class Subject:
    """A target with its drafters, prompts (token ids), and shorter contexts in which laws are tested.

    `policy` is the controller of all drafters together, None where there is none; `copies` are the same model built
    otherwise, on another number of threads say.
    """

    name: str
    model: Witness
    loaded: Loaded | None
    drafters: Mapping[str, Drafter]
    prompts: tuple[tuple[int, ...], ...]
    contexts: tuple[tuple[int, ...], ...]
    policy: Policy | None = None
    copies: Mapping[str, Witness] | None = None

    @property
    def end_ids(self) -> frozenset[int]:
        """The tokens that end an answer."""
        return self.loaded.tokenizer.end_ids if self.loaded is not None else frozenset()

    def target(self, way: Way) -> Witness:
        """Give the copy of the target that a way runs on."""
        return self.model if way.copy is None else (self.copies or {})[way.copy]

    def engine(self, way: Way, rule: str = Rule.COUPLED, watch: Watch | None = None) -> Engine:
        """Make the engine that goes this way; it reads each prompt once."""
        capacity = Capacity(kept_prefixes=2 * len(self.prompts))
        return Engine.of(self._parts(way), verify=rule, capacity=capacity, watch=watch, details=watch is not None)

    def ways(self, gammas: Sequence[int]) -> list[Way]:
        """Give all ways that owe the plain answers: drafters alone and in a batch, the controller, other copies."""
        alone = [Way(name, gamma) for name in self.drafters for gamma in gammas]
        batched = [Way(name, gammas[-1], batched=True) for name in self.drafters]
        auto = [Way(AUTO), Way(AUTO, batched=True)] if self.policy is not None else []
        names = [PLAIN, *(name for name in self.drafters if name == "ngram")]
        copies = [Way(name, gammas[0], copy=copy) for copy in self.copies or {} for name in names]
        return [Way(PLAIN), Way(PLAIN, batched=True), *alone, *batched, *auto, *copies]

    def _parts(self, way: Way) -> Parts:
        target = self.target(way)
        if way.drafter == AUTO:
            assert self.policy is not None
            return Parts(target, self.loaded, self.drafters, self.policy)
        drafters = {} if way.drafter == PLAIN else {way.drafter: self.drafters[way.drafter]}
        return Parts(target, self.loaded, drafters, FixedGamma(next(iter(drafters), None), way.gamma))


def load(model: str | Path, draft: str | Path, texts: Sequence[str], threads: int | None = None) -> Subject:
    """Load what is to be audited; options and errors as of `Engine`. Each text becomes the user's message of a chat."""
    parts = _parts(model, draft, threads)
    if not parts.drafters:
        raise OptionError("there is nothing to audit: draft must not be none")
    encoder = Encoder(parts.loaded, parts.model.vocab_size, parts.model.max_length)
    other = 2 if threads == 1 else 1
    copy = _parts(model, PLAIN, other).model
    return Subject(
        name=str(model),
        model=Witness(parts.model),
        loaded=parts.loaded,
        drafters=parts.drafters,
        prompts=tuple(tuple(encoder.encode(text, raw=False, system=None)) for text in texts),
        contexts=tuple(tuple(encoder.encode(text, raw=True, system=None)[:CONTEXT_TOKENS]) for text in texts),
        policy=parts.policy,
        copies={f"{other} thread" + "s" * (other > 1): Witness(copy)},
    )


def _parts(model: str | Path, draft: str | Path, threads: int | None) -> Parts:
    clock = time.perf_counter
    return assemble(model, draft, "auto", threads=threads, top_k=DRAFT_TOP_K, requantise=True, clock=clock)


def whole_stack(prompt: Sequence[int]) -> Sampling:
    """Give every option at once, each strong enough to matter and none so strong that little is left to draw."""
    return Sampling(
        repetition_penalty=1.15,
        frequency_penalty=0.3,
        presence_penalty=0.2,
        logit_bias={prompt[-1]: -1.0, prompt[0]: 1.0},
        banned_tokens=(prompt[len(prompt) // 2],),
        min_tokens=2,
        top_k=40,
        top_p=0.95,
        min_p=0.01,
    )
