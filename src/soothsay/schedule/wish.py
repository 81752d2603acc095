"""What a request asks of its own drafts, where that is not the engine's usual way."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wish:
    """Only `drafters` may guess for the request (None: all that there are); each draft has `gamma` tokens (None: auto).

    Neither changes the law of the output; under coupled verification neither changes a token.
    """

    drafters: frozenset[str] | None = None
    gamma: int | None = None

    def among(self, drafters: Mapping[str, T]) -> Mapping[str, T]:
        """Give those of the drafters that may guess."""
        if self.gamma == 0:
            return {}
        return drafters if self.drafters is None else {n: one for n, one in drafters.items() if n in self.drafters}


NO_WISH = Wish()
