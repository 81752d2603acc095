"""The paged cache of the native runtime: what is shared, copied, forgotten and given back."""

from dataclasses import replace

import numpy as np
import pytest

from soothsay.model.architectures.decoder import Decoder, Linear
from soothsay.model.base import Feed, Slot
from soothsay.model.gguf import Tensor, dequantise
from soothsay.model.native import NativeModel, runtime
from tests.checkpoints import CASES, Recipe, prompt
from tests.runtimes import ISAS, Checkpoint, alone, describe_recipe, load, read, same_bits

BLOCK_TOKENS = 32
RECIPE = replace(CASES["llama-Q8_0"], max_length=256)
TOKENS = prompt(RECIPE, 120)
BLOCK_BYTES = RECIPE.layers * RECIPE.kv_heads * RECIPE.head_width * BLOCK_TOKENS * 2 * 2  # keys and values, 2 bytes


@pytest.fixture
def model(checkpoint: Checkpoint) -> NativeModel:
    return load(checkpoint, RECIPE)


def blocks(model: NativeModel) -> int:
    whole, rest = divmod(model._native.cache_bytes, BLOCK_BYTES)
    assert rest == 0
    return whole


def fill(model: NativeModel, slot: Slot, count: int) -> None:
    model.forward([Feed(slot, TOKENS[:count], 0)])


def test_blocks_are_taken_when_they_are_needed(model: NativeModel) -> None:
    slot = model.open()
    assert blocks(model) == 0
    for count, held in ((31, 1), (1, 1), (1, 2), (63, 3), (0, 3), (1, 4)):
        fill(model, slot, count)
        assert blocks(model) == held


def test_close_gives_blocks_back(model: NativeModel) -> None:
    """What stays after a thousand requests would be a leak."""
    for _ in range(20):
        slot = model.open()
        fill(model, slot, 100)
        assert blocks(model) == 4
        model.close(slot)
        assert blocks(model) == 0


def test_a_fork_shares_until_one_of_them_grows(model: NativeModel) -> None:
    trunk = model.open()
    fill(model, trunk, 70)
    branch = model.fork(trunk)
    assert (model.length(branch), blocks(model)) == (70, 3)
    fill(model, branch, 1)  # its own copy of the block that it writes into, and of no other
    assert blocks(model) == 4
    fill(model, trunk, 1)  # nobody shares this block any more
    assert blocks(model) == 4
    model.close(trunk)
    assert blocks(model) == 3
    model.close(branch)
    assert blocks(model) == 0


def test_a_fork_takes_only_what_counts(model: NativeModel) -> None:
    trunk = model.open()
    fill(model, trunk, 100)
    model.truncate(trunk, 64)
    branch = model.fork(trunk)
    model.close(trunk)
    assert blocks(model) == 2
    fill(model, branch, 1)
    assert blocks(model) == 3


def test_a_fork_of_an_empty_slot_is_empty(model: NativeModel) -> None:
    slot = model.fork(model.open())
    assert model.length(slot) == 0
    assert same_bits(read(model, slot, TOKENS[:9]), alone(model, TOKENS[:9]))


def test_truncated_blocks_are_used_again(model: NativeModel) -> None:
    slot = model.open()
    for _ in range(5):
        fill(model, slot, 100)
        assert blocks(model) == 4
        model.truncate(slot, 0)
    assert same_bits(read(model, slot, TOKENS), alone(model, TOKENS))


def test_truncation_spares_the_other_branch(model: NativeModel) -> None:
    """A slot cut back into a shared block writes there next."""
    expected = alone(model, TOKENS)
    trunk = model.open()
    fill(model, trunk, 80)
    branch = model.fork(trunk)
    model.truncate(trunk, 40)
    read(model, trunk, TOKENS[:30][::-1])
    assert same_bits(read(model, branch, TOKENS[80:]), expected[80:])


