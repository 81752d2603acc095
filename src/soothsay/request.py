"""One request on its way through the engine."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from soothsay.completion import Completion, FinishReason, Origin, Piece, Source, Stats, TokenLogprob
from soothsay.draft.base import Reader
from soothsay.errors import SoothsayError
from soothsay.model.base import Slot
from soothsay.sampling import Adjustment, Sampling
from soothsay.schedule.sequence import Sequence
from soothsay.schedule.wish import NO_WISH, Wish
from soothsay.text.stream import TextStream
from soothsay.verify.rules import Verifier


@dataclass(slots=True)
class Spent:
    """Seconds and tokens spent on a request so far."""

    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    draft_seconds: float = 0.0
    target_seconds: float = 0.0
    verify_seconds: float = 0.0

    def add(self, *, drafted: int, verify_seconds: float) -> None:
        """Count one more step that emits."""
        self.steps += 1
        self.drafted += drafted
        self.verify_seconds += verify_seconds


@dataclass(slots=True, kw_only=True, eq=False)
class Request(Sequence):
    """A sequence with its options, its places in the caches, and the pieces that nobody has read yet.

    It ends with a completion, or with an error of its own. `number` counts an engine's requests.
    """

    number: int
    sampling: Sampling
    adjust: Adjustment | None
    seed: int
    verifier: Verifier
    slot: Slot
    readers: Mapping[str, Reader]
    words: TextStream
    max_length: int
    cached_tokens: int
    started: float
    wish: Wish = NO_WISH
    first_token_seconds: float = 0.0
    spent: Spent = field(default_factory=Spent)
    text: str = ""
    logprobs: list[TokenLogprob] = field(default_factory=list)
    pieces: deque[Piece] = field(default_factory=deque)
    completion: Completion | None = None
    error: SoothsayError | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.completion is not None or self.error is not None

    def emit(self, token: int, origin: Origin, now: float, logprob: TokenLogprob | None = None) -> Piece:
        """Append a token; when it ends the answer, the piece carries the completion."""
        if self.emitted == 0:
            self.first_token_seconds = now - self.started
        self.context.append(token)
        source: Source = "model" if origin.drafter is None else "draft"
        self.spent.accepted += source == "draft"
        text = self.words.push(token)
        reason: FinishReason | None = self.words.finish_reason
        if reason is None and len(self.context) == self.max_length:
            text, reason = text + self.words.flush(), "context"
        self.text += text
        if logprob is not None:
            self.logprobs.append(logprob)
        completion = self._completed(reason, now) if reason is not None else None
        piece = Piece(text, token, source, completion, logprob, origin)
        self.pieces.append(piece)
        self.completion = completion  # last: whoever reads the pieces meanwhile stops when it is there
        return piece

    def _completed(self, reason: FinishReason, now: float) -> Completion:
        tokens, spent = tuple(self.context[self.prompt_tokens :]), self.spent
        stats = Stats(
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            tokens=len(tokens),
            steps=spent.steps,
            drafted=spent.drafted,
            accepted=spent.accepted,
            seconds=now - self.started,
            first_token_seconds=self.first_token_seconds,
            draft_seconds=spent.draft_seconds,
            target_seconds=spent.target_seconds,
            verify_seconds=spent.verify_seconds,
        )
        logprobs = None if self.sampling.logprobs is None else tuple(self.logprobs)
        return Completion(self.text, tokens, reason, self.seed, stats, self.sampling.sample, logprobs)
