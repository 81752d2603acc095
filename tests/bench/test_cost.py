"""What a pass costs: the figures hang together, and what a pass must read and multiply is counted right."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from soothsay import OptionError, Unsupported
from soothsay.bench import cost
from soothsay.bench.cost import measure
from soothsay.bench.passes import time_rows
from soothsay.model.architectures import describe
from soothsay.model.base import Feed
from soothsay.model.gguf import GGUFFile
from soothsay.model.native import NativeModel, pack, runtime
from tests.checkpoints import CASES, Kind, Recipe

RECIPE = Recipe("qwen2", Kind.Q8_0, vocab_size=300)
Checkpoint = Callable[[Recipe], Path]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "READ_BYTES", 1 << 20)


def test_the_figures_hang_together(checkpoint: Checkpoint) -> None:
    found = measure(checkpoint(RECIPE), context=7, rows=[4, 2, 4], threads=2, rounds=2)
    assert (found.model, found.threads, found.context) == (checkpoint(RECIPE).name, 2, 7)
    assert [row.rows for row in found.rows] == [1, 2, 4]
    work = NativeModel(describe(GGUFFile.open(checkpoint(RECIPE))), runtime(1)).work
    for row in found.rows:
        assert row.v == row.seconds / found.rows[0].seconds
        assert row.products_per_second == row.rows * work.products / row.seconds
        reading = found.bytes_per_pass / found.read_bandwidth_bytes_per_second
        multiplying = row.rows * work.products / found.peak_products_per_second
        assert row.roofline_share == pytest.approx(max(reading, multiplying) / row.seconds)
    assert found.bytes_per_pass == work.weight_bytes + 7 * work.token_bytes
    assert found.prompt_tokens_per_second > 0


@pytest.mark.parametrize("case", ["llama-Q4_K", "qwen3-Q8_0", "qwen2-tied", "llama-7to1"])
def test_work_is_counted(checkpoint: Checkpoint, case: str) -> None:
    """Products by the recipe's own sizes, bytes by packing each matrix again and by what the cache takes."""
    recipe = CASES[case]
    decoder, team = describe(GGUFFile.open(checkpoint(recipe))), runtime(1)
    model = NativeModel(decoder, team)
    width, queries, keys = recipe.width, recipe.heads * recipe.head_width, recipe.kv_heads * recipe.head_width
    layer = 2 * width * queries + 2 * width * keys + 3 * width * recipe.feed_forward_width
    assert model.work.products == recipe.layers * layer + width * recipe.vocab_size
    names = ("query", "key", "value", "attention_output", "gate", "up", "down")
    matrices = [getattr(layer, name) for layer in decoder.layers for name in names] + [decoder.output]
    assert model.work.weight_bytes == sum(pack(team, linear.weight).nbytes for linear in matrices)
    slot = model.open()
    model.forward([Feed(slot, [1] * 32, rows=0)])
    assert model.work.token_bytes * 32 == model._native.cache_bytes


def test_engines_take_turns_and_warm_up_beside_each_other() -> None:
    """Alone, each pass is timed at once; beside another engine, after an untimed one of its own."""
    read: list[tuple[str, int, int, int]] = []

    def engine(name: str) -> Any:
        def once(tokens: list[int], start: int, rows: int) -> float:
            read.append((name, len(tokens), start, rows))
            return float(len(read))

        return once

    tokens = [0] * 9
    assert time_rows({"a": engine("a")}, tokens, 5, [1, 3]) == {("a", 1): 2.0, ("a", 3): 3.0}
    assert read == [("a", 5, 0, 0), ("a", 1, 5, 1), ("a", 3, 5, 3)]
    read.clear()
    assert set(time_rows({"a": engine("a"), "b": engine("b")}, tokens, 0, [2])) == {("a", 2), ("b", 2)}
    assert read == [("a", 2, 0, 2)] * 2 + [("b", 2, 0, 2)] * 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": [2, 0]}, r"rows has 0; each must be at least 1"),
        ({"rounds": 0}, r"rounds is 0; it must be at least 1"),
        ({"context": 61, "rows": [4]}, r"context is 61; with 4 rows in 64 tokens, legal is 0 to 60"),
        ({"context": -1, "rows": [1]}, r"context is -1; with 1 rows in 64 tokens, legal is 0 to 63"),
        ({"rows": [65]}, r"with 65 rows in 64 tokens, legal is none"),
        ({"threads": 0}, r"threads is '0'"),
    ],
)
def test_what_does_not_fit_is_told_what_does(checkpoint: Checkpoint, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        measure(checkpoint(RECIPE), **{"context": 8, **options})


def test_without_the_compiled_runtime(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "find_spec", lambda name: None)
    with pytest.raises(Unsupported, match="the compiled runtime is missing"):
        measure(checkpoint(RECIPE))
