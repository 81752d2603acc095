"""Tiny random models, written as GGUF files: the same bytes for the same recipe, on every machine."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from numpy.typing import NDArray
from tokenizers.pre_tokenizers import ByteLevel

Array = NDArray[np.float32]
Kind = GGMLQuantizationType

K_KINDS = (Kind.Q4_K, Kind.Q5_K, Kind.Q6_K)


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """The rotary scaling of Llama 3 (arXiv 2407.21783), in the names of its published configuration."""

    factor: float = 8.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 32


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides the bytes of a checkpoint.

    `kind` is the type of every matrix (vectors are F32, as in real files). A K kind needs `width`,
    `feed_forward_width` and `heads` x `head_width` to be multiples of 256, every other quantised kind of 32.
    `biases` adds every bias the block can have (qwen2 always has those of query, key and value).
    """

    architecture: str
    kind: GGMLQuantizationType = Kind.F32
    seed: int = 0
    vocab_size: int = 131
    width: int = 96
    heads: int = 6
    kv_heads: int = 2
    head_width: int = 32
    feed_forward_width: int = 160
    layers: int = 2
    max_length: int = 64
    rope_base: float = 10000.0
    tied: bool = False
    biases: bool = False
    linear_scaling: float | None = None
    llama3_scaling: Llama3Scaling | None = None


def k_recipe(architecture: str, kind: GGMLQuantizationType, seed: int = 0, tied: bool = False) -> Recipe:
    """A recipe of sizes that a K kind can have."""
    return Recipe(architecture, kind, seed, width=256, heads=8, head_width=32, feed_forward_width=512, tied=tied)


@dataclass(frozen=True, slots=True)
class Words:
    """A vocabulary of single bytes and "ab", then `special` control tokens, then unused ids up to `size`."""

    special: tuple[str, ...] = ("<|im_end|>",)
    size: int = 264
    template: str | None = "{% for message in messages %}{{ message.content }}{% endfor %}"


def write_checkpoint(path: Path, recipe: Recipe, words: Words | None = None) -> Path:
    """Write the recipe's model, with a vocabulary if asked, to `path` and return the path."""
    writer = GGUFWriter(path, recipe.architecture)
    _add_metadata(writer, recipe)
    if words is not None:
        _add_words(writer, words)
    numbers = Numbers(recipe.seed)
    for name, shape in _tensors(recipe):
        _add_tensor(writer, recipe, numbers, name, shape)
    if recipe.llama3_scaling:
        writer.add_tensor("rope_freqs.weight", rope_factors(recipe, recipe.llama3_scaling))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


