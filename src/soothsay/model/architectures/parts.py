"""Metadata and tensors of a file, taken out one by one, each checked for presence, type, range and shape."""

import math

import numpy as np
from numpy.typing import NDArray

from soothsay.errors import FileCorrupt, Unsupported
from soothsay.model.architectures.decoder import Linear
from soothsay.model.gguf import GGUFFile, Tensor, Value, dequantise, quoted

_LARGEST_INTEGER = 2**31 - 1


class Parts:
    """The parts of one model file; it remembers which tensors were taken, so that none is skipped in silence."""

    def __init__(self, file: GGUFFile, architecture: str) -> None:
        self._file = file
        self._architecture = architecture
        self._taken: set[str] = set()

    def has(self, key: str) -> bool:
        """Whether the architecture's metadata has `key`, given without the architecture's own prefix."""
        return self._full(key) in self._file.metadata

    def integer(self, key: str, default: int | None = None, least: int = 1) -> int:
        """A whole number of at least `least` that fits in 31 bits."""
        found = self._value(key, default)
        if type(found) is not int or not least <= found <= _LARGEST_INTEGER:
            legal = f"a whole number from {least} to {_LARGEST_INTEGER}"
            raise self.corrupt(f"{self._full(key)} is {quoted(found)}; {legal} was expected")
        return found

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number above 0."""
        found = self._value(key, default)
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found < math.inf:
            raise self.corrupt(f"{self._full(key)} is {quoted(found)}; a finite number above 0 was expected")
        return float(found)

    def text(self, key: str, default: str) -> str:
        found = self._value(key, default)
        if not isinstance(found, str):
            raise self.corrupt(f"{self._full(key)} is {quoted(found)}; a string was expected")
        return found

    def refuse(self, key: str, *inactive: Value) -> None:
        """Raise Unsupported when `key` is present with a value that would change what the model computes."""
        found = self._file.metadata.get(self._full(key), inactive[0])
        if isinstance(found, np.ndarray | list) or found not in inactive:
            legal = " or ".join(quoted(value) for value in inactive)
            raise self.unsupported(f"{self._full(key)} is {quoted(found)}; supported is {legal}")

    def has_tensor(self, name: str) -> bool:
        return name in self._file.tensors

    def tensor(self, name: str, *shape: int) -> Tensor:
        """The tensor of that name, which must have that shape."""
        tensor = self._file.tensors.get(name)
        if tensor is None:
            raise self.corrupt(f"tensor {name} is missing; the {self._architecture} architecture needs it")
        if tensor.shape != shape:
            raise self.corrupt(f"tensor {name} has shape {tensor.shape}; {shape} was expected")
        self._taken.add(name)
        return tensor

    def optional(self, name: str, *shape: int) -> Tensor | None:
        return self.tensor(name, *shape) if self.has_tensor(name) else None

    def linear(self, name: str, outputs: int, inputs: int) -> Linear:
        """The matrix `name`.weight, and `name`.bias where the file has one."""
        return Linear(self.tensor(f"{name}.weight", outputs, inputs), self.optional(f"{name}.bias", outputs))

    def embedding(self, width: int) -> Tensor:
        """The token embedding, whose number of rows is the size of the vocabulary."""
        tensor = self._file.tensors.get("token_embd.weight")
        rows = tensor.shape[0] if tensor is not None else 0
        return self.tensor("token_embd.weight", rows, width)

    def factors(self, name: str, length: int) -> NDArray[np.float64]:
        """A vector of finite factors above 0, all 1 when the file has none."""
        tensor = self.optional(name, length)
        if tensor is None:
            return np.ones(length)
        found = dequantise(tensor).astype(np.float64)
        if not np.all(np.isfinite(found) & (found > 0)):
            raise self.corrupt(f"tensor {name} holds something else than finite numbers above 0")
        return found

    def refuse_rest(self) -> None:
        """Raise Unsupported when the file holds a tensor that nothing has taken."""
        for name in self._file.tensors:
            if name not in self._taken:
                raise self.unsupported(
                    f"tensor {quoted(name)} is no part of a supported {self._architecture} model; "
                    "running without it would change the answers"
                )

    def corrupt(self, problem: str) -> FileCorrupt:
        return FileCorrupt(f"{self._file.path}: {problem}")

    def unsupported(self, problem: str) -> Unsupported:
        return Unsupported(f"{self._file.path}: {problem}")

    def _value(self, key: str, default: Value | None) -> Value:
        found = self._file.metadata.get(self._full(key), default)
        if found is None:
            raise self.corrupt(f"metadata {self._full(key)} is missing")
        return found

    def _full(self, key: str) -> str:
        return f"{self._architecture}.{key}"
