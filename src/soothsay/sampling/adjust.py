"""What the options of a request make of logits before temperature has its turn, by the text that each row follows.

A row after a guess is adjusted by the text with that guess in it: that is what makes every option exact whatever was
guessed and however it is judged.
"""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from soothsay.errors import OptionError, ProcessorError, SoothsayError
from soothsay.sampling.grammar import Constraint
from soothsay.sampling.laws import Law, law
from soothsay.sampling.options import Processor, Sampling
from soothsay.sampling.tally import Tally

Row = NDArray[np.float32]
_Step = Callable[[Row, Sequence[int]], Row]
"""(logits, drafted) -> logits; it may change them in place."""


class Adjustment:
    """The options of one request that change logits, along its context.

    `forced` gives the tokens that its grammar leaves no choice about, next after the context.
    """

    def __init__(self, steps: Sequence[_Step], vocab_size: int, forced: Callable[[], tuple[int, ...]] = tuple) -> None:
        self._steps = steps
        self._vocab_size = vocab_size
        self.forced = forced

    @classmethod
    def of(
        cls,
        sampling: Sampling,
        context: Sequence[int],
        prompt_tokens: int,
        vocab_size: int,
        end_ids: Collection[int],
        constraint: Constraint | None = None,
    ) -> Self | None:
        """Give the adjustment, or None where no option asks for one; OptionError for a token that there is not.

        `context` is the request's own list, which grows by committed tokens; its first `prompt_tokens` are the prompt.
        `end_ids` are the tokens that end its answer, `constraint` is what its grammar says of it.
        """
        check_tokens(sampling, vocab_size)
        steps = tuple(_steps(sampling, context, prompt_tokens, vocab_size, end_ids))
        if constraint is None:
            return cls(steps, vocab_size) if steps else None
        within = _within(constraint, context, prompt_tokens)
        return cls((*steps, within), vocab_size, lambda: constraint.forced(context[prompt_tokens:]))

    def __call__(self, row: NDArray[np.floating], drafted: Sequence[int] = ()) -> Row:
        """Adjust the logits, shape (V,), that follow the context and `drafted`; the row itself is left alone.

        Raises OptionError when no token is left or a number is no longer one, ProcessorError when a processor fails or
        gives no logits.
        """
        adjusted = row.astype(np.float32)
        with np.errstate(all="ignore"):
            for step in self._steps:
                adjusted = step(adjusted, drafted)
        best = adjusted.max()
        if not math.isfinite(best) and math.isfinite(row.max()):
            raise OptionError(_beyond(best))
        return adjusted

    def guess(self, row: Row, drafted: Sequence[int]) -> Row | None:
        """Adjust a drafter's logits of the lowest ids, shape (up to V,); None where they leave it nothing to draw.

        An error is none of a guess's business: the target comes by there, and finds it or does not.
        """
        whole = np.full(self._vocab_size, -math.inf, np.float32)
        whole[: len(row)] = row
        try:
            adjusted = self(whole, drafted)[: len(row)]
        except SoothsayError:
            return None
        return adjusted if adjusted.max() > -math.inf else None


class Laws(Sequence[Law]):
    """The law after each row of logits, shape (rows, V), computed when it is first asked for.

    Row i follows the context and the first i of the `drafted` tokens.
    """

    def __init__(
        self,
        rows: NDArray[np.floating],
        sampling: Sampling,
        adjust: Adjustment | None = None,
        drafted: Sequence[int] = (),
    ) -> None:
        self._rows, self._sampling = rows, sampling
        self._adjust, self._drafted = adjust, drafted
        self._made: dict[int, Law] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: int) -> Law:  # type: ignore[override]  # no slices
        if place not in self._made:
            row = self._rows[place]
            if self._adjust is not None:
                row = self._adjust(row, self._drafted[:place])
            self._made[place] = law(row, self._sampling)
        return self._made[place]

    def known(self, place: int) -> bool:
        """Tell whether somebody has asked for a law already, so that it costs nothing more."""
        return place in self._made