class Numbers:
    """Random numbers from the raw output of PCG64, which NumPy promises never to change."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64(seed)

    def uniform(self, shape: tuple[int, ...], deviation: float) -> Array:
        """Numbers of mean 0 and that standard deviation."""
        unit = (self._bits.random_raw(math.prod(shape)) >> np.uint64(11)) * 2.0**-53
        return ((unit - 0.5) * math.sqrt(12) * deviation).astype(np.float32).reshape(shape)

    def octets(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        return (self._bits.random_raw(math.prod(shape)) >> np.uint64(56)).astype(np.uint8).reshape(shape)


def _add_metadata(writer: GGUFWriter, recipe: Recipe) -> None:
    writer.add_context_length(recipe.max_length)
    writer.add_embedding_length(recipe.width)
    writer.add_block_count(recipe.layers)
    writer.add_feed_forward_length(recipe.feed_forward_width)
    writer.add_head_count(recipe.heads)
    writer.add_head_count_kv(recipe.kv_heads)
    writer.add_key_length(recipe.head_width)
    writer.add_value_length(recipe.head_width)
    writer.add_rope_dimension_count(recipe.head_width)
    writer.add_rope_freq_base(recipe.rope_base)
    writer.add_layer_norm_rms_eps(1e-5)
    if recipe.linear_scaling:
        writer.add_string(f"{recipe.architecture}.rope.scaling.type", "linear")
        writer.add_rope_scaling_factor(recipe.linear_scaling)


def _add_words(writer: GGUFWriter, words: Words) -> None:
    plain = [*sorted(ByteLevel.alphabet()), "ab"]
    unused = [f"[PAD{place}]" for place in range(words.size - len(plain) - len(words.special))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([*plain, *words.special, *unused])
    writer.add_token_types([1] * len(plain) + [3] * len(words.special) + [5] * len(unused))
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(len(plain))
    if words.template is not None:
        writer.add_chat_template(words.template)


def _tensors(recipe: Recipe) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "token_embd.weight", (recipe.vocab_size, recipe.width)
    for index in range(recipe.layers):
        yield from _layer_tensors(recipe, f"blk.{index}")
    yield "output_norm.weight", (recipe.width,)
    if not recipe.tied:
        yield "output.weight", (recipe.vocab_size, recipe.width)


def _layer_tensors(recipe: Recipe, block: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    for name in ("attn_norm", "ffn_norm"):
        yield f"{block}.{name}.weight", (recipe.width,)
    if recipe.architecture == "qwen3":
        for name in ("attn_q_norm", "attn_k_norm"):
            yield f"{block}.{name}.weight", (recipe.head_width,)
    for name, outputs, inputs in _matrices(recipe):
        yield f"{block}.{name}.weight", (outputs, inputs)
        if recipe.biases or (recipe.architecture == "qwen2" and name in ("attn_q", "attn_k", "attn_v")):
            yield f"{block}.{name}.bias", (outputs,)


def _matrices(recipe: Recipe) -> Iterator[tuple[str, int, int]]:
    queries, keys = recipe.heads * recipe.head_width, recipe.kv_heads * recipe.head_width
    yield "attn_q", queries, recipe.width
    yield "attn_k", keys, recipe.width
    yield "attn_v", keys, recipe.width
    yield "attn_output", recipe.width, queries
    yield "ffn_gate", recipe.feed_forward_width, recipe.width
    yield "ffn_up", recipe.feed_forward_width, recipe.width
    yield "ffn_down", recipe.width, recipe.feed_forward_width


def _add_tensor(writer: GGUFWriter, recipe: Recipe, numbers: Numbers, name: str, shape: tuple[int, ...]) -> None:
    if len(shape) == 1:
        writer.add_tensor(name, numbers.uniform(shape, 0.2) + np.float32("norm" in name))
    else:
        # queries and keys large enough for attention to prefer some tokens to others
        deviation = (2.0 if "attn_" in name else 1.0) / math.sqrt(shape[1])
        writer.add_tensor(name, matrix(numbers, recipe.kind, shape, deviation), raw_dtype=recipe.kind)


def matrix(
    numbers: Numbers, kind: GGMLQuantizationType, shape: tuple[int, ...], deviation: float
) -> NDArray[np.generic]:
    """A random matrix in the bytes of `kind`; the `gguf` package cannot quantise to K kinds, so those are drawn."""
    if kind in K_KINDS:
        return _blocks(numbers, kind, shape, deviation)
    found: NDArray[np.generic] = quantize(numbers.uniform(shape, deviation), kind)
    return found


def _blocks(
    numbers: Numbers, kind: GGMLQuantizationType, shape: tuple[int, ...], deviation: float
) -> NDArray[np.uint8]:
    """Random blocks of a K kind: every bit drawn, but the scales set to give about mean 0 and the deviation."""
    size, size_bytes = GGML_QUANT_SIZES[kind]
    blocks = numbers.octets((math.prod(shape) // size, size_bytes))
    spread = 1 + numbers.uniform((len(blocks),), 0.2)
    if kind is Kind.Q6_K:  # value = d * scale(-128..127) * (quant - 32), d at the end of the block
        blocks[:, -2:] = _halves(deviation / 1366 * spread)
    else:  # value = d * scale * quant - dmin * minimum, d and dmin at its start
        middle = 7.5 if kind is Kind.Q4_K else 15.5
        blocks[:, 0:2] = _halves(deviation / (34 * middle) * spread)
        blocks[:, 2:4] = _halves(deviation / 34 * spread)
    return blocks.reshape(*shape[:-1], -1)


def _halves(values: Array) -> NDArray[np.uint8]:
    return values.astype("<f2").view(np.uint8).reshape(-1, 2)


def rope_factors(recipe: Recipe, scaling: Llama3Scaling) -> Array:
    """What a rotary frequency is divided by: 1 for short waves, `factor` for long ones, a blend in between."""
    frequencies = recipe.rope_base ** (-np.arange(0, recipe.head_width, 2) / recipe.head_width)
    turns = scaling.original_max_position_embeddings * frequencies / (2 * math.pi)
    blend = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    blend = np.clip(blend, 0, 1)
    return (1 / ((1 - blend) / scaling.factor + blend)).astype(np.float32)


def _cases() -> Iterator[tuple[str, Recipe]]:
    for architecture in ("llama", "qwen2", "qwen3"):
        for kind in (Kind.F32, Kind.F16, Kind.BF16, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0):
            yield f"{architecture}-{kind.name}", Recipe(architecture, kind)
        for kind in K_KINDS:
            yield f"{architecture}-{kind.name}", k_recipe(architecture, kind)
        yield f"{architecture}-tied", Recipe(architecture, Kind.Q8_0, seed=1, tied=True)
        yield f"{architecture}-linear", Recipe(architecture, seed=2, linear_scaling=4.0)
        yield f"{architecture}-7to1", Recipe(architecture, seed=3, heads=7, kv_heads=1, head_width=64, width=224)
        yield f"{architecture}-wide-head", Recipe(architecture, seed=4, heads=3, kv_heads=3, head_width=128)
    yield "llama-biases", Recipe("llama", Kind.Q5_0, seed=5, biases=True)
    yield "llama-llama3", Recipe("llama", seed=6, head_width=64, llama3_scaling=Llama3Scaling())


CASES = dict(_cases())
"""The checkpoints whose logits transformers has computed once, in fixtures/models/logits.npz."""


def prompt(recipe: Recipe, length: int = 12) -> list[int]:
    """Token ids that depend on the recipe's seed alone."""
    octets = Numbers(recipe.seed + 1000).octets((length, 2)).astype(int)
    return [int(token) for token in (octets[:, 0] * 256 + octets[:, 1]) % recipe.vocab_size]
