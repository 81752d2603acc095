"""From a file's metadata and tensors to the description of its decoder; nothing wrong or unknown passes in silence."""

import dataclasses
import math
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from soothsay.errors import FileCorrupt, ModelError, Unsupported
from soothsay.model.architectures import describe
from soothsay.model.gguf import GGUFFile, Tensor
from tests.checkpoints import CASES, Kind, Llama3Scaling, Recipe

Checkpoint = Callable[[Recipe], Path]
ARCHITECTURES = ("llama", "qwen2", "qwen3")


@pytest.fixture(params=ARCHITECTURES)
def file(request: pytest.FixtureRequest, checkpoint: Checkpoint) -> GGUFFile:
    return GGUFFile.open(checkpoint(Recipe(request.param)))


@pytest.fixture
def llama(checkpoint: Checkpoint) -> GGUFFile:
    return GGUFFile.open(checkpoint(Recipe("llama")))


def with_metadata(file: GGUFFile, **changes: Any) -> GGUFFile:
    """The same file with values set, or dropped where they are None; "__" in a keyword stands for "."."""
    prefix = f"{file.metadata['general.architecture']}."
    changed = {prefix + key.replace("__", "."): value for key, value in changes.items()}
    kept = {key: value for key, value in (dict(file.metadata) | changed).items() if value is not None}
    return dataclasses.replace(file, metadata=kept)


def with_tensors(file: GGUFFile, tensors: Mapping[str, Tensor]) -> GGUFFile:
    return dataclasses.replace(file, tensors=tensors)


def vector(name: str, *shape: int) -> Tensor:
    values = np.ones(shape, np.float32)
    return Tensor(name, Kind.F32, shape, values.view(np.uint8))


def test_sizes_are_the_recipe(file: GGUFFile) -> None:
    decoder = describe(file)
    assert decoder.architecture == file.metadata["general.architecture"]
    assert (decoder.vocab_size, decoder.width, decoder.feed_forward_width) == (131, 96, 160)
    assert (decoder.heads, decoder.kv_heads, decoder.head_width) == (6, 2, 32)
    assert (decoder.max_length, len(decoder.layers)) == (64, 2)
    assert decoder.norm_epsilon == pytest.approx(1e-5)
    assert decoder.output.weight is file.tensors["output.weight"]
    assert decoder.layers[1].down.weight is file.tensors["blk.1.ffn_down.weight"]


def test_each_family_has_its_own_parts(checkpoint: Checkpoint) -> None:
    layers = {name: describe(GGUFFile.open(checkpoint(Recipe(name)))).layers[0] for name in ARCHITECTURES}
    assert [name for name, layer in layers.items() if layer.query.bias] == ["qwen2"]
    assert [name for name, layer in layers.items() if layer.query_norm and layer.key_norm] == ["qwen3"]


def test_a_missing_output_is_the_embedding(checkpoint: Checkpoint) -> None:
    decoder = describe(GGUFFile.open(checkpoint(CASES["qwen2-tied"])))
    assert decoder.output.weight is decoder.embedding


def test_biases_are_taken_where_present(checkpoint: Checkpoint) -> None:
    file = GGUFFile.open(checkpoint(CASES["llama-biases"]))
    layer = describe(file).layers[0]
    linears = (layer.query, layer.key, layer.value, layer.attention_output, layer.gate, layer.up, layer.down)
    assert all(linear.bias for linear in linears)
    assert layer.down.bias is file.tensors["blk.0.ffn_down.bias"]


def test_head_width_defaults_to_an_equal_share(llama: GGUFFile) -> None:
    file = with_metadata(llama, attention__key_length=None, attention__value_length=None, attention__head_count=3)
    with pytest.raises(FileCorrupt, match="3 attention heads cannot share 2"):
        describe(file)
    file = with_metadata(llama, attention__key_length=None, attention__value_length=None, attention__head_count=7)
    with pytest.raises(FileCorrupt, match=r"7 attention heads cannot share|no multiple"):
        describe(file)


