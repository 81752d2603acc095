"""Draft models in 3 or 4 bits: closer than the plain way, only where it pays, and kept on disk."""

import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from gguf.quants import quantize

from soothsay.model import requantise as room
from soothsay.model.architectures.decoder import Decoder
from soothsay.model.gguf import Tensor, dequantise
from soothsay.model.kinds import OwnKind
from soothsay.model.native import NativeModel, runtime
from soothsay.model.reference import ReferenceModel
from soothsay.model.requantise import Bits, bits_beside, requantise
from tests.checkpoints import CASES, Kind, Recipe, k_recipe, prompt
from tests.runtimes import ISAS, Checkpoint, Floats, alone, describe_recipe

RECIPE = CASES["llama-F16"]
MIXED = Recipe("llama", Kind.F16, width=128, heads=4)
"""Its rows of 160 are not a whole number of 3-bit blocks."""

CHANGED = ("query", "attention_output", "gate", "up", "down")
KEPT = ("key", "value")


def lighter(
    checkpoint: Checkpoint, recipe: Recipe, folder: Path, isa: str | None = None, bits: Bits = 4
) -> tuple[Decoder, Decoder]:
    """Give the recipe's decoder before and after."""
    before = describe_recipe(checkpoint, recipe)
    return before, requantise(before, runtime(2, isa), checkpoint(recipe), folder, bits)


def weights(decoder: Decoder, place: str) -> Tensor:
    found = decoder.output.weight if place == "output" else getattr(decoder.layers[0], place).weight
    assert isinstance(found, Tensor)
    return found


def miss(tensor: Tensor, exact: Tensor) -> float:
    wanted = dequantise(exact).astype(np.float64)
    return float(np.square(dequantise(tensor) - wanted).sum() / np.square(wanted).sum())


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q5_0, Kind.Q5_1, Kind.Q6_K])
def test_the_search_beats_plain_rounding(checkpoint: Checkpoint, tmp_path: Path, kind: Kind, isa: str) -> None:
    recipe = k_recipe("llama", kind) if kind is Kind.Q6_K else Recipe("llama", kind)
    before, after = lighter(checkpoint, recipe, tmp_path, isa)
    for place in (*CHANGED, "output"):
        exact, found = weights(before, place), weights(after, place)
        plain = Tensor("plain", Kind.Q4_1, exact.shape, quantize(dequantise(exact), Kind.Q4_1))
        assert found.kind is Kind.Q4_1
        assert miss(found, exact) < 0.82 * miss(plain, exact) < 0.01


@pytest.mark.parametrize("isa", ISAS)
def test_3_bits_are_nearly_as_close_as_they_can_be(checkpoint: Checkpoint, tmp_path: Path, isa: str) -> None:
    before, after = lighter(checkpoint, MIXED, tmp_path, isa, bits=3)
    for place in ("query", "attention_output", "gate", "up", "output"):
        exact, found = weights(before, place), weights(after, place)
        assert found.kind is OwnKind.D3
        assert miss(found, exact) < 1.1 * least_miss(dequantise(exact), most=7) < 0.04


def least_miss(exact: Floats, most: int) -> float:
    """What lines leave that were fitted to each group of 32 alone, in full precision, from many ranges, many times."""
    x = exact.astype(np.float64).reshape(-1, 32)
    low, high = x.min(axis=1, keepdims=True), x.max(axis=1, keepdims=True)
    best = np.full(len(x), np.inf)
    for cut_low, cut_high in product(np.linspace(0, 0.25, 6), repeat=2):
        least, step = low + cut_low * (high - low), (1 - cut_low - cut_high) * (high - low) / most
        for _ in range(5):
            codes = np.clip(np.rint((x - least) / step), 0, most)
            centred = codes - codes.mean(axis=1, keepdims=True)
            step = (centred * x).sum(axis=1, keepdims=True) / np.square(centred).sum(axis=1, keepdims=True)
            least = x.mean(axis=1, keepdims=True) - step * codes.mean(axis=1, keepdims=True)
            best = np.minimum(best, np.square(least + step * codes - x).sum(axis=1))
    return float(best.sum() / np.square(x).sum())


