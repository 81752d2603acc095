"""GGUF files: metadata and tensors, memory-mapped, every number checked before it is used."""

import math
import mmap
import reprlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGUF_DEFAULT_ALIGNMENT, GGUF_MAGIC, GGMLQuantizationType, GGUFValueType
from numpy.typing import NDArray

from soothsay.errors import FileCorrupt, ModelNotFound, Unsupported
from soothsay.model.kinds import Kind, dequantise_blocks

Value = bool | int | float | str | list[str] | NDArray[Any]
"""A metadata value; arrays of numbers are read-only views of the file."""

KINDS = (
    GGMLQuantizationType.F32,
    GGMLQuantizationType.F16,
    GGMLQuantizationType.BF16,
    GGMLQuantizationType.Q4_0,
    GGMLQuantizationType.Q4_1,
    GGMLQuantizationType.Q5_0,
    GGMLQuantizationType.Q5_1,
    GGMLQuantizationType.Q8_0,
    GGMLQuantizationType.Q4_K,
    GGMLQuantizationType.Q5_K,
    GGMLQuantizationType.Q6_K,
)
"""The tensor types of files that soothsay can run."""

VERSIONS = (2, 3)

_MAX_KEY_BYTES = 65535  # the format's own limits
_MAX_DIMENSIONS = 4
_MAX_NAME_BYTES = 64
_SMALLEST_STRING_BYTES = 8
_SMALLEST_VALUE_BYTES = 8 + 4 + 1
_SMALLEST_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8
_LARGEST_ALIGNMENT = 1 << 16

_SCALARS = {
    GGUFValueType.UINT8: "u1",
    GGUFValueType.INT8: "i1",
    GGUFValueType.UINT16: "u2",
    GGUFValueType.INT16: "i2",
    GGUFValueType.UINT32: "u4",
    GGUFValueType.INT32: "i4",
    GGUFValueType.FLOAT32: "f4",
    GGUFValueType.BOOL: "?",
    GGUFValueType.UINT64: "u8",
    GGUFValueType.INT64: "i8",
    GGUFValueType.FLOAT64: "f8",
}

_shown = reprlib.Repr()
_shown.maxstring = 80


def quoted(found: object) -> str:
    """Something from a file, fit for a one-line message however long or strange it is."""
    return _shown.repr(found).replace("\n", " ")


@dataclass(frozen=True, slots=True)
class Tensor:
    """A named array of a file, in the file's own bytes.

    `shape` is in NumPy order: (outputs, inputs) for a matrix, (n,) for a vector. `data` is a read-only, C-contiguous
    view of the mapped file: (outputs, bytes a row) for a matrix, (bytes,) for a vector.
    """

    name: str
    kind: Kind
    shape: tuple[int, ...]
    data: NDArray[np.uint8] = field(repr=False)


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """A memory-mapped GGUF file; the tensors stay valid for as long as anything refers to them."""

    path: Path
    metadata: Mapping[str, Value] = field(repr=False)
    tensors: Mapping[str, Tensor] = field(repr=False)
    _source: mmap.mmap = field(repr=False)

    @classmethod
    def open(cls, path: Path | str) -> "GGUFFile":
        """Map a file and check its whole header; no tensor's bytes are read.

        Raises ModelNotFound (missing or unreadable), FileCorrupt or Unsupported.
        """
        path = Path(path)
        source = _map(path)
        header = _Header(path, source)
        tensor_count, value_count = header.preamble()
        metadata = header.metadata(value_count)
        _refuse_split(path, metadata)
        return cls(path, metadata, header.tensors(tensor_count, _alignment(path, metadata)), source)

    def leave_memory(self) -> None:
        """Give back the pages read so far, once the tensors have been packed; what is read again comes back."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._source.madvise(mmap.MADV_DONTNEED)


def dequantise(tensor: Tensor) -> NDArray[np.float32]:
    """The tensor's values as float32 of `tensor.shape`; a view of the file when it already holds float32."""
    return dequantise_blocks(tensor.data, tensor.kind).reshape(tensor.shape)


