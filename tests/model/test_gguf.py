"""GGUF files: agreement with the package's own reader, and files that lie."""

import struct
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize

from soothsay.errors import FileCorrupt, ModelError, ModelNotFound, Unsupported
from soothsay.model.architectures import describe
from soothsay.model.gguf import KINDS, GGUFFile, dequantise
from tests.checkpoints import CASES, Kind, Recipe

Checkpoint = Callable[[Recipe], Path]

VALUES = {
    "u8": (200, GGUFValueType.UINT8),
    "i8": (-100, GGUFValueType.INT8),
    "u16": (60000, GGUFValueType.UINT16),
    "i16": (-30000, GGUFValueType.INT16),
    "u32": (4 * 10**9, GGUFValueType.UINT32),
    "i32": (-(2**31), GGUFValueType.INT32),
    "u64": (2**64 - 1, GGUFValueType.UINT64),
    "i64": (-(2**63), GGUFValueType.INT64),
    "f32": (0.5, GGUFValueType.FLOAT32),
    "f64": (0.1, GGUFValueType.FLOAT64),
    "yes": (True, GGUFValueType.BOOL),
    "no": (False, GGUFValueType.BOOL),
    "text": ("Ünïcödé 🜁 \n", GGUFValueType.STRING),
    "empty": ("", GGUFValueType.STRING),
}
ARRAYS: dict[str, list[Any]] = {
    "strings": ["a", "", "ébène", "\0", "<|im_end|>"],
    "integers": [1, -2, 3],
    "numbers": [0.25, -(2.0**100)],
    "flags": [True, False, True],
}


