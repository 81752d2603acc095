"""One sequence, as far as the scheduler needs to know it."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """A growing list of tokens: the prompt, then what was emitted, at most `max_tokens` of it."""

    context: list[int]
    prompt_tokens: int
    max_tokens: int

    @property
    def emitted(self) -> int:
        """How many tokens were emitted so far."""
        return len(self.context) - self.prompt_tokens