def _map(path: Path) -> mmap.mmap:
    try:
        if path.exists() and not path.is_file():
            raise ModelNotFound(f"{path} is not a regular file; give the path of a .gguf file")
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelNotFound(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # a length of zero cannot be mapped, a NUL cannot be in a path
        raise FileCorrupt(f"{quoted(str(path))} is empty or no legal path; a GGUF file was expected") from error


def _alignment(path: Path, metadata: Mapping[str, Value]) -> int:
    found = metadata.get("general.alignment", GGUF_DEFAULT_ALIGNMENT)
    if type(found) is not int or not 0 < found <= _LARGEST_ALIGNMENT or found & (found - 1):
        raise FileCorrupt(f"{path}: general.alignment is {quoted(found)}; a power of two up to 65536 was expected")
    return found


def _refuse_split(path: Path, metadata: Mapping[str, Value]) -> None:
    count = metadata.get("split.count", 0)
    if count not in (0, 1):
        raise Unsupported(f"{path} is one part of {quoted(count)}; only a model in a single file is supported")


class _Header:
    """A cursor over a file's header that never passes the end of the file."""

    def __init__(self, path: Path, source: mmap.mmap) -> None:
        self.path = path
        self.source = source
        self.size = len(source)
        self.position = 0

    def preamble(self) -> tuple[int, int]:
        """Check magic and version; give the counts of tensors and of metadata values."""
        magic = self.number("<I")
        if magic != GGUF_MAGIC:
            raise FileCorrupt(f"{self.path} starts with {struct.pack('<I', magic)!r}; a GGUF file starts with b'GGUF'")
        version = self.number("<I")
        if version & 0xFFFF == 0:
            raise Unsupported(f"{self.path} is big-endian GGUF; only little-endian is supported")
        if version not in VERSIONS:
            raise Unsupported(f"{self.path} is GGUF version {version}; versions 2 and 3 are supported")
        return (
            self.count(_SMALLEST_TENSOR_BYTES, "tensors"),
            self.count(_SMALLEST_VALUE_BYTES, "metadata values"),
        )

    def metadata(self, count: int) -> dict[str, Value]:
        metadata: dict[str, Value] = {}
        for _ in range(count):
            key = self.string(_MAX_KEY_BYTES)
            if key in metadata:
                raise self.corrupt(f"metadata key {quoted(key)} occurs twice")
            metadata[key] = self.value(key)
        return metadata

    def tensors(self, count: int, alignment: int) -> dict[str, Tensor]:
        """Read `count` tensor infos, then place each in the data section that follows them."""
        infos = [self.tensor_info() for _ in range(count)]
        start = -(-self.position // alignment) * alignment
        tensors: dict[str, Tensor] = {}
        for info in infos:
            if info.name in tensors:
                raise self.corrupt(f"tensor {quoted(info.name)} occurs twice")
            if info.offset % alignment:
                raise self.corrupt(f"tensor {quoted(info.name)} is not aligned to {alignment} bytes")
            tensors[info.name] = self.tensor(info, start + info.offset)
        self.refuse_overlap(infos)
        return tensors

    def value(self, key: str) -> Value:
        kind = self.value_type(key)
        if kind is GGUFValueType.STRING:
            return self.string()
        if kind is GGUFValueType.ARRAY:
            return self.array(key)
        scalar: bool | int | float = self.numbers(kind, 1)[0].item()
        return scalar

    def array(self, key: str) -> Value:
        kind = self.value_type(key)
        if kind is GGUFValueType.ARRAY:
            raise Unsupported(f"{self.path}: {quoted(key)} is an array of arrays; arrays of scalars are supported")
        if kind is GGUFValueType.STRING:
            return self.strings(self.count(_SMALLEST_STRING_BYTES, f"strings in {quoted(key)}"))
        return self.numbers(kind, self.count(np.dtype(_SCALARS[kind]).itemsize, f"numbers in {quoted(key)}"))

    def value_type(self, key: str) -> GGUFValueType:
        code = self.number("<I")
        try:
            return GGUFValueType(code)
        except ValueError:
            raise self.corrupt(f"{quoted(key)} has the unknown value type {code}; 0 to 12 are known") from None

    def numbers(self, kind: GGUFValueType, count: int) -> NDArray[Any]:
        flags = kind is GGUFValueType.BOOL
        dtype = np.dtype("u1" if flags else "<" + _SCALARS[kind])
        array = np.frombuffer(self.source, dtype, count, self.advance(count * dtype.itemsize))
        return array != 0 if flags else array

    def string(self, limit: int | None = None) -> str:
        length = self.number("<Q")
        if limit is not None and length > limit:
            raise self.corrupt(f"a name is {length} bytes long; at most {limit} are legal")
        start = self.advance(length)
        return self.decode(self.source[start : self.position])

    def strings(self, count: int) -> list[str]:
        """A vocabulary has hundreds of thousands of them, so the loop is spelled out."""
        source, size, position, unpack = self.source, self.size, self.position, struct.Struct("<Q").unpack_from
        found: list[bytes] = []
        for _ in range(count):
            start = position + 8
            if start > size:
                raise self.truncated(8)
            position = start + unpack(source, position)[0]
            if position > size:
                raise self.truncated(position - start)
            found.append(source[start:position])
        self.position = position
        return [self.decode(text) for text in found]

    def decode(self, text: bytes) -> str:
        try:
            return text.decode()
        except UnicodeDecodeError:
            raise self.corrupt("a string is not UTF-8") from None

    def tensor_info(self) -> "_TensorInfo":
        name = self.string(_MAX_NAME_BYTES)
        dimensions = self.number("<I")
        if not 1 <= dimensions <= _MAX_DIMENSIONS:
            raise self.corrupt(f"tensor {quoted(name)} has {dimensions} dimensions; 1 to {_MAX_DIMENSIONS} are legal")
        shape = tuple(self.number("<Q") for _ in range(dimensions))[::-1]
        return _TensorInfo(name, shape, self.tensor_kind(name), self.number("<Q"))

    def tensor_kind(self, name: str) -> GGMLQuantizationType:
        code = self.number("<I")
        for kind in KINDS:
            if kind == code:
                return kind
        found = GGMLQuantizationType(code).name if code in set(GGMLQuantizationType) else f"number {code}"
        legal = ", ".join(kind.name for kind in KINDS)
        raise Unsupported(f"{self.path}: tensor {quoted(name)} has type {found}; supported are {legal}")

    def tensor(self, info: "_TensorInfo", start: int) -> Tensor:
        block, _ = GGML_QUANT_SIZES[info.kind]
        if 0 in info.shape or info.shape[-1] % block:
            raise self.corrupt(
                f"tensor {quoted(info.name)} has shape {info.shape}; "
                f"{info.kind.name} needs sizes above 0 and rows of a multiple of {block}"
            )
        if start + info.size_bytes > self.size:
            raise self.corrupt(
                f"tensor {quoted(info.name)} ends at byte {start + info.size_bytes} of {self.size}: the file is "
                "truncated or its header is wrong"
            )
        data = np.frombuffer(self.source, np.uint8, info.size_bytes, start)
        return Tensor(info.name, info.kind, info.shape, data.reshape(*info.shape[:-1], info.row_bytes))

    def refuse_overlap(self, infos: "list[_TensorInfo]") -> None:
        end = 0
        for info in sorted(infos, key=lambda info: info.offset):
            if info.offset < end:
                raise self.corrupt(f"tensor {quoted(info.name)} overlaps the one before it")
            end = info.offset + info.size_bytes

    def number(self, layout: str) -> int:
        found: int = struct.unpack_from(layout, self.source, self.advance(struct.calcsize(layout)))[0]
        return found

    def count(self, smallest_bytes: int, what: str) -> int:
        """Read a count and refuse one whose items cannot fit in the rest of the file."""
        count = self.number("<Q")
        if count * smallest_bytes > self.size - self.position:
            raise self.corrupt(f"the header promises {count} {what}, more than the rest of the file can hold")
        return count

    def advance(self, length: int) -> int:
        """Move over `length` bytes and give the position where they start."""
        start = self.position
        if length > self.size - start:
            raise self.truncated(length)
        self.position += length
        return start

    def truncated(self, length: int) -> FileCorrupt:
        return self.corrupt(f"truncated: {length} bytes are wanted in the header and the file ends before")

    def corrupt(self, problem: str) -> FileCorrupt:
        return FileCorrupt(f"{self.path}: {problem}")


@dataclass(frozen=True, slots=True)
class _TensorInfo:
    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    offset: int

    @property
    def row_bytes(self) -> int:
        block, block_bytes = GGML_QUANT_SIZES[self.kind]
        return self.shape[-1] // block * block_bytes

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape[:-1]) * self.row_bytes
