"""What the supported families share: pre-norm blocks of grouped-query attention and SwiGLU.

Names of tensors and metadata follow the GGUF specification (ggml, docs/gguf.md) and the `gguf` package.
"""

from dataclasses import dataclass

import numpy as np

from soothsay.model.architectures.decoder import Decoder, Layer, Linear, Rope
from soothsay.model.architectures.parts import Parts
from soothsay.model.gguf import Tensor


@dataclass(frozen=True, slots=True)
class Family:
    """How one architecture differs from the others.

    `interleaved` is the pairing of the rotary embedding as the file stores its heads. `query_key_norm` asks for a
    norm over each head's queries and keys. `rope_factors` allows the tensor of divisors that Llama 3 scaling becomes.
    """

    architecture: str
    interleaved: bool
    query_key_norm: bool
    rope_factors: bool


@dataclass(frozen=True, slots=True)
class _Sizes:
    vocab: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    feed_forward_width: int


def decoder(family: Family, parts: Parts) -> Decoder:
    """Describe the whole model; raises FileCorrupt or Unsupported and never skips a part of the file."""
    _refuse_what_changes_the_answers(parts)
    embedding = parts.embedding(parts.integer("embedding_length"))
    sizes = _sizes(parts, embedding)
    layers = _layers(family, parts, sizes)  # first: from here on the file's tensors vouch for the sizes
    described = Decoder(
        architecture=family.architecture,
        vocab_size=sizes.vocab,
        max_length=parts.integer("context_length"),
        width=sizes.width,
        heads=sizes.heads,
        kv_heads=sizes.kv_heads,
        head_width=sizes.head_width,
        feed_forward_width=sizes.feed_forward_width,
        norm_epsilon=parts.number("attention.layer_norm_rms_epsilon"),
        rope=_rope(family, parts, sizes.head_width),
        embedding=embedding,
        layers=layers,
        output_norm=parts.tensor("output_norm.weight", sizes.width),
        output=_output(parts, embedding, sizes),
    )
    parts.refuse_rest()
    return described


def _refuse_what_changes_the_answers(parts: Parts) -> None:
    parts.refuse("expert_count", 0)
    parts.refuse("attention.causal", True)
    parts.refuse("attention.scale", 0.0)
    parts.refuse("attention.clamp_kqv", 0.0)
    parts.refuse("attn_logit_softcapping", 0.0)
    parts.refuse("final_logit_softcapping", 0.0)
    parts.refuse("embedding_scale", 0.0, 1.0)
    parts.refuse("residual_scale", 0.0, 1.0)
    parts.refuse("logit_scale", 0.0, 1.0)
    parts.refuse("use_parallel_residual", False)
    parts.refuse("rope.scaling.type", "none", "linear")
    parts.refuse("rope.scaling.attn_factor", 1.0)
    if parts.integer("attention.sliding_window", 0, least=0) < parts.integer("context_length"):
        parts.refuse("attention.sliding_window", 0)


def _sizes(parts: Parts, embedding: Tensor) -> _Sizes:
    vocab, width = embedding.shape
    heads = parts.integer("attention.head_count")
    kv_heads = parts.integer("attention.head_count_kv", heads)
    if heads % kv_heads:
        raise parts.corrupt(f"{heads} attention heads cannot share {kv_heads} key/value heads equally")
    if width % heads and not parts.has("attention.key_length"):
        raise parts.corrupt(f"the width {width} is no multiple of the {heads} attention heads")
    head_width = parts.integer("attention.key_length", width // heads)
    value_width = parts.integer("attention.value_length", head_width)
    if value_width != head_width:
        raise parts.unsupported(
            f"attention.key_length is {head_width} and attention.value_length {value_width}; supported are equal ones"
        )
    return _Sizes(vocab, width, heads, kv_heads, head_width, parts.integer("feed_forward_length"))


def _rope(family: Family, parts: Parts, head_width: int) -> Rope:
    """Frequencies base^(-2i/width) (RoFormer, arXiv 2104.09864), divided by the file's scaling factors."""
    width = parts.integer("rope.dimension_count", head_width)
    if width % 2 or width > head_width:
        raise parts.corrupt(f"rope.dimension_count is {width}; an even number up to {head_width} was expected")
    frequencies = parts.number("rope.freq_base", 10000.0) ** (-np.arange(0, width, 2) / width)
    if family.rope_factors:
        frequencies /= parts.factors("rope_freqs.weight", width // 2)
    return Rope(width, family.interleaved, frequencies / _linear_scaling(parts))


def _linear_scaling(parts: Parts) -> float:
    if parts.text("rope.scaling.type", "linear") == "none":
        return 1.0
    return parts.number("rope.scaling.factor", parts.number("rope.scale_linear", 1.0))


def _layers(family: Family, parts: Parts, sizes: _Sizes) -> tuple[Layer, ...]:
    return tuple(_layer(family, parts, sizes, index) for index in range(parts.integer("block_count")))


def _layer(family: Family, parts: Parts, sizes: _Sizes, index: int) -> Layer:
    block = f"blk.{index}"
    queries, keys = sizes.heads * sizes.head_width, sizes.kv_heads * sizes.head_width
    width, hidden = sizes.width, sizes.feed_forward_width
    return Layer(
        attention_norm=parts.tensor(f"{block}.attn_norm.weight", width),
        query=parts.linear(f"{block}.attn_q", queries, width),
        key=parts.linear(f"{block}.attn_k", keys, width),
        value=parts.linear(f"{block}.attn_v", keys, width),
        attention_output=parts.linear(f"{block}.attn_output", width, queries),
        query_norm=_head_norm(family, parts, f"{block}.attn_q_norm.weight", sizes),
        key_norm=_head_norm(family, parts, f"{block}.attn_k_norm.weight", sizes),
        feed_forward_norm=parts.tensor(f"{block}.ffn_norm.weight", width),
        gate=parts.linear(f"{block}.ffn_gate", hidden, width),
        up=parts.linear(f"{block}.ffn_up", hidden, width),
        down=parts.linear(f"{block}.ffn_down", width, hidden),
    )


def _head_norm(family: Family, parts: Parts, name: str, sizes: _Sizes) -> Tensor | None:
    return parts.tensor(name, sizes.head_width) if family.query_key_norm else None


def _output(parts: Parts, embedding: Tensor, sizes: _Sizes) -> Linear:
    """The output matrix, which is the embedding itself when the file has none of its own."""
    if parts.has_tensor("output.weight"):
        return parts.linear("output", sizes.vocab, sizes.width)
    return Linear(embedding, parts.optional("output.bias", sizes.vocab))
