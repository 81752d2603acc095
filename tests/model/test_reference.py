"""The NumPy reference against what transformers answered, and the promises of the cache."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from soothsay.errors import ContextFull, PromptError
from soothsay.model.architectures import describe
from soothsay.model.architectures.decoder import Rope
from soothsay.model.base import Feed, Model, Slot
from soothsay.model.gguf import GGUFFile
from soothsay.model.reference import ReferenceModel, _rotate
from tests.checkpoints import CASES, Recipe, prompt

RECORDED = Path(__file__).parents[1] / "fixtures/models/logits.npz"
TINY = CASES["llama-Q8_0"]
TOKENS = prompt(TINY)

Checkpoint = Callable[[Recipe], Path]


def load(checkpoint: Checkpoint, recipe: Recipe) -> ReferenceModel:
    return ReferenceModel(describe(GGUFFile.open(checkpoint(recipe))))


def read(model: Model, slot: Slot, tokens: list[int]) -> NDArray[np.float32]:
    return model.forward([Feed(slot, tokens, len(tokens))])[0]


@pytest.fixture
def model(checkpoint: Checkpoint) -> ReferenceModel:
    return load(checkpoint, TINY)


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_transformers(checkpoint: Checkpoint, case: str) -> None:
    model = load(checkpoint, CASES[case])
    with np.load(RECORDED) as recorded:
        np.testing.assert_allclose(read(model, model.open(), prompt(CASES[case])), recorded[case], rtol=0, atol=1e-4)


@pytest.mark.parametrize("chunk", [1, 2, 5, 11])
def test_bits_do_not_depend_on_chunks_or_mates(model: ReferenceModel, chunk: int) -> None:
    """A batched product would round differently for different numbers of rows."""
    whole = read(model, model.open(), TOKENS)
    slot, rows = model.open(), []
    for start in range(0, len(TOKENS), chunk):
        mate = Feed(model.open(), TOKENS[::-1], 1)
        piece = TOKENS[start : start + chunk]
        rows.append(model.forward([mate, Feed(slot, piece, len(piece))])[1])
    assert np.array_equal(np.concatenate(rows), whole)


def test_only_the_last_rows_are_answered(model: ReferenceModel) -> None:
    whole = read(model, model.open(), TOKENS)
    slots = [model.open() for _ in range(3)]
    answers = model.forward([Feed(slot, TOKENS, rows) for slot, rows in zip(slots, (0, 1, 3), strict=True)])
    assert [len(answer) for answer in answers] == [0, 1, 3]
    assert np.array_equal(answers[2], whole[-3:])
    assert np.array_equal(answers[1], whole[-1:])


def test_truncate_forgets_rejected_tokens(model: ReferenceModel) -> None:
    whole = read(model, model.open(), TOKENS)
    slot = model.open()
    read(model, slot, [*TOKENS[:5], 1, 2, 3])
    model.truncate(slot, 5)
    assert model.length(slot) == 5
    assert np.array_equal(read(model, slot, TOKENS[5:]), whole[5:])


def test_a_fork_goes_its_own_way(model: ReferenceModel) -> None:
    """Shared lists would let one sequence write into the other's past."""
    whole = read(model, model.open(), TOKENS)
    slot = model.open()
    read(model, slot, TOKENS[:6])
    branch = model.fork(slot)
    read(model, branch, [9, 8, 7])
    assert np.array_equal(read(model, slot, TOKENS[6:]), whole[6:])
    model.close(slot)
    assert model.length(branch) == 9


def test_a_closed_slot_is_gone(model: ReferenceModel) -> None:
    slot = model.open()
    model.close(slot)
    with pytest.raises(KeyError):
        model.length(slot)


def test_a_full_context_is_refused_before_anything_is_read(model: ReferenceModel) -> None:
    mate, slot = model.open(), model.open()
    read(model, slot, [1] * model.max_length)
    with pytest.raises(ContextFull, match="65 tokens are more than the context of 64"):
        model.forward([Feed(mate, TOKENS, 1), Feed(slot, [1], 1)])
    assert model.length(mate) == 0


@pytest.mark.parametrize("token", [-1, TINY.vocab_size])
def test_a_token_outside_the_vocabulary_is_refused(model: ReferenceModel, token: int) -> None:
    """NumPy would read -1 as the last row of the embedding."""
    slot = model.open()
    with pytest.raises(PromptError, match=f"token {token} is outside"):
        model.forward([Feed(slot, [1, token], 1)])
    assert model.length(slot) == 0


def test_impossible_feeds_are_refused(model: ReferenceModel) -> None:
    slot = model.open()
    with pytest.raises(ValueError, match="more than one feed"):
        model.forward([Feed(slot, [1], 1), Feed(slot, [2], 1)])
    with pytest.raises(ValueError, match="2 rows asked of 1 tokens"):
        model.forward([Feed(slot, [1], 2)])
    with pytest.raises(ValueError, match="cannot keep 1 tokens of 0"):
        model.truncate(slot, 1)


@pytest.mark.parametrize("interleaved", [True, False])
def test_rotation_is_a_product_of_complex_numbers(interleaved: bool) -> None:
    """And it leaves the entries beyond its width alone."""
    heads = np.random.default_rng(0).standard_normal((3, 10)).astype(np.float32)
    frequencies = np.array([1.0, 0.1, 0.01, 0.003])
    rotated = _rotate(heads, Rope(8, interleaved, frequencies), position=17)
    pairs = np.array([(0, 1), (2, 3), (4, 5), (6, 7)] if interleaved else [(0, 4), (1, 5), (2, 6), (3, 7)])
    before = heads[:, pairs[:, 0]] + 1j * heads[:, pairs[:, 1]]
    after = rotated[:, pairs[:, 0]] + 1j * rotated[:, pairs[:, 1]]
    np.testing.assert_allclose(after, before * np.exp(17j * frequencies), atol=1e-6)
    assert np.array_equal(rotated[:, 8:], heads[:, 8:])
