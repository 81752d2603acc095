"""The compiled module, as type checkers see it; `tests/model/test_native_stub.py` keeps the two together."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

def instruction_sets() -> list[str]: ...
def dequantise(kind: int, outputs: int, inputs: int, rows: NDArray[np.uint8]) -> NDArray[np.float32]: ...

class Runtime:
    def __init__(self, threads: int, isa: str) -> None: ...
    @property
    def threads(self) -> int: ...
    @property
    def isa(self) -> str: ...
    def pack(self, kind: int, outputs: int, inputs: int, rows: NDArray[np.uint8]) -> Matrix: ...
    def requantise(self, kind: int, outputs: int, inputs: int, rows: NDArray[np.uint8]) -> NDArray[np.uint8]: ...
    def product(self, matrix: Matrix, x: NDArray[np.float32]) -> NDArray[np.float32]: ...

class Matrix:
    @property
    def nbytes(self) -> int: ...

class Linear:
    def __init__(self, weight: Matrix, bias: Sequence[float]) -> None: ...

class Layer:
    def __init__(
        self,
        *,
        attention_norm: Sequence[float],
        query: Linear,
        key: Linear,
        value: Linear,
        attention_output: Linear,
        query_norm: Sequence[float],
        key_norm: Sequence[float],
        feed_forward_norm: Sequence[float],
        gate: Linear,
        up: Linear,
        down: Linear,
    ) -> None: ...

class Decoder:
    def __init__(
        self,
        runtime: Runtime,
        *,
        vocab_size: int,
        max_length: int,
        width: int,
        heads: int,
        kv_heads: int,
        head_width: int,
        feed_forward_width: int,
        norm_epsilon: float,
        rope_interleaved: bool,
        rope_frequencies: Sequence[float],
        embedding_kind: int,
        embedding: NDArray[np.uint8],
        layers: Sequence[Layer],
        output_norm: Sequence[float],
        output: Linear,
    ) -> None: ...
    def open(self) -> int: ...
    def fork(self, slot: int) -> int: ...
    def length(self, slot: int) -> int: ...
    def truncate(self, slot: int, length: int) -> None: ...
    def close(self, slot: int) -> None: ...
    @property
    def cache_bytes(self) -> int: ...
    def forward(self, feeds: Sequence[tuple[int, Sequence[int], int]]) -> NDArray[np.float32]: ...
