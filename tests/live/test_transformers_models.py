"""The NumPy reference against transformers itself, on more checkpoints than the recorded ones."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="`make check` installs torch and transformers")
pytest.importorskip("transformers", reason="`make check` installs torch and transformers")

from soothsay.model.architectures import describe
from soothsay.model.base import Feed
from soothsay.model.gguf import GGUFFile
from soothsay.model.reference import ReferenceModel
from tests.checkpoints import CASES, K_KINDS, Kind, Llama3Scaling, Recipe, k_recipe, prompt
from tests.twins import Twin

ARCHITECTURES = ("llama", "qwen2", "qwen3")
MORE = {
    "3to1-wide": Recipe("llama", Kind.Q4_1, seed=11, width=576, heads=9, kv_heads=3, head_width=64, vocab_size=513),
    "7to1-two-groups": Recipe("qwen2", Kind.Q5_0, seed=12, width=224, heads=14, kv_heads=2, head_width=32),
    "base-1e6": Recipe("qwen3", Kind.Q8_0, seed=13, rope_base=1e6, head_width=128, tied=True),
    "llama3-deep": Recipe("llama", Kind.Q8_0, seed=14, layers=5, llama3_scaling=Llama3Scaling(32.0, 1.0, 2.0, 16)),
    **{
        f"{name}-{kind.name}-tied": k_recipe(name, kind, seed=15, tied=True)
        for name in ARCHITECTURES
        for kind in K_KINDS
    },
}


@pytest.mark.parametrize("name", [*MORE, *CASES])
def test_logits_are_those_of_transformers(checkpoint: Callable[[Recipe], Path], name: str) -> None:
    recipe = MORE.get(name) or CASES[name]
    file = GGUFFile.open(checkpoint(recipe))
    tokens = prompt(recipe, length=40)
    model = ReferenceModel(describe(file))
    found = model.forward([Feed(model.open(), tokens, len(tokens))])[0]
    np.testing.assert_allclose(found, Twin(file, recipe).logits(tokens), rtol=0, atol=2e-4)
