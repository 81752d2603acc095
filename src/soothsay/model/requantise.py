"""A draft model may be sloppy: its matrices in 3 or 4 bits, so that a drafted token reads less memory.

The draft's quality changes speed, never words. Key and value matrices, and matrices that have no more bits than that,
stay as they are. The search for the best groups takes seconds, so its result is kept on disk under the file's digest.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

from soothsay.model.architectures.decoder import Decoder, Layer, Linear
from soothsay.model.gguf import Tensor
from soothsay.model.kinds import Kind, OwnKind, block_sizes

if TYPE_CHECKING:
    from soothsay._native import Runtime

VERSION = 2
"""Of the search: part of the cached file's name."""

FOUR_BITS = frozenset({GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q4_K})

Bits = Literal[3, 4]

DEAR = 0.08
"""Bytes of a draft in 4 bits over those of its target, from which on 3 bits pay: they save a quarter of what a drafted
token reads and cost about one guess in a hundred, and the dearer a token is, the more there is to save."""


def bits_beside(decoder: Decoder, target_bytes: int) -> Bits:
    """Give how many bits suit a draft for a target whose file has so many bytes."""
    weights = sum(tensor.shape[0] * tensor.shape[1] for tensor in _changeable(decoder))
    block, block_bytes = block_sizes(GGMLQuantizationType.Q4_1)
    return 3 if weights / block * block_bytes > DEAR * target_bytes else 4


def requantise(decoder: Decoder, runtime: "Runtime", source: Path, folder: Path, bits: Bits) -> Decoder:
    """Give the decoder with matrices of so many bits, from `folder` when the file `source` was requantised before.

    A row that is not a whole number of 3-bit blocks takes 4 bits. A folder that cannot be written costs the next load a
    search, and nothing else.
    """
    chosen = _chosen(decoder, bits)
    if not chosen:
        return decoder
    kept = folder / f"{_digest(source)}-{VERSION}.{bits}bit"
    if not kept.exists() or kept.stat().st_size != sum(_bytes(*one) for one in chosen.values()):
        found = {name: _searched(tensor, kind, runtime) for name, (tensor, kind) in chosen.items()}
        with suppress(OSError):
            _write(kept, [tensor.data for tensor in found.values()])
        return _replaced(decoder, found)
    return _replaced(decoder, _mapped(chosen, kept))


def _changeable(decoder: Decoder) -> Iterator[Tensor]:
    for layer in decoder.layers:
        for linear in (layer.query, layer.attention_output, layer.gate, layer.up, layer.down):
            yield linear.weight
    yield decoder.output.weight


def _chosen(decoder: Decoder, bits: Bits) -> dict[str, tuple[Tensor, Kind]]:
    """Give the tensors to change, each with its new kind."""
    kinds = ((tensor, _lighter(tensor, bits)) for tensor in _changeable(decoder))
    return {tensor.name: (tensor, kind) for tensor, kind in kinds if kind is not None}


def _lighter(tensor: Tensor, bits: Bits) -> Kind | None:
    def fits(kind: Kind) -> bool:
        return tensor.shape[1] % block_sizes(kind)[0] == 0

    if bits == 3 and fits(OwnKind.D3):
        return OwnKind.D3
    if tensor.kind not in FOUR_BITS and fits(GGMLQuantizationType.Q4_1):
        return GGMLQuantizationType.Q4_1
    return None


def _bytes(tensor: Tensor, kind: Kind) -> int:
    block, block_bytes = block_sizes(kind)
    outputs, inputs = tensor.shape
    return outputs * (inputs // block) * block_bytes


def _searched(tensor: Tensor, kind: Kind, runtime: "Runtime") -> Tensor:
    outputs, inputs = tensor.shape
    return replace(tensor, kind=kind, data=runtime.requantise(tensor.kind, outputs, inputs, tensor.data, kind))


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


def _mapped(chosen: dict[str, tuple[Tensor, Kind]], path: Path) -> dict[str, Tensor]:
    data = np.memmap(path, np.uint8, "r")
    found, start = {}, 0
    for name, (tensor, kind) in chosen.items():
        size = _bytes(tensor, kind)
        found[name] = replace(tensor, kind=kind, data=data[start : start + size].reshape(tensor.shape[0], -1))
        start += size
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
