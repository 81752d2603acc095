"""The table model: exact, reproducible, and sensitive to every token of the prefix."""

import numpy as np
import pytest

from soothsay.errors import ContextFull, OptionError
from soothsay.model.base import Feed, Model
from soothsay.model.table import TableModel


def fed(model: TableModel, tokens: list[int], chunks: list[int]) -> np.ndarray:
    """Feed tokens in chunks and give the logits after each token."""
    slot, rows = model.open(), []
    for size in chunks:
        length = model.length(slot)
        rows += model.forward([Feed(slot, tokens[length : length + size], size)])
    model.close(slot)
    return np.concatenate(rows)


def test_rows_are_those_of_their_prefixes_in_any_chunks() -> None:
    model: Model = TableModel(5, seed=1)
    assert isinstance(model, TableModel)
    tokens = [3, 1, 4, 1, 0, 2]
    wanted = np.array([model.logits(tokens[: end + 1]) for end in range(6)])
    for chunks in ([6], [1, 5], [2, 3, 1], [1] * 6):
        np.testing.assert_array_equal(fed(model, tokens, chunks), wanted)
    assert wanted.dtype == np.float32
    assert wanted.shape == (6, 5)


def test_logits_depend_on_every_token_of_the_prefix_and_on_the_seed() -> None:
    model = TableModel(4, seed=1)
    prefixes = [(0, 1, 2), (1, 1, 2), (0, 0, 2), (0, 1, 3), (0, 1), (0, 0, 1, 2), ()]
    rows = [model.logits(prefix) for prefix in prefixes] + [TableModel(4, seed=2).logits((0, 1, 2))]
    assert len({row.tobytes() for row in rows}) == len(rows)
    np.testing.assert_array_equal(TableModel(4, seed=1).logits((0, 1, 2)), rows[0])


def test_logits_stay_what_they_are() -> None:
    """Recorded: figures measured with this model can be measured again."""
    recorded = [1.9850502, 1.8184065, 1.1133699]
    assert TableModel(3, seed=7).logits((1, 2)).tolist() == pytest.approx(recorded)


def test_rollback_and_fork_leave_the_other_sequence_alone() -> None:
    model = TableModel(4, seed=3)
    trunk = model.open()
    model.forward([Feed(trunk, [0, 1, 2], 0)])
    branch = model.fork(trunk)
    model.truncate(trunk, 1)
    mine, other = model.forward([Feed(trunk, [3], 1), Feed(branch, [1], 1)])
    np.testing.assert_array_equal(mine[0], model.logits((0, 3)))
    np.testing.assert_array_equal(other[0], model.logits((0, 1, 2, 1)))
    assert (model.length(trunk), model.length(branch)) == (2, 4)


def test_no_rows_is_an_empty_answer() -> None:
    model = TableModel(4, seed=3)
    assert model.forward([Feed(model.open(), [1, 2], 0)])[0].shape == (0, 4)


def test_a_blend_goes_from_one_model_to_the_other() -> None:
    one, other = TableModel(4, seed=1), TableModel(4, seed=2, sharpness=5)
    np.testing.assert_array_equal(one.blend(other, 0).logits((1,)), one.logits((1,)))
    np.testing.assert_array_equal(one.blend(other, 1).logits((1,)), other.logits((1,)))
    half = (one.logits((1,)) + other.logits((1,))) / 2
    np.testing.assert_allclose(one.blend(other, 0.5).logits((1,)), half, rtol=1e-6)


def test_a_full_context_changes_nothing() -> None:
    model = TableModel(4, seed=3, max_length=3)
    one, other = model.open(), model.open()
    model.forward([Feed(one, [0, 1], 0)])
    with pytest.raises(ContextFull, match="4 tokens does not fit in a context of 3"):
        model.forward([Feed(other, [1], 1), Feed(one, [2, 3], 1)])
    assert (model.length(one), model.length(other)) == (2, 0)
    model.forward([Feed(one, [2], 1)])


def test_misuse_is_an_error() -> None:
    model = TableModel(4, seed=3)
    slot = model.open()
    with pytest.raises(ValueError, match="3 rows are wanted of 1 tokens"):
        model.forward([Feed(slot, [1], 3)])
    with pytest.raises(ValueError, match="tokens are 0 to 3"):
        model.forward([Feed(slot, [4], 1)])
    with pytest.raises(ValueError, match="cannot be cut to 1"):
        model.truncate(slot, 1)
    model.close(slot)
    for use in (lambda: model.length(slot), lambda: model.close(slot), lambda: model.fork(slot)):
        with pytest.raises(ValueError, match="is not open"):
            use()


@pytest.mark.parametrize("vocab_size", [1, 17])
def test_vocabulary_sizes_are_bounded(vocab_size: int) -> None:
    with pytest.raises(OptionError, match="2 to 16"):
        TableModel(vocab_size, seed=0)
