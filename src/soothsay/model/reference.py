"""The decoder in NumPy float32, slow and obvious: the native runtime's oracle and its stand-in."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from soothsay.model.architectures.decoder import Decoder, Layer, Linear, Rope
from soothsay.model.base import Feed, Logits, Slot, check
from soothsay.model.gguf import Tensor, dequantise

Array = NDArray[np.float32]


class ReferenceModel:
    """Implements `soothsay.model.base.Model` in float32, with every weight dequantised once at construction.

    Tokens are computed one at a time, each by the same operations whatever is fed with it, so a row's logits do not
    depend on the other rows of the pass, on the other sequences, or on how the tokens are cut into feeds.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._embedding = dequantise(decoder.embedding)
        self._layers = [_Block(layer, decoder) for layer in decoder.layers]
        self._output_norm = _Norm(decoder.output_norm, decoder.norm_epsilon)
        self._output = _Product(decoder.output, self._embedding if decoder.output.weight is decoder.embedding else None)
        self._caches: dict[Slot, _Cache] = {}
        self._next_slot = 0

    @property
    def vocab_size(self) -> int:
        return self._decoder.vocab_size

    @property
    def max_length(self) -> int:
        return self._decoder.max_length

    def open(self) -> Slot:
        empty = np.empty((0, self._decoder.kv_heads, self._decoder.head_width), np.float32)
        return self._add([_Past(empty, empty) for _ in self._layers])

    def fork(self, slot: Slot) -> Slot:
        return self._add(list(self._caches[slot]))

    def length(self, slot: Slot) -> int:
        return len(self._caches[slot][0].keys)

    def forward(self, feeds: Sequence[Feed]) -> list[Logits]:
        """Raises ContextFull or PromptError (a token outside the vocabulary) before any cache has changed."""
        check(self, feeds)
        return [self._read(feed) for feed in feeds]

    def truncate(self, slot: Slot, length: int) -> None:
        held = self.length(slot)
        if not 0 <= length <= held:
            raise ValueError(f"cannot keep {length} tokens of {held}")
        self._caches[slot] = [past.first(length) for past in self._caches[slot]]

    def close(self, slot: Slot) -> None:
        del self._caches[slot]

    def _add(self, cache: "_Cache") -> Slot:
        slot = Slot(self._next_slot)
        self._next_slot += 1
        self._caches[slot] = cache
        return slot

    def _read(self, feed: Feed) -> Logits:
        logits = np.empty((feed.rows, self.vocab_size), np.float32)
        first = len(feed.tokens) - feed.rows
        for index, token in enumerate(feed.tokens):
            hidden = self._step(self._caches[feed.slot], token)
            if index >= first:
                logits[index - first] = self._output(self._output_norm(hidden))
        return logits[:, : feed.columns]

    def _step(self, cache: "_Cache", token: int) -> Array:
        """Append one token to the cache and give its last hidden row, [width]."""
        hidden: Array = self._embedding[token]
        for index, layer in enumerate(self._layers):
            hidden, cache[index] = layer(hidden, cache[index])
        return hidden


@dataclass(frozen=True, slots=True)
class _Past:
    """The keys and values of one layer, each [tokens, kv_heads, head_width]."""

    keys: Array
    values: Array

    def then(self, key: Array, value: Array) -> "_Past":
        return _Past(np.concatenate([self.keys, key[None]]), np.concatenate([self.values, value[None]]))

    def first(self, length: int) -> "_Past":
        return _Past(self.keys[:length], self.values[:length])


_Cache = list[_Past]


