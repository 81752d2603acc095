"""The tensor types that a model's weights may have: GGUF's, and one of our own, for drafts."""

from enum import IntEnum

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray


class OwnKind(IntEnum):
    """Tensor types that are in no file of others; the runtime knows them by the same numbers.

    D3: blocks of 4 groups of 32 weights, 3 bits each. A block has two half-floats, scale and minimum; 4 bytes of scales
    and 4 of minima, one a group; and 48 bytes of codes, one after another from the lowest bit of the first byte on.
    weight = scale * scales[group] * code - minimum * minima[group]
    """

    D3 = 1003


Kind = GGMLQuantizationType | OwnKind

D3_BLOCK = np.dtype([("unit", "<f2", 2), ("bytes", "u1", (2, 4)), ("codes", "u1", 48)])
"""unit and bytes: of the scales, then of the minima."""


def block_sizes(kind: Kind) -> tuple[int, int]:
    """Give how many weights a block of that type has, and how many bytes."""
    return (128, D3_BLOCK.itemsize) if isinstance(kind, OwnKind) else GGML_QUANT_SIZES[kind]


def dequantise_blocks(data: NDArray[np.uint8], kind: Kind) -> NDArray[np.float32]:
    """Whole blocks as float32, in the file's order."""
    if not isinstance(kind, OwnKind):
        values: NDArray[np.float32] = dequantize(data, kind)
        return values
    blocks = np.ascontiguousarray(data).reshape(-1).view(D3_BLOCK)
    scales, minima = np.moveaxis(blocks["unit"][..., None].astype(np.float32) * blocks["bytes"], 1, 0)
    bits = np.unpackbits(blocks["codes"], axis=-1, bitorder="little")
    codes = bits.reshape(len(blocks), 4, 32, 3) @ np.array([1, 2, 4], np.float32)
    weights: NDArray[np.float32] = scales[..., None] * codes - minima[..., None]
    return weights
