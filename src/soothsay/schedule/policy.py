"""How a step's drafts are chosen: by the controller, or by a number that the user fixed."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from soothsay.schedule.views import Choice, Step, View


class Policy(Protocol):
    """Chooses drafters and gammas before a step, and hears what came of them."""

    def plan(self, views: Sequence[View], other_rows: int = 0) -> list[Choice]:
        """Choose for the requests that decode, beside `other_rows` of prompts in the same pass."""
        ...

    def observe(self, step: Step) -> None: ...

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

    def observe(self, step: Step) -> None:
        pass

    def debt_seconds(self, request: Hashable) -> float | None:
        return None

    def forget(self, request: Hashable) -> None:
        pass

    def _choice(self, view: View) -> Choice:
        gamma = min(self.gamma, view.reach) if self.drafter in view.sources else 0
        return Choice(view, self.drafter, gamma) if gamma else Choice(view)