class _Block:
    """One layer: attention, then the gated feed-forward, each added to the residual."""

    def __init__(self, layer: Layer, decoder: Decoder) -> None:
        epsilon = decoder.norm_epsilon
        self.heads, self.kv_heads, self.head_width = decoder.heads, decoder.kv_heads, decoder.head_width
        self.rope = decoder.rope
        self.attention_norm = _Norm(layer.attention_norm, epsilon)
        self.query, self.key, self.value = _Product(layer.query), _Product(layer.key), _Product(layer.value)
        self.query_norm = _Norm(layer.query_norm, epsilon) if layer.query_norm else None
        self.key_norm = _Norm(layer.key_norm, epsilon) if layer.key_norm else None
        self.attention_output = _Product(layer.attention_output)
        self.feed_forward_norm = _Norm(layer.feed_forward_norm, epsilon)
        self.gate, self.up, self.down = _Product(layer.gate), _Product(layer.up), _Product(layer.down)

    def __call__(self, hidden: Array, past: _Past) -> tuple[Array, _Past]:
        attended, past = self.attend(self.attention_norm(hidden), past)
        hidden = hidden + attended
        return hidden + self.feed_forward(self.feed_forward_norm(hidden)), past

    def attend(self, row: Array, past: _Past) -> tuple[Array, _Past]:
        position = len(past.keys)
        query = self.placed(self.query(row).reshape(self.heads, self.head_width), self.query_norm, position)
        key = self.placed(self.key(row).reshape(self.kv_heads, self.head_width), self.key_norm, position)
        past = past.then(key, self.value(row).reshape(self.kv_heads, self.head_width))
        groups = query.reshape(self.kv_heads, -1, self.head_width)
        mixed = [_attention(group, past.keys[:, head], past.values[:, head]) for head, group in enumerate(groups)]
        return self.attention_output(np.concatenate(mixed).reshape(-1)), past

    def placed(self, heads: Array, norm: "_Norm | None", position: int) -> Array:
        return _rotate(norm(heads) if norm else heads, self.rope, position)

    def feed_forward(self, row: Array) -> Array:
        return self.down(_silu(self.gate(row)) * self.up(row))


class _Product:
    """y = weight @ x + bias for one row x."""

    def __init__(self, linear: Linear, weight: Array | None = None) -> None:
        self.weight = dequantise(linear.weight) if weight is None else weight
        self.bias = dequantise(linear.bias) if linear.bias else np.float32(0)

    def __call__(self, row: Array) -> Array:
        product: Array = self.weight @ row + self.bias
        return product


class _Norm:
    """Root mean square norm over the last axis (arXiv 1910.07467)."""

    def __init__(self, weight: Tensor, epsilon: float) -> None:
        self.weight = dequantise(weight)
        self.epsilon = np.float32(epsilon)

    def __call__(self, rows: Array) -> Array:
        mean_square = np.mean(rows * rows, axis=-1, keepdims=True)
        normed: Array = rows / np.sqrt(mean_square + self.epsilon) * self.weight
        return normed


def _attention(queries: Array, keys: Array, values: Array) -> Array:
    """Queries [G, head_width] of one position over keys and values [T, head_width] up to and including it."""
    scores = queries @ keys.T / np.float32(np.sqrt(queries.shape[-1]))  # [G, T]
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixed: Array = weights / weights.sum(axis=-1, keepdims=True) @ values
    return mixed


def _rotate(heads: Array, rope: Rope, position: int) -> Array:
    """Rotate each head's pairs by position x frequency (arXiv 2104.09864, section 3.2)."""
    angles = position * rope.frequencies
    cosine, sine = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    half = rope.width // 2
    evens, odds = (
        (slice(0, rope.width, 2), slice(1, rope.width, 2))
        if rope.interleaved
        else (slice(0, half), slice(half, rope.width))
    )
    rotated = heads.copy()
    rotated[:, evens] = heads[:, evens] * cosine - heads[:, odds] * sine
    rotated[:, odds] = heads[:, evens] * sine + heads[:, odds] * cosine
    return rotated


def _silu(gate: Array) -> Array:
    with np.errstate(over="ignore"):  # an infinite denominator gives the right limit, 0
        activated: Array = gate / (1 + np.exp(-gate))
    return activated
