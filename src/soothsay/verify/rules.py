"""The rules by name, each as one object that draws for the drafter and judges its draft with the same randomness."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Protocol

from soothsay.errors import OptionError
from soothsay.sampling import Law
from soothsay.verify.base import Verdict
from soothsay.verify.block import block
from soothsay.verify.coupled import coupled, draw_coupled
from soothsay.verify.noise import Noise, Stream
from soothsay.verify.rejection import Uniform, draw
from soothsay.verify.token import token


class Rule(StrEnum):
    """The rules that keep the target's law; an unknown name raises OptionError."""

    COUPLED = "coupled"
    BLOCK = "block"
    TOKEN = "token"

    @classmethod
    def _missing_(cls, value: object) -> "Rule":
        raise OptionError(f"verify is {value!r}; it must be one of {', '.join(cls)}")


class Verifier(Protocol):
    """A rule with the randomness of one sample; both methods are pure, so one object serves the whole request."""

    def drafting(self, start: int) -> Callable[[Law, int], int]:
        """Give `draw(law, position)` for the drafter, in the step that begins at absolute position `start`."""
        ...

    def verify(
        self, laws: Sequence[Law], tokens: Sequence[int], draft_laws: Sequence[Law] | None, start: int
    ) -> Verdict:
        """Judge a draft whose first token is at absolute position `start`.

        `laws` has D+1 entries, the target's law at each position, `draft_laws` D or None for point masses. Without a
        draft the verdict is one token from the target's law.
        """
        ...


def verifier(rule: Rule, noise: Noise) -> Verifier:
    """Give a rule its randomness."""
    match rule:
        case Rule.COUPLED:
            return _Coupled(noise)
        case Rule.BLOCK:
            return _Rejection(noise, block)
        case Rule.TOKEN:
            return _Rejection(noise, token)


@dataclass(frozen=True, slots=True)
class _Coupled:
    noise: Noise

    def drafting(self, start: int) -> Callable[[Law, int], int]:
        return lambda law, position: draw_coupled(law, self.noise, position)

    def verify(
        self, laws: Sequence[Law], tokens: Sequence[int], draft_laws: Sequence[Law] | None, start: int
    ) -> Verdict:
        return coupled(laws, tokens, self.noise, start)


@dataclass(frozen=True, slots=True)
class _Rejection:
    noise: Noise
    judge: Callable[[Sequence[Law], Sequence[int], Sequence[Law] | None, Uniform], Verdict]

    def drafting(self, start: int) -> Callable[[Law, int], int]:
        return lambda law, position: draw(law, self.noise.uniform(start, position - start, Stream.DRAFT))

    def verify(
        self, laws: Sequence[Law], tokens: Sequence[int], draft_laws: Sequence[Law] | None, start: int
    ) -> Verdict:
        return self.judge(laws, tokens, draft_laws, partial(self.noise.uniform, start))
