"""What a decoder is made of: one description, read by the native runtime and by the NumPy reference alike."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from soothsay.model.gguf import Tensor


@dataclass(frozen=True, slots=True)
class Linear:
    """y = weight @ x + bias; `weight` has shape (outputs, inputs), `bias` (outputs,)."""

    weight: Tensor
    bias: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding of the first `width` entries of each head.

    `interleaved` rotates the pairs (0, 1), (2, 3), ...; otherwise (0, width/2), (1, width/2 + 1), ...
    `frequencies`, float64 of shape (width / 2,), are radians a position, any scaling already applied.
    """

    width: int
    interleaved: bool
    frequencies: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Layer:
    """One pre-norm block: attention, then a gated feed-forward (SwiGLU), each added to the residual."""

    attention_norm: Tensor
    query: Linear
    key: Linear
    value: Linear
    attention_output: Linear
    query_norm: Tensor | None
    key_norm: Tensor | None
    feed_forward_norm: Tensor
    gate: Linear
    up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class Decoder:
    """A whole decoder: sizes, rotary embedding, layers, and the matrices at its two ends."""

    architecture: str
    vocab_size: int
    max_length: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    feed_forward_width: int
    norm_epsilon: float
    rope: Rope
    embedding: Tensor
    layers: tuple[Layer, ...]
    output_norm: Tensor
    output: Linear
