"""A draft model may be sloppy: its matrices in 4 bits, so that a drafted token reads less memory.

The draft's quality changes speed, never words. Key and value matrices, and matrices that already have 4 bits, stay as
they are. The search for the best groups takes seconds, so its result is kept on disk under the file's digest.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from gguf import GGMLQuantizationType as Kind
from numpy.typing import NDArray

from soothsay.model.architectures.decoder import Decoder, Layer, Linear
from soothsay.model.gguf import Tensor

if TYPE_CHECKING:
    from soothsay._native import Runtime

VERSION = 1
"""Of the search: part of the cached file's name."""

FOUR_BITS = frozenset({Kind.Q4_0, Kind.Q4_1, Kind.Q4_K})
GROUP = 32
BLOCK_BYTES = 20


def requantise(decoder: Decoder, runtime: "Runtime", source: Path, folder: Path) -> Decoder:
    """Give the decoder with 4-bit matrices, from `folder` when the file `source` was requantised before.

    A folder that cannot be written costs the next load a search, and nothing else.
    """
    chosen = {tensor.name: tensor for tensor in _chosen(decoder)}
    if not chosen:
        return decoder
    kept = folder / f"{_digest(source)}-{VERSION}.q4_1"
    if not kept.exists() or kept.stat().st_size != sum(_bytes(tensor) for tensor in chosen.values()):
        found = {name: _searched(tensor, runtime) for name, tensor in chosen.items()}
        with suppress(OSError):
            _write(kept, [tensor.data for tensor in found.values()])
        return _replaced(decoder, found)
    return _replaced(decoder, _mapped(chosen, kept))


def _chosen(decoder: Decoder) -> Iterator[Tensor]:
    for layer in decoder.layers:
        for linear in (layer.query, layer.attention_output, layer.gate, layer.up, layer.down):
            yield from _worthwhile(linear.weight)
    yield from _worthwhile(decoder.output.weight)


def _worthwhile(tensor: Tensor) -> Iterator[Tensor]:
    if tensor.kind not in FOUR_BITS and tensor.shape[1] % GROUP == 0:
        yield tensor


def _bytes(tensor: Tensor) -> int:
    outputs, inputs = tensor.shape
    return outputs * (inputs // GROUP) * BLOCK_BYTES


def _searched(tensor: Tensor, runtime: "Runtime") -> Tensor:
    outputs, inputs = tensor.shape
    return replace(tensor, kind=Kind.Q4_1, data=runtime.requantise(int(tensor.kind), outputs, inputs, tensor.data))


def _write(path: Path, arrays: list[NDArray[np.uint8]]) -> None:
    """Write whole or not at all, whoever else writes the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        try:
            for array in arrays:
                file.write(array.data)
            file.close()
            os.replace(file.name, path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _mapped(chosen: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    data = np.memmap(path, np.uint8, "r")
    found, start = {}, 0
    for name, tensor in chosen.items():
        part = data[start : start + _bytes(tensor)].reshape(tensor.shape[0], -1)
        found[name] = replace(tensor, kind=Kind.Q4_1, data=part)
        start += _bytes(tensor)
    return found


def _replaced(decoder: Decoder, found: dict[str, Tensor]) -> Decoder:
    def linear(old: Linear) -> Linear:
        return replace(old, weight=found.get(old.weight.name, old.weight))

    def layer(old: Layer) -> Layer:
        return replace(
            old,
            query=linear(old.query),
            attention_output=linear(old.attention_output),
            gate=linear(old.gate),
            up=linear(old.up),
            down=linear(old.down),
        )

    return replace(decoder, layers=tuple(map(layer, decoder.layers)), output=linear(decoder.output))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
