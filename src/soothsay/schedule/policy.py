"""How a step's drafts are chosen: by the controller, or by a number that the user fixed."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from soothsay.schedule.views import Choice, Step, View

PROMPT_ROWS = 64
"""Of prompts beside those who decode, where nobody knows what they cost."""


class Policy(Protocol):
    """Chooses drafters and gammas before a step, and hears what came of them."""

    def plan(self, views: Sequence[View], other_rows: int = 0) -> list[Choice]:
        """Choose for the requests that decode, beside `other_rows` of prompts in the same pass."""
        ...

    def prompt_rows(self, decoding: int) -> int:
        """Give how many rows of prompts may go in a pass with so many sequences that decode."""
        ...

    def observe(self, step: Step) -> None: ...

    def pass_seconds(self, rows: int, sequences: int) -> float | None:
        """Give what a pass of the target over so many rows takes at the moment; None where nobody has measured."""
        ...

    def debt_seconds(self, request: Hashable) -> float | None:
        """Give what speculation has cost a request so far, below 0 where it saved; None where no books are kept."""
        ...

    def forget(self, request: Hashable) -> None: ...


@dataclass(frozen=True, slots=True)
class FixedGamma:
    """Always `gamma` tokens from one drafter, as far as the request's reach allows; None drafts nothing."""

    drafter: str | None
    gamma: int

    def plan(self, views: Sequence[View], other_rows: int = 0) -> list[Choice]:
        return [self._choice(view) for view in views]

    def prompt_rows(self, decoding: int) -> int:
        return PROMPT_ROWS

    def observe(self, step: Step) -> None:
        pass

    def pass_seconds(self, rows: int, sequences: int) -> float | None:
        return None

    def debt_seconds(self, request: Hashable) -> float | None:
        return None

    def forget(self, request: Hashable) -> None:
        pass

    def _choice(self, view: View) -> Choice:
        gamma = min(self.gamma, view.reach) if self.drafter in view.sources else 0
        return Choice(view, self.drafter, gamma) if gamma else Choice(view)


@dataclass(frozen=True, slots=True)
class Granting:
    """Grants the gamma that a request has fixed itself, by the last of its sources; another policy sees to the rest."""

    policy: Policy

    def plan(self, views: Sequence[View], other_rows: int = 0) -> list[Choice]:
        granted = {place: _granted(view, view.gamma) for place, view in enumerate(views) if view.gamma is not None}
        if not granted:
            return self.policy.plan(views, other_rows)
        others = [place for place in range(len(views)) if place not in granted]
        rows = other_rows + sum(1 + choice.gamma for choice in granted.values())
        planned = self.policy.plan([views[place] for place in others], rows) if others else []
        choices = granted | dict(zip(others, planned, strict=True))
        return [choices[place] for place in range(len(views))]


def _granted(view: View, gamma: int) -> Choice:
    asked = min(gamma, view.reach)
    return Choice(view, list(view.sources)[-1], asked) if view.sources and asked else Choice(view)