@pytest.mark.parametrize("kind", [Kind.F16, Kind.Q4_0])
def test_rows_that_are_no_whole_blocks_take_4_bits(checkpoint: Checkpoint, tmp_path: Path, kind: Kind) -> None:
    before, after = lighter(checkpoint, replace(MIXED, kind=kind), tmp_path, bits=3)
    assert weights(after, "gate").kind is OwnKind.D3
    assert weights(after, "down").kind is (Kind.Q4_1 if kind is Kind.F16 else Kind.Q4_0)
    assert miss(weights(after, "down"), weights(before, "down")) < 0.01


def test_3_and_4_bits_are_kept_apart(checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, four = lighter(checkpoint, MIXED, tmp_path)
    _, three = lighter(checkpoint, MIXED, tmp_path, bits=3)
    monkeypatch.setattr(room, "_searched", lambda *_: pytest.fail("searched again"))
    _, four_again = lighter(checkpoint, MIXED, tmp_path)
    _, three_again = lighter(checkpoint, MIXED, tmp_path, bits=3)
    for first, second in ((four, four_again), (three, three_again)):
        for place in (*CHANGED, "output"):
            assert weights(second, place).kind is weights(first, place).kind
            assert np.array_equal(weights(second, place).data, weights(first, place).data)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".3bit", ".4bit"]


def test_3_bits_are_for_a_draft_that_is_dear_beside_its_target(checkpoint: Checkpoint) -> None:
    draft = describe_recipe(checkpoint, MIXED)
    weights = 2 * (2 * 128 * 128 + 3 * 128 * 160) + 131 * 128
    edge = int(weights * 5 / 8 / room.DEAR)
    assert bits_beside(draft, target_bytes=edge + 8) == 4
    assert bits_beside(draft, target_bytes=edge - 8) == 3


@pytest.mark.parametrize("bits", [3, 4])
def test_keys_values_and_embedding_stay(checkpoint: Checkpoint, tmp_path: Path, bits: Bits) -> None:
    before, after = lighter(checkpoint, MIXED, tmp_path, bits=bits)
    for place in KEPT:
        assert weights(after, place) is weights(before, place)
    assert after.embedding is before.embedding


def test_a_tied_embedding_stays_while_the_output_changes(checkpoint: Checkpoint, tmp_path: Path) -> None:
    before, after = lighter(checkpoint, CASES["llama-tied"], tmp_path)
    assert before.output.weight is before.embedding
    assert after.embedding is before.embedding
    assert after.output.weight.kind is Kind.Q4_1


@pytest.mark.parametrize("kind", [Kind.Q4_0, Kind.Q4_1, Kind.Q4_K])
def test_four_bits_are_left_alone(checkpoint: Checkpoint, tmp_path: Path, kind: Kind) -> None:
    before, after = lighter(checkpoint, k_recipe("llama", kind), tmp_path)
    assert after is before
    assert list(tmp_path.iterdir()) == []


def test_groups_of_any_size_survive() -> None:
    """Equal weights have no range, tiny ones no scale in half precision."""
    rows = np.zeros((6, 32), np.float32)
    rows[1] = -0.75
    rows[2, 5] = 3
    rows[3] = np.linspace(-1e-7, 1e-7, 32)
    rows[4] = np.linspace(-1e-42, 1e-42, 32)
    rows[5] = np.linspace(10000, 10001, 32)
    found = runtime(1).requantise(Kind.F32, 6, 32, rows.view(np.uint8), Kind.Q4_1)
    np.testing.assert_allclose(dequantise(Tensor("", Kind.Q4_1, (6, 32), found)), rows, rtol=1e-3, atol=3e-7)


