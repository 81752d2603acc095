"""The 16-bit target of the benchmarks says what its source says; the gguf package's reader is the oracle."""

from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize
from numpy.typing import NDArray

from scripts import convert_bf16
from soothsay import Engine, Sampling
from tests.checkpoints import Recipe, Words, k_recipe, write_checkpoint

Kind = GGMLQuantizationType


@pytest.fixture
def source(tmp_path: Path) -> Path:
    recipe = Recipe("qwen2", Kind.Q5_0, vocab_size=264)
    return write_checkpoint(tmp_path / "source.gguf", recipe, Words())


def converted(source: Path) -> Path:
    target = source.with_name("target.gguf")
    assert convert_bf16.main([str(source), str(target)]) == 0
    return target


def values(path: Path) -> dict[str, tuple[Kind, list[int], NDArray[np.float32]]]:
    """Kind, shape and values of every tensor of a file."""
    return {
        found.name: (found.tensor_type, found.shape.tolist(), dequantize(found.data, found.tensor_type))
        for found in GGUFReader(path).tensors
    }


def metadata(path: Path) -> dict[str, tuple[list[GGUFValueType], object]]:
    """Type and value of every key, but for those that count what the header holds."""
    fields = GGUFReader(path).fields
    return {key: (found.types, found.contents()) for key, found in fields.items() if not key.startswith("GGUF.")}


@pytest.mark.parametrize(
    "recipe", [Recipe("qwen2", Kind.Q5_0), k_recipe("llama", Kind.Q6_K), Recipe("llama", Kind.F32)]
)
@pytest.mark.parametrize("slice_values", [convert_bf16.SLICE_VALUES, 1000])
def test_matrices_are_rounded_and_vectors_kept(
    recipe: Recipe, slice_values: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slices that lose rows, vectors cut to 16 bits, and a truncation in place of rounding."""
    monkeypatch.setattr(convert_bf16, "SLICE_VALUES", slice_values)
    source = write_checkpoint(tmp_path / "source.gguf", recipe)
    before, after = values(source), values(converted(source))
    assert list(before) == list(after)
    for name, (kind, shape, found) in after.items():
        assert shape == before[name][1]
        exact = before[name][2].reshape(found.shape)
        if len(shape) == 1:
            assert kind == Kind.F32
            np.testing.assert_array_equal(found, exact)
        else:
            assert kind == Kind.BF16
            np.testing.assert_allclose(found, exact, rtol=2**-8, atol=1e-38)


def test_all_else_stays(source: Path) -> None:
    """Tokens lost on the way, or a number that changes its type."""
    before, after = metadata(source), metadata(converted(source))
    assert after.pop("general.file_type") == ([GGUFValueType.UINT32], 32)
    assert after == before


def test_alignment_is_that_of_the_new_file(tmp_path: Path) -> None:
    """A copied alignment that the data does not keep makes a file that reads as noise."""
    source = tmp_path / "source.gguf"
    writer = GGUFWriter(source, "llama")
    writer.add_custom_alignment(1024)
    ramp = np.arange(6, dtype=np.float32)
    writer.add_tensor("a", ramp.reshape(2, 3))
    writer.add_tensor("b", ramp)
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
        write()
    writer.close()
    after = values(converted(source))
    np.testing.assert_array_equal(after["a"][2].ravel(), ramp)
    np.testing.assert_array_equal(after["b"][2], ramp)


def test_soothsay_answers_from_it(source: Path) -> None:
    answer = Engine(converted(source), draft="none", threads=1).generate("ab", Sampling(max_tokens=8))
    assert len(answer.tokens) > 0


def test_no_file_is_overwritten(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = source.with_name("target.gguf")
    target.write_text("precious")
    assert convert_bf16.main([str(source), str(target)]) == 1
    assert target.read_text() == "precious"
    assert "already there" in capsys.readouterr().err


def test_a_failure_leaves_nothing(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversion that stops half-way must not look like one that ended."""

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(convert_bf16, "_converted", fail)
    target = source.with_name("target.gguf")
    assert convert_bf16.main([str(source), str(target)]) == 1
    assert [entry.name for entry in source.parent.iterdir()] == ["source.gguf"]


@pytest.mark.parametrize("content", [None, b"no GGUF"])
def test_a_bad_source_is_named(content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "source.gguf"
    if content is not None:
        source.write_bytes(content)
    assert convert_bf16.main([str(source), str(tmp_path / "target.gguf")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