@pytest.mark.parametrize("length", [-1, 11])
def test_only_lengths_that_it_has_can_be_kept(model: NativeModel, length: int) -> None:
    slot = model.open()
    fill(model, slot, 10)
    with pytest.raises(ValueError, match=f"cannot keep {length} tokens of 10"):
        model.truncate(slot, length)
    assert model.length(slot) == 10


def test_slots_are_never_given_twice(model: NativeModel) -> None:
    """A late close of an old slot must not hit a new one."""
    first = model.open()
    model.close(first)
    assert first not in {model.open(), model.fork(model.open())}


# --- Rejected tokens leave their keys and values behind: nothing of them may be seen, not even 0 x infinity

POISON = 7
POISONED = Recipe("qwen2", vocab_size=32, layers=1, width=64, heads=4, kv_heads=2, max_length=256)


def poisoned(decoder: Decoder, *places: str) -> Decoder:
    """Make one token's keys or values infinite in half precision, and leave every other token's as they are.

    Only its embedding has a first entry, and only the first inputs of those matrices are huge.
    """
    embedding = dequantise(decoder.embedding).copy()
    embedding[:, 0] = 0
    embedding[POISON] = 0
    embedding[POISON, 0] = 1
    layer = decoder.layers[0]
    if "key" in places:
        layer = replace(layer, key=_with_huge_first_input(layer.key))
    if "value" in places:
        layer = replace(layer, value=_with_huge_first_input(layer.value))
    return replace(decoder, embedding=_tensor(decoder.embedding, embedding), layers=(layer,))


def _with_huge_first_input(linear: Linear) -> Linear:
    weight = dequantise(linear.weight).copy()
    weight[:, 0] = 1e6
    return replace(linear, weight=_tensor(linear.weight, weight))


def _tensor(like: Tensor, values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> Tensor:
    return replace(like, data=values.view(np.uint8))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("places", [["key"], ["value"], ["key", "value"]], ids=" and ".join)
def test_infinities_that_were_rejected_do_not_leak(checkpoint: Checkpoint, isa: str, places: list[str]) -> None:
    model = NativeModel(poisoned(describe_recipe(checkpoint, POISONED), *places), runtime(1, isa))
    tokens = [token for token in prompt(POISONED, 200) if token != POISON]
    expected = alone(model, tokens)
    assert np.isfinite(expected).all()
    for length in (0, 1, 15, 17, 31, 32, 33, 100):
        slot = model.open()
        model.forward([Feed(slot, tokens[:length], 0)])
        if "value" in places:
            assert not np.isfinite(read(model, slot, [POISON, tokens[length]])).all(), "the poison works"
        model.truncate(slot, length)
        model.forward([Feed(slot, [POISON] * 40, 0)])
        model.truncate(slot, length)
        branch = model.fork(slot)
        for each, chunk in ((slot, 1), (branch, 5)):
            assert same_bits(read(model, each, tokens[length : length + 36], chunk), expected[length : length + 36])
        model.close(slot)
        model.close(branch)


# --- One cache for two models


def test_a_model_goes_on_from_what_another_of_its_shape_has_read(checkpoint: Checkpoint, model: NativeModel) -> None:
    """With the same weights to the bit; and what it adds to a fork the other one never sees."""
    light = NativeModel(describe_recipe(checkpoint, RECIPE), model.runtime, beside=model)
    expected = alone(model, TOKENS)
    trunk = model.open()
    fill(model, trunk, 33)
    branch = light.fork(trunk)
    assert same_bits(read(light, branch, TOKENS[33:36]), expected[33:36])
    light.forward([Feed(branch, TOKENS[:5], 0)])  # something else, into the same block of 32
    assert same_bits(read(model, trunk, TOKENS[33:]), expected[33:])
    light.close(branch)
    with pytest.raises(KeyError):
        model.length(branch)


def test_a_model_of_another_shape_has_no_use_for_the_cache(checkpoint: Checkpoint) -> None:
    other = load(checkpoint, replace(RECIPE, kv_heads=3))
    with pytest.raises(ValueError, match="the other decoder's cache has another shape"):
        NativeModel(describe_recipe(checkpoint, RECIPE), other.runtime, beside=other)