@pytest.fixture(scope="module")
def varied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a value of every type and three small tensors."""
    path = tmp_path_factory.mktemp("gguf") / "varied.gguf"
    writer = GGUFWriter(path, "llama")
    for key, (value, kind) in VALUES.items():
        writer.add_key_value(key, value, kind)
    for key, values in ARRAYS.items():
        writer.add_array(key, values)
    writer.add_tensor("vector", np.arange(5, dtype=np.float32))
    writer.add_tensor("matrix", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.add_tensor("halves", np.arange(6, dtype=np.float16).reshape(3, 2))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_metadata_of_every_type(varied: Path) -> None:
    metadata = GGUFFile.open(varied).metadata
    for key, (value, _) in VALUES.items():
        assert metadata[key] == value
        assert type(metadata[key]) is type(value)
    for key, values in ARRAYS.items():
        found = metadata[key]
        assert (found if isinstance(found, list) else found.tolist()) == values  # type: ignore[union-attr]


def test_tensors_are_the_mapped_bytes(varied: Path) -> None:
    """Copies would double a model's memory, and writeable views could change the user's file."""
    tensors = GGUFFile.open(varied).tensors
    assert dequantise(tensors["vector"]).tolist() == [0, 1, 2, 3, 4]
    assert dequantise(tensors["matrix"]).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert dequantise(tensors["halves"]).tolist() == [[0, 1], [2, 3], [4, 5]]
    for tensor in tensors.values():
        assert not tensor.data.flags.owndata
        assert not tensor.data.flags.writeable
        assert tensor.data.flags.c_contiguous
    assert tensors["matrix"].data.shape == (2, 12)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_package_reader_agrees(checkpoint: Checkpoint, kind: GGMLQuantizationType) -> None:
    path = checkpoint(CASES[f"qwen3-{kind.name}"])
    file, oracle = GGUFFile.open(path), GGUFReader(path)
    assert list(file.tensors) == [tensor.name for tensor in oracle.tensors]
    for expected in oracle.tensors:
        tensor = file.tensors[expected.name]
        assert tensor.kind == expected.tensor_type
        assert tensor.shape == tuple(expected.shape[::-1])
        assert tensor.data.tobytes() == expected.data.tobytes()
        assert np.array_equal(dequantise(tensor), dequantize(expected.data, expected.tensor_type))
    assert file.tensors["blk.0.ffn_up.weight"].kind is kind
    for key, value in file.metadata.items():
        assert value == oracle.fields[key].contents()


# Files that lie: each made by hand, so that one thing at a time is wrong.


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def preamble(tensors: int, values: int, magic: bytes = b"GGUF", version: int = 3) -> bytes:
    return magic + struct.pack("<IQQ", version, tensors, values)


def value(key: bytes, kind: int, body: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + body


def array(kind: int, count: int, body: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + body


def info(name: bytes = b"t", dims: tuple[int, ...] = (8,), kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def padded(header: bytes, data_bytes: int = 64) -> bytes:
    return header + bytes(-len(header) % 32) + bytes(data_bytes)


ONE = preamble(1, 0)
U32, BOOL, STRING, ARRAY = 4, 7, 8, 9

LIES = {
    "magic": (padded(preamble(0, 0, magic=b"GGML")), FileCorrupt, "starts with b'GGML'"),
    "version 1": (padded(preamble(0, 0, version=1)), Unsupported, "version 1; versions 2 and 3"),
    "big-endian": (padded(preamble(0, 0, version=3 << 24)), Unsupported, "big-endian"),
    "tensor count": (padded(preamble(2**60, 0)), FileCorrupt, "promises 1152921504606846976 tensors"),
    "value count": (padded(preamble(0, 2**63)), FileCorrupt, "metadata values, more than the rest"),
    "key length": (padded(preamble(0, 1) + struct.pack("<Q", 2**63)), FileCorrupt, "at most 65535"),
    "string length": (
        padded(preamble(0, 1) + value(b"k", STRING, struct.pack("<Q", 2**63))),
        FileCorrupt,
        "truncated: 9223372036854775808 bytes",
    ),
    "string count": (padded(preamble(0, 1) + value(b"k", ARRAY, array(STRING, 2**60))), FileCorrupt, "strings in 'k'"),
    "long string in an array": (
        padded(preamble(0, 1) + value(b"k", ARRAY, array(STRING, 1, struct.pack("<Q", 2**64 - 1)))),
        FileCorrupt,
        "truncated",
    ),
    "number count": (padded(preamble(0, 1) + value(b"k", ARRAY, array(U32, 2**62))), FileCorrupt, "numbers in 'k'"),
    "nested array": (
        padded(preamble(0, 1) + value(b"k", ARRAY, array(ARRAY, 1, array(U32, 0)))),
        Unsupported,
        "array of arrays",
    ),
    "value type": (padded(preamble(0, 1) + value(b"k", 13, bytes(8))), FileCorrupt, "unknown value type 13"),
    "element type": (padded(preamble(0, 1) + value(b"k", ARRAY, array(99, 1))), FileCorrupt, "unknown value type 99"),
    "text not UTF-8": (padded(preamble(0, 1) + value(b"k", STRING, text(b"\xff"))), FileCorrupt, "not UTF-8"),
    "texts not UTF-8": (
        padded(preamble(0, 1) + value(b"k", ARRAY, array(STRING, 1, text(b"\xff")))),
        FileCorrupt,
        "not UTF-8",
    ),
    "key twice": (padded(preamble(0, 2) + 2 * value(b"k", BOOL, b"\1")), FileCorrupt, "'k' occurs twice"),
    "alignment 0": (
        padded(preamble(0, 1) + value(b"general.alignment", U32, struct.pack("<I", 0))),
        FileCorrupt,
        "general.alignment is 0",
    ),
    "alignment 24": (
        padded(preamble(0, 1) + value(b"general.alignment", U32, struct.pack("<I", 24))),
        FileCorrupt,
        "general.alignment is 24; a power of two",
    ),
    "alignment true": (padded(preamble(0, 1) + value(b"general.alignment", BOOL, b"\1")), FileCorrupt, "is True"),
    "split": (
        padded(preamble(0, 1) + value(b"split.count", 2, struct.pack("<H", 3))),
        Unsupported,
        "one part of 3",
    ),
    "tensor twice": (padded(preamble(2, 0) + info() + info(offset=32)), FileCorrupt, "'t' occurs twice"),
    "overlap": (padded(preamble(2, 0) + info() + info(b"u")), FileCorrupt, "'u' overlaps"),
    "name length": (padded(ONE + info(b"n" * 65)), FileCorrupt, "65 bytes long; at most 64"),
    "no dimensions": (padded(ONE + info(dims=())), FileCorrupt, "0 dimensions"),
    "five dimensions": (padded(ONE + info(dims=(1, 1, 1, 1, 8))), FileCorrupt, "5 dimensions; 1 to 4"),
    "many dimensions": (padded(ONE + text(b"t") + struct.pack("<I", 2**32 - 1)), FileCorrupt, "4294967295 dimensions"),
    "zero size": (padded(ONE + info(dims=(0,))), FileCorrupt, "sizes above 0"),
    "overflowing size": (padded(ONE + info(dims=(2**32, 2**32))), FileCorrupt, "of 160: the file is truncated"),
    "unknown tensor type": (padded(ONE + info(kind=77)), Unsupported, "type number 77; supported are F32"),
    "unsupported tensor type": (padded(ONE + info(dims=(256,), kind=10)), Unsupported, "type Q2_K; supported are F32"),
    "part of a block": (padded(ONE + info(dims=(48,), kind=8)), FileCorrupt, "rows of a multiple of 32"),
    "offset outside": (padded(ONE + info(offset=2**40)), FileCorrupt, "the file is truncated"),
    "offset wraps": (padded(ONE + info(offset=2**64 - 32)), FileCorrupt, "the file is truncated"),
    "unaligned": (padded(ONE + info(offset=4)), FileCorrupt, "not aligned to 32"),
    "no data": (padded(ONE + info(), data_bytes=31), FileCorrupt, "ends at byte 96 of 95"),
    "empty": (b"", FileCorrupt, "is empty"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_named(tmp_path: Path, lie: str) -> None:
    content, error, message = LIES[lie]
    path = tmp_path / "lie.gguf"
    path.write_bytes(content)
    with small_memory(), pytest.raises(error) as caught:
        GGUFFile.open(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_truth_is_believed(tmp_path: Path) -> None:
    """The helpers above make legal files, so each lie is refused for its own reason."""
    path = tmp_path / "truth.gguf"
    path.write_bytes(padded(preamble(2, 1, version=2) + value(b"k", BOOL, b"\1") + info() + info(b"u", offset=32)))
    assert list(GGUFFile.open(path).tensors) == ["t", "u"]


def test_a_name_cannot_write_on_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "colour.gguf"
    path.write_bytes(padded(ONE + info(b"\x1b[31m\n", kind=77)))
    with pytest.raises(Unsupported) as caught:
        GGUFFile.open(path)
    assert str(caught.value).isprintable()


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="No such file"):
        GGUFFile.open(tmp_path / "missing.gguf")
    with pytest.raises(ModelNotFound, match="not a regular file"):
        GGUFFile.open(tmp_path)
    with pytest.raises(ModelError):
        GGUFFile.open("nul\0.gguf")


@contextmanager
def small_memory() -> Iterator[None]:
    """Fails when what runs inside holds more than a megabyte at once."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def damaged(content: bytes, header_bytes: int) -> Iterator[bytes]:
    """The file with one to four bytes of its header changed, by a fixed seed."""
    random = np.random.default_rng(0)
    for _ in range(2000):
        bad = bytearray(content)
        for position in random.integers(header_bytes, size=random.integers(1, 5)):
            bad[position] = random.choice([0, 1, 0x7F, 0x80, 0xFF, int(random.integers(256))])
        yield bytes(bad)


