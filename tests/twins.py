"""The same model in transformers: an oracle that shares nothing with soothsay but the reading of the file's bytes."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray

from soothsay.model.gguf import GGUFFile
from tests.checkpoints import Recipe

CLASSES = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
}

NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class Twin:
    """A transformers model in float32 with the weights of a GGUF file."""

    def __init__(self, file: GGUFFile, recipe: Recipe | None = None) -> None:
        """`recipe` is needed for what a file cannot say: the parameters of Llama 3's rotary scaling."""
        configuration, model = CLASSES[str(file.metadata["general.architecture"])]
        self._model = model(configuration(**_options(file, recipe))).float().eval()
        state = {name: torch.from_numpy(values.copy()) for name, values in _state(file)}
        missing = self._model.load_state_dict(state, strict=False)
        assert not missing.unexpected_keys
        assert set(missing.missing_keys) <= {"lm_head.weight"}

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Logits after each token, [tokens, vocab_size]."""
        with torch.no_grad():
            found: NDArray[np.float32] = self._model(torch.tensor([list(tokens)])).logits[0].numpy()
        return found


def _options(file: GGUFFile, recipe: Recipe | None) -> dict[str, Any]:
    prefix = f"{file.metadata['general.architecture']}."
    found = {key.removeprefix(prefix): value for key, value in file.metadata.items() if key.startswith(prefix)}
    options = {
        "vocab_size": file.tensors["token_embd.weight"].shape[0],
        "hidden_size": found["embedding_length"],
        "intermediate_size": found["feed_forward_length"],
        "num_hidden_layers": found["block_count"],
        "num_attention_heads": found["attention.head_count"],
        "num_key_value_heads": found["attention.head_count_kv"],
        "head_dim": _head_width(found),
        "max_position_embeddings": found["context_length"],
        "rms_norm_eps": found["attention.layer_norm_rms_epsilon"],
        "rope_parameters": _rope(found, recipe),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attn_implementation": "eager",
    }
    if "blk.0.attn_output.bias" in file.tensors:
        options |= {"attention_bias": True, "mlp_bias": True}
    return options


def _head_width(found: dict[str, Any]) -> int:
    return int(found.get("attention.key_length", found["embedding_length"] // found["attention.head_count"]))


def _rope(found: dict[str, Any], recipe: Recipe | None) -> dict[str, Any]:
    base = {"rope_theta": found["rope.freq_base"]}
    if recipe and recipe.llama3_scaling:
        return base | {"rope_type": "llama3"} | asdict(recipe.llama3_scaling)
    if "rope.scaling.factor" in found:
        return base | {"rope_type": "linear", "factor": found["rope.scaling.factor"]}
    return base | {"rope_type": "default"}


def _state(file: GGUFFile) -> Iterator[tuple[str, NDArray[np.float32]]]:
    for name, tensor in file.tensors.items():
        if name == "rope_freqs.weight":
            continue
        values = dequantize(tensor.data, GGMLQuantizationType(tensor.kind))
        if file.metadata["general.architecture"] == "llama" and re.search(r"attn_[qk]\.", name):
            values = _halves_apart(values, _rope_pairs(file))
        yield _renamed(name), values


def _rope_pairs(file: GGUFFile) -> int:
    return _head_width({key.removeprefix("llama."): value for key, value in file.metadata.items()}) // 2


def _halves_apart(rows: NDArray[np.float32], pairs: int) -> NDArray[np.float32]:
    """GGUF keeps a llama head's rotary pairs side by side; transformers keeps them half a head apart."""
    return rows.reshape(-1, pairs, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def _renamed(name: str) -> str:
    block, part, suffix = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", name).groups()  # type: ignore[union-attr]
    layer = f"model.layers.{block}." if block else ""
    return f"{layer}{NAMES[part]}.{suffix}"