def test_key_value_heads_default_to_all(llama: GGUFFile) -> None:
    with pytest.raises(FileCorrupt, match=r"attn_k.weight has shape \(64, 96\); \(192, 96\) was expected"):
        describe(with_metadata(llama, attention__head_count_kv=None))


def test_rope_frequencies(llama: GGUFFile) -> None:
    plain = describe(llama).rope
    assert plain.frequencies == pytest.approx([10000 ** (-2 * i / 32) for i in range(16)], rel=1e-15)
    assert (plain.width, plain.interleaved) == (32, True)
    scaled = describe(with_metadata(llama, rope__scaling__type="linear", rope__scaling__factor=4.0)).rope
    assert np.array_equal(scaled.frequencies, plain.frequencies / 4)
    unnamed = describe(with_metadata(llama, rope__scaling__factor=4.0)).rope  # linear is the format's default
    assert np.array_equal(unnamed.frequencies, plain.frequencies / 4)
    off = describe(with_metadata(llama, rope__scaling__type="none", rope__scaling__factor=4.0)).rope
    assert np.array_equal(off.frequencies, plain.frequencies)
    narrow = describe(with_metadata(llama, rope__dimension_count=16)).rope
    assert narrow.frequencies == pytest.approx([10000 ** (-2 * i / 16) for i in range(8)])


def test_llama3_factors_divide_the_frequencies(checkpoint: Checkpoint) -> None:
    recipe = Recipe("llama", llama3_scaling=Llama3Scaling(factor=8.0))
    ratio = describe(GGUFFile.open(checkpoint(Recipe("llama")))).rope.frequencies / (
        describe(GGUFFile.open(checkpoint(recipe))).rope.frequencies
    )
    assert ratio[0] == 1
    assert ratio[-1] == 8
    assert np.all(np.diff(ratio) >= 0)


def test_factors_that_are_no_divisors_are_refused(llama: GGUFFile) -> None:
    for bad in (0.0, -1.0, math.nan, math.inf):
        factors = vector("rope_freqs.weight", 16)
        factors.data.view(np.float32)[3] = bad
        with pytest.raises(FileCorrupt, match="rope_freqs"):
            describe(with_tensors(llama, {**llama.tensors, factors.name: factors}))


def test_every_missing_tensor_is_named(file: GGUFFile) -> None:
    optional = [name for name in file.tensors if name.endswith(".bias")] + ["output.weight"]
    for missing in set(file.tensors) - set(optional):
        rest = {name: tensor for name, tensor in file.tensors.items() if name != missing}
        with pytest.raises(FileCorrupt, match=f"tensor {missing} is missing"):
            describe(with_tensors(file, rest))


def test_every_wrong_shape_is_named(file: GGUFFile) -> None:
    for name, tensor in file.tensors.items():
        longer = dataclasses.replace(tensor, shape=(*tensor.shape[:-1], tensor.shape[-1] + 32))
        with pytest.raises(FileCorrupt) as caught:
            describe(with_tensors(file, {**file.tensors, name: longer}))
        assert f"tensor {name} has shape {longer.shape}; {tensor.shape} was expected" in str(caught.value)


@pytest.mark.parametrize(
    "name", ["blk.0.attn_sinks.weight", "blk.2.attn_norm.weight", "blk.0.attn_q_norm.weight", "cls.output.weight"]
)
def test_a_tensor_that_nothing_reads_is_refused(llama: GGUFFile, name: str) -> None:
    """Skipping it would run another model than the file's."""
    with pytest.raises(Unsupported, match=f"tensor '{name}' is no part of a supported llama model"):
        describe(with_tensors(llama, {**llama.tensors, name: vector(name, 96)}))


def test_rope_factors_are_no_part_of_qwen2(checkpoint: Checkpoint) -> None:
    file = GGUFFile.open(checkpoint(Recipe("qwen2")))
    factors = vector("rope_freqs.weight", 16)
    with pytest.raises(Unsupported, match="rope_freqs"):
        describe(with_tensors(file, {**file.tensors, factors.name: factors}))