@pytest.mark.parametrize("isa", ISAS)
def test_blocks_of_any_groups_survive_in_3_bits(isa: str) -> None:
    """A group is told from others of its block by a byte, and begins at 0 or below."""
    groups = np.zeros((5, 4, 32), np.float32)
    groups[1] = np.array([[-0.75], [0.25], [0], [3]])
    groups[2, 1, 5] = -3
    groups[3] = np.linspace(-1, 1, 32) * np.array([[1], [0.1], [0.01], [0.001]])
    groups[4] = np.linspace(1e-9, 1e-8, 32)
    data = runtime(1, isa).requantise(Kind.F32, 5, 128, groups.reshape(5, 128).view(np.uint8), OwnKind.D3)
    found = dequantise(Tensor("", OwnKind.D3, (5, 128), data)).reshape(groups.shape)
    step, byte = np.ptp(groups, axis=2) / 7, np.abs(groups).max(axis=(1, 2))[:, None] / 255
    assert (np.abs(found - groups) <= (0.75 * step + 2 * byte + 1e-7)[..., None]).all()


def test_only_kinds_for_drafts_are_made() -> None:
    with pytest.raises(ValueError, match="a tensor kind that is not for drafts"):
        runtime(1).requantise(Kind.F32, 1, 32, np.zeros(128, np.uint8), Kind.Q8_0)


def test_the_second_load_comes_from_disk(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first = lighter(checkpoint, RECIPE, tmp_path)
    monkeypatch.setattr(room, "_searched", lambda *_: pytest.fail("searched again"))
    _, second = lighter(checkpoint, RECIPE, tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".4bit"]
    for place in (*CHANGED, "output"):
        assert np.array_equal(weights(second, place).data, weights(first, place).data)


def test_another_file_is_another_entry(checkpoint: Checkpoint, tmp_path: Path) -> None:
    lighter(checkpoint, RECIPE, tmp_path)
    _, other = lighter(checkpoint, CASES["qwen3-F16"], tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    assert miss(weights(other, "gate"), weights(describe_recipe(checkpoint, CASES["qwen3-F16"]), "gate")) < 0.01


@pytest.mark.parametrize("damage", [b"", b"short"])
def test_a_cut_file_is_made_again(checkpoint: Checkpoint, tmp_path: Path, damage: bytes) -> None:
    _, first = lighter(checkpoint, RECIPE, tmp_path)
    expected = bytes(weights(first, "output").data)
    (kept,) = tmp_path.iterdir()
    del first  # a mapped file that is cut under its reader is a bus error
    kept.write_bytes(damage)
    _, again = lighter(checkpoint, RECIPE, tmp_path)
    assert bytes(weights(again, "output").data) == expected


def test_a_failed_write_leaves_nothing_and_stops_nothing(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.replace", full)
    _, unkept = lighter(checkpoint, RECIPE, tmp_path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    _, kept = lighter(checkpoint, RECIPE, tmp_path)
    assert np.array_equal(weights(unkept, "output").data, weights(kept, "output").data)


def test_two_processes_at_once(checkpoint: Checkpoint, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from soothsay.model.architectures import describe; from soothsay.model.gguf import GGUFFile\n"
        "from soothsay.model.native import runtime; from soothsay.model.requantise import requantise\n"
        "source, folder = map(Path, sys.argv[1:])\n"
        "decoder = requantise(describe(GGUFFile.open(source)), runtime(1), source, folder, 4)\n"
        "print(bytes(decoder.output.weight.data).hex())"
    )
    command = [sys.executable, "-c", code, str(checkpoint(RECIPE)), str(tmp_path)]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert answers[0] == answers[1] != ""
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("bits", [3, 4])
def test_a_lighter_model_runs(checkpoint: Checkpoint, tmp_path: Path, bits: Bits) -> None:
    """From the mapped file, with the logits of the same light weights in the reference."""
    _, after = lighter(checkpoint, MIXED, tmp_path, bits=bits)
    tokens = prompt(MIXED, 20)
    found = alone(NativeModel(after, runtime(2)), tokens)
    np.testing.assert_allclose(found, alone(ReferenceModel(after), tokens), atol=0.3)