def complaint(path: Path, content: bytes) -> str:
    """What is said about the content, nothing if it is accepted; any error but a typed one escapes."""
    path.write_bytes(content)
    try:
        describe(GGUFFile.open(path))
    except ModelError as error:
        return str(error)
    return ""


def test_every_truncation_is_noticed(tmp_path: Path, checkpoint: Checkpoint) -> None:
    content = checkpoint(SMALLEST).read_bytes()
    lengths = [*range(header_bytes(content) + 64), len(content) - 32]  # the writer pads by less than 32
    with small_memory():
        assert all(complaint(tmp_path / "cut", content[:length]) for length in lengths)
    assert not complaint(tmp_path / "cut", content)


def test_damage_never_escapes(tmp_path: Path, checkpoint: Checkpoint) -> None:
    """Any other exception, a warning or a large allocation fails the test."""
    content = checkpoint(SMALLEST).read_bytes()
    with small_memory():
        said = [complaint(tmp_path / "bad", bad) for bad in damaged(content, header_bytes(content))]
    assert all(line.isprintable() for line in said)
    assert 0 < said.count("") < len(said)  # some damage is harmless: another rope base, say


SMALLEST = Recipe("llama", Kind.Q4_0, vocab_size=8, width=32, heads=1, kv_heads=1, feed_forward_width=32, layers=1)


def header_bytes(content: bytes) -> int:
    """Where the last name of a tensor ends, and with it all but the last numbers of the header."""
    return content.rindex(b"output.weight") + len(b"output.weight") + 32