ACTIVE = {
    "expert_count": 8,
    "attention__causal": False,
    "attention__scale": 0.0625,
    "attention__clamp_kqv": 8.0,
    "attention__sliding_window": 32,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "embedding_scale": 12.0,
    "residual_scale": 0.22,
    "logit_scale": 16.0,
    "use_parallel_residual": True,
    "rope__scaling__type": "yarn",
    "rope__scaling__attn_factor": 1.2,
}


@pytest.mark.parametrize("key", ACTIVE)
def test_what_would_change_the_answers_is_refused(file: GGUFFile, key: str) -> None:
    with pytest.raises(Unsupported, match=key.replace("__", ".")):
        describe(with_metadata(file, **{key: ACTIVE[key]}))


@pytest.mark.parametrize(
    ("key", "value"),
    [("expert_count", 0), ("attention__causal", True), ("attention__sliding_window", 64), ("logit_scale", 1.0)],
)
def test_what_changes_nothing_is_accepted(file: GGUFFile, key: str, value: object) -> None:
    describe(with_metadata(file, **{key: value}))


def test_unequal_lengths_of_keys_and_values_are_refused(llama: GGUFFile) -> None:
    with pytest.raises(Unsupported, match=r"key_length is 32 and attention\.value_length 64"):
        describe(with_metadata(llama, attention__value_length=64))


@pytest.mark.parametrize("name", ["gemma3", "LLAMA", "", "a\nb"])
def test_an_unknown_architecture_names_the_known(llama: GGUFFile, name: str) -> None:
    file = dataclasses.replace(llama, metadata={**llama.metadata, "general.architecture": name})
    with pytest.raises(Unsupported) as caught:
        describe(file)
    assert f"{name!r} is not supported; llama, qwen2, qwen3 are" in str(caught.value)


@pytest.mark.parametrize("name", [None, 3, ["llama"]])
def test_a_file_without_an_architecture_is_corrupt(llama: GGUFFile, name: Any) -> None:
    file = dataclasses.replace(llama, metadata={**llama.metadata, "general.architecture": name})
    with pytest.raises(FileCorrupt, match=r"general\.architecture"):
        describe(file)


HOSTILE: tuple[Any, ...] = (
    None,
    0,
    -1,
    1,
    7,
    2**31 - 1,
    2**40,
    2**64 - 1,
    0.0,
    -1.0,
    1e308,
    math.nan,
    math.inf,
    True,
    "64",
    ["a"],
    [],
)


@pytest.mark.parametrize("value", [*HOSTILE, np.array([96, 96], np.uint32)], ids=repr)
def test_no_value_of_any_key_escapes(file: GGUFFile, value: Any) -> None:
    """A value is understood or refused in one line: no other exception, no warning, no huge array of frequencies."""
    for key in (key for key in file.metadata if key.startswith(str(file.metadata["general.architecture"]))):
        changed = {name: value if name == key else old for name, old in file.metadata.items()}
        if value is None:
            del changed[key]
        said = complaint(dataclasses.replace(file, metadata=changed))
        assert said.isprintable()
        assert not said or key.split(".", 1)[1] in said or "tensor" in said or "heads" in said


def test_a_huge_head_is_refused_before_its_frequencies_are_computed(llama: GGUFFile) -> None:
    width = 2**26
    file = with_metadata(llama, attention__key_length=width, attention__value_length=width, rope__dimension_count=None)
    tracemalloc.start()
    with pytest.raises(FileCorrupt, match=r"attn_q.weight has shape"):
        describe(file)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 1_000_000


def complaint(file: GGUFFile) -> str:
    try:
        describe(file)
    except ModelError as error:
        return str(error)
    return ""


def test_needed_values_are_named_when_missing(file: GGUFFile) -> None:
    for key in ("context_length", "embedding_length", "block_count", "feed_forward_length", "attention__head_count"):
        with pytest.raises(FileCorrupt, match=f"{key.replace('__', '.')} is missing"):
            describe(with_metadata(file, **{key: None}))