def check_tokens(sampling: Sampling, vocab_size: int) -> None:
    """Raise OptionError for a token that there is not."""
    for name in ("logit_bias", "banned_tokens", "allowed_tokens", "stop_ids"):
        for token in getattr(sampling, name) or ():
            if token >= vocab_size:
                raise OptionError(f"{name} has token {token}; token ids go from 0 to {vocab_size - 1}")


def _beyond(best: float) -> str:
    if best == -math.inf:
        return "the sampler's options leave no token to draw; at least one must be allowed"
    return f"the sampler's options make a logit {best}; penalties and biases must keep it a finite float32"


def _steps(
    sampling: Sampling, context: Sequence[int], prompt_tokens: int, vocab_size: int, end_ids: Collection[int]
) -> Iterable[_Step]:
    """Give the steps that are switched on, in the order in which they act: transformers' own where it has them."""
    tally = Tally(context, prompt_tokens)
    if sampling.logit_bias:
        yield _bias(sampling)
    if sampling.repetition_penalty != 1:
        yield _repetition(sampling.repetition_penalty, tally)
    if sampling.frequency_penalty or sampling.presence_penalty:
        yield _said(sampling.frequency_penalty, sampling.presence_penalty, tally)
    if sampling.banned_tokens:
        yield _ban(sampling.banned_tokens)
    if sampling.min_tokens and end_ids:
        yield _not_before(prompt_tokens + sampling.min_tokens, _ban(end_ids), context)
    if sampling.allowed_tokens is not None:
        yield _allow(sampling.allowed_tokens, vocab_size)
    for processor in sampling.processors:
        yield _process(processor, context)


def _bias(sampling: Sampling) -> _Step:
    ids, biases = _array(sampling.logit_bias), np.array(list(sampling.logit_bias.values()), np.float32)

    def step(row: Row, drafted: Sequence[int]) -> Row:
        row[ids] += biases
        return row

    return step


def _repetition(penalty: float, tally: Tally) -> _Step:
    def step(row: Row, drafted: Sequence[int]) -> Row:
        ids = tally.after(drafted).ids
        logits = row[ids]
        row[ids] = np.where(logits < 0, logits * np.float32(penalty), logits / np.float32(penalty))
        return row

    return step


def _said(frequency: float, presence: float, tally: Tally) -> _Step:
    def step(row: Row, drafted: Sequence[int]) -> Row:
        counts = tally.after(drafted)
        row[counts.ids] -= np.float32(frequency) * counts.said + np.float32(presence) * (counts.said > 0)
        return row

    return step


def _ban(tokens: Collection[int]) -> _Step:
    ids = _array(tokens)

    def step(row: Row, drafted: Sequence[int]) -> Row:
        row[ids] = -math.inf
        return row

    return step


def _not_before(length: int, ban: _Step, context: Sequence[int]) -> _Step:
    def step(row: Row, drafted: Sequence[int]) -> Row:
        return ban(row, drafted) if len(context) + len(drafted) < length else row

    return step


def _allow(tokens: Collection[int], vocab_size: int) -> _Step:
    others = np.ones(vocab_size, np.bool_)
    others[_array(tokens)] = False

    def step(row: Row, drafted: Sequence[int]) -> Row:
        np.putmask(row, others, -math.inf)
        return row

    return step


def _process(processor: Processor, context: Sequence[int]) -> _Step:
    def step(row: Row, drafted: Sequence[int]) -> Row:
        size = len(row)
        try:
            given = np.asarray(processor([*context, *drafted], row), np.float32)
        except Exception as error:
            said = " ".join(str(error).split())
            raise ProcessorError(f"a logits processor failed: {type(error).__name__}: {said}") from error
        if given.shape != (size,) or not given.max() < math.inf:
            what = f"shape {given.shape}" if given.shape != (size,) else f"{given.max()} in them"
            raise ProcessorError(f"a logits processor gave logits with {what}; legal are {size} numbers below infinity")
        return given

    return step


def _within(constraint: Constraint, context: Sequence[int], prompt_tokens: int) -> _Step:
    def step(row: Row, drafted: Sequence[int]) -> Row:
        np.putmask(row, ~constraint.allowed([*context[prompt_tokens:], *drafted]), -math.inf)
        return row

    return step


def _array(tokens: Collection[int]) -> NDArray[np.int64]:
    return np.array(list(tokens), np.int64)
