"""The compiled runtime: the same `Model` protocol, one native call a pass.

A row's logits are the same bits whatever else is in the pass, however the prompt was cut, on any number of threads.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from soothsay import _native
from soothsay.errors import OptionError, Unsupported
from soothsay.model.architectures.decoder import Decoder, Layer, Linear
from soothsay.model.base import Feed, Logits, Slot, check
from soothsay.model.gguf import Tensor, dequantise

HEAD_WIDTH_STEP = 16
CACHE_NUMBER_BYTES = 2


def runtime(threads: int | None = None, isa: str | None = None) -> "_native.Runtime":
    """Start a team of threads with the kernels of one instruction set.

    `threads` defaults to SOOTHSAY_THREADS, then to the cores this process may use; `isa` to SOOTHSAY_ISA, then to the
    best that the machine has. Raises OptionError for either out of range.
    """
    return _native.Runtime(_threads(threads), _isa(isa))


def _threads(asked: int | None) -> int:
    text = str(asked) if asked is not None else os.environ.get("SOOTHSAY_THREADS") or str(_cores())
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1024:
        raise OptionError(f"threads is {text!r}; it must be a whole number from 1 to 1024")
    return int(text)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _isa(asked: str | None) -> str:
    found = _native.instruction_sets()
    isa = asked or os.environ.get("SOOTHSAY_ISA") or found[0]
    if isa not in found:
        raise OptionError(f"instruction set {isa!r} is not to be had; this machine has {', '.join(found)}")
    return isa


@dataclass(frozen=True, slots=True)
class Work:
    """What a pass cannot do without: multiply-adds with weights for each row, and bytes that it reads.

    `weight_bytes` are those of all packed matrices, the output included and the embedding not, whatever the rows;
    `token_bytes` are the keys and values of one cached token.
    """

    products: int
    weight_bytes: int
    token_bytes: int


class NativeModel:
    """A decoder packed for this machine's kernels, with its paged key/value cache.

    `beside` another model of the same shape it shares that one's cache: the slots of both are the same.
    """

    def __init__(self, decoder: Decoder, runtime: "_native.Runtime", beside: "NativeModel | None" = None) -> None:
        """Pack every matrix once; raises Unsupported for a shape that the kernels cannot run."""
        if decoder.head_width % HEAD_WIDTH_STEP:
            raise Unsupported(f"heads are {decoder.head_width} wide; the kernels take multiples of {HEAD_WIDTH_STEP}")
        self.vocab_size = decoder.vocab_size
        self.max_length = decoder.max_length
        self.runtime = runtime
        packer = _Packer(runtime)
        self._native: _native.Decoder = packer.decoder(decoder, beside._native if beside is not None else None)
        token_numbers = 2 * len(decoder.layers) * decoder.kv_heads * decoder.head_width
        self.work = Work(packer.products, packer.weight_bytes, token_numbers * CACHE_NUMBER_BYTES)

    def open(self) -> Slot:
        return Slot(self._native.open())

    def fork(self, slot: Slot) -> Slot:
        return Slot(self._native.fork(slot))

    def length(self, slot: Slot) -> int:
        return self._native.length(slot)

    def truncate(self, slot: Slot, length: int) -> None:
        self._native.truncate(slot, length)

    def close(self, slot: Slot) -> None:
        self._native.close(slot)

    def forward(self, feeds: Sequence[Feed]) -> list[Logits]:
        """Raises ContextFull or PromptError (a token outside the vocabulary) before the cache has changed."""
        check(self, feeds)
        columns = [min(feed.columns or self.vocab_size, self.vocab_size) for feed in feeds]
        asked = [(feed.slot, list(feed.tokens), feed.rows) for feed in feeds]
        logits = self._native.forward(asked, max(columns, default=self.vocab_size))
        ends = accumulate(feed.rows for feed in feeds)
        return [logits[end - feed.rows : end, :most] for feed, end, most in zip(feeds, ends, columns, strict=True)]


class _Packer:
    """Turns the description of a decoder into the native one, and counts the weights that it packs."""

    def __init__(self, runtime: "_native.Runtime") -> None:
        self._runtime = runtime
        self.products = 0
        self.weight_bytes = 0

    def decoder(self, d: Decoder, beside: "_native.Decoder | None") -> "_native.Decoder":
        return _native.Decoder(
            self._runtime,
            vocab_size=d.vocab_size,
            max_length=d.max_length,
            width=d.width,
            heads=d.heads,
            kv_heads=d.kv_heads,
            head_width=d.head_width,
            feed_forward_width=d.feed_forward_width,
            norm_epsilon=d.norm_epsilon,
            rope_interleaved=d.rope.interleaved,
            rope_frequencies=d.rope.frequencies.tolist(),
            embedding_kind=int(d.embedding.kind),
            embedding=d.embedding.data,
            layers=[self._layer(layer) for layer in d.layers],
            output_norm=_floats(d.output_norm),
            output=self._linear(d.output),
            beside=beside,
        )

    def _layer(self, layer: Layer) -> "_native.Layer":
        return _native.Layer(
            attention_norm=_floats(layer.attention_norm),
            query=self._linear(layer.query),
            key=self._linear(layer.key),
            value=self._linear(layer.value),
            attention_output=self._linear(layer.attention_output),
            query_norm=_floats(layer.query_norm),
            key_norm=_floats(layer.key_norm),
            feed_forward_norm=_floats(layer.feed_forward_norm),
            gate=self._linear(layer.gate),
            up=self._linear(layer.up),
            down=self._linear(layer.down),
        )

    def _linear(self, linear: Linear) -> "_native.Linear":
        matrix = pack(self._runtime, linear.weight)
        outputs, inputs = linear.weight.shape
        self.products += outputs * inputs
        self.weight_bytes += matrix.nbytes
        return _native.Linear(matrix, _floats(linear.bias))


def pack(runtime: "_native.Runtime", weight: Tensor) -> "_native.Matrix":
    """Lay a matrix out in the kernels' tiles."""
    outputs, inputs = weight.shape
    return runtime.pack(int(weight.kind), outputs, inputs, weight.data)


def _floats(vector: Tensor | None) -> list[float]:
    return dequantise(vector).tolist() if vector is not None else []
