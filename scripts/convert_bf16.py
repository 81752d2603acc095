"""Write a GGUF model's matrices in BF16: the 16-bit target of the benchmarks, from whatever file is at hand.

Usage: python -m scripts.convert_bf16 SOURCE.gguf TARGET.gguf

Every matrix is dequantised and rounded to BF16, a slice of rows at a time; vectors (norms and biases) become F32; the
metadata, the tokenizer included, stay as they are, but for the file's type. From a quantised source the values are
those of its quantisation: the file shows what passes cost, not how well the original speaks. The target appears whole
or not at all, and a file that is already there is left alone.
"""

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray

from soothsay.errors import OptionError, SoothsayError
from soothsay.model.gguf import GGUFFile, Tensor

SLICE_VALUES = 1 << 22
"""Values dequantised at a time, 16 MB in float32."""

_ARCHITECTURE = "general.architecture"
_THE_WRITERS_OWN = (_ARCHITECTURE, "general.file_type", "general.alignment")
_SIZES = {GGMLQuantizationType.BF16: 2, GGMLQuantizationType.F32: 4}


def convert(source: Path, target: Path) -> None:
    """Write `source` in BF16 to `target`; ModelError for a source that is no model, OptionError for a taken target."""
    if target.exists():
        raise OptionError(f"{target} is already there; name a file that is not")
    file = GGUFFile.open(source)
    with TemporaryDirectory(dir=target.parent, prefix=".convert-") as folder:
        written = Path(folder) / target.name
        _write(file, written)
        written.rename(target)


def _write(file: GGUFFile, path: Path) -> None:
    with closing(GGUFWriter(path, str(file.metadata[_ARCHITECTURE]))) as writer:
        _copy_metadata(file.path, writer)
        for tensor in file.tensors.values():
            kind = _kind(tensor)
            writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), _bytes(tensor, kind), kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in file.tensors.values():
            writer.write_tensor_data(_converted(tensor, _kind(tensor)))
            file.leave_memory()


def _copy_metadata(source: Path, writer: GGUFWriter) -> None:
    """Copy by the `gguf` package's own reader, which keeps the type of each value."""
    for key, value in GGUFReader(source).fields.items():
        if key.startswith("GGUF.") or key in _THE_WRITERS_OWN:
            continue
        kind, element = value.types[0], value.types[-1] if value.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(key, value.contents(), kind, element)
    writer.add_file_type(LlamaFileType.MOSTLY_BF16)


def _kind(tensor: Tensor) -> GGMLQuantizationType:
    return GGMLQuantizationType.BF16 if len(tensor.shape) > 1 else GGMLQuantizationType.F32


def _bytes(tensor: Tensor, kind: GGMLQuantizationType) -> int:
    return int(np.prod(tensor.shape)) * _SIZES[kind]


def _converted(tensor: Tensor, kind: GGMLQuantizationType) -> NDArray[np.generic]:
    """The tensor's bytes in `kind`."""
    return np.concatenate([quantize(values, kind) for values in _slices(tensor)])


def _slices(tensor: Tensor) -> Iterator[NDArray[np.float32]]:
    """The tensor's values in order, some rows at a time."""
    data = np.atleast_2d(tensor.data)  # [rows, bytes a row]
    rows = max(1, SLICE_VALUES // tensor.shape[-1])
    for start in range(0, len(data), rows):
        yield dequantize(data[start : start + rows], GGMLQuantizationType(tensor.kind))


def main(arguments: list[str]) -> int:
    """Convert; the status is 1 when it cannot be done, 2 for a wrong call."""
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        convert(Path(arguments[0]), Path(arguments[1]))
    except (SoothsayError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
