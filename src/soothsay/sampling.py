"""What a user asks of chance, and the one road from logits to probabilities."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn and when to stop.

    temperature: 0 takes the likeliest token (lowest id on ties). top_k: 0 is off. top_p: 1 is off. min_p: 0 is off.
    seed: None draws a random one, which the completion reports. stop: texts that end the answer and are not part of it.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int = 256
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Law:
    """A probability law over token ids.

    `ids`, int64 of shape (S,), is the support in ascending order; `log_probabilities`, float64 of shape (S,), is
    normalised over it. A point mass has S = 1.
    """

    ids: NDArray[np.int64]
    log_probabilities: NDArray[np.float64]
