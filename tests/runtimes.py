"""What the tests of the native runtime share."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from soothsay import _native
from soothsay.model.architectures import describe
from soothsay.model.architectures.decoder import Decoder
from soothsay.model.base import Feed, Model, Slot
from soothsay.model.gguf import GGUFFile
from soothsay.model.native import NativeModel, runtime
from tests.checkpoints import Recipe

ISAS = _native.instruction_sets()

Checkpoint = Callable[[Recipe], Path]
Floats = NDArray[np.float32]


def describe_recipe(checkpoint: Checkpoint, recipe: Recipe) -> Decoder:
    return describe(GGUFFile.open(checkpoint(recipe)))


def load(checkpoint: Checkpoint, recipe: Recipe, isa: str | None = None, threads: int = 1) -> NativeModel:
    return NativeModel(describe_recipe(checkpoint, recipe), runtime(threads, isa))


def read(model: Model, slot: Slot, tokens: Sequence[int], chunk: int | None = None) -> Floats:
    """Feed the tokens, `chunk` a pass, and give the logits after each."""
    step = chunk or len(tokens)
    pieces = [tokens[start : start + step] for start in range(0, len(tokens), step)]
    return np.concatenate([model.forward([Feed(slot, piece, len(piece))])[0] for piece in pieces])


def alone(model: Model, tokens: Sequence[int]) -> Floats:
    """Give the logits after each token, computed one row a pass in a slot of their own."""
    slot = model.open()
    rows = read(model, slot, tokens, chunk=1)
    model.close(slot)
    return rows


def same_bits(a: Floats, b: Floats) -> bool:
    return np.array_equal(a.view(np.uint32), b.view(np.uint32))
