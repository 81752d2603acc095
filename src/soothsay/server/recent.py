"""How it goes at the moment, for the page: the last steps of the engine, summed up when somebody looks."""

import time
from collections import deque
from dataclasses import dataclass

from soothsay.record import Record, by_position
from soothsay.server.bodies import Json

STEPS, SECONDS = 512, 30.0
"""What counts as the moment: so many steps at most, and none that is older."""


@dataclass(frozen=True, slots=True)
class _Seen:
    at: float
    step: Record


class Recent:
    """The last steps; written on the engine's thread, read on any."""

    def __init__(self) -> None:
        self._steps: deque[_Seen] = deque(maxlen=STEPS)

    def watch(self, step: Record) -> None:
        """Hear of a step."""
        self._steps.append(_Seen(time.monotonic(), step.brief()))

    def figures(self) -> Json:
        """Give tokens a second and a step, the mean length of guesses, and what was kept of them by position."""
        now = time.monotonic()
        steps = [seen.step for seen in list(self._steps) if now - seen.at < SECONDS]
        drafts = [draft for step in steps for draft in step.drafts]
        tokens = sum(draft.emitted for draft in drafts)
        seconds = sum(step.draft_seconds + step.target_seconds + step.verify_seconds for step in steps)
        guesses = [draft for draft in drafts if draft.drafted]
        names = sorted({draft.drafter for draft in guesses if draft.drafter is not None})
        return {
            "tokens_per_second": tokens / seconds if seconds > 0 else None,
            "tokens_per_step": tokens / len(drafts) if drafts else None,
            "mean_gamma": sum(draft.drafted for draft in guesses) / len(guesses) if guesses else None,
            "acceptance": {name: by_position(one for one in guesses if one.drafter == name) for name in names},
        }
