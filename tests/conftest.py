"""Fixtures for every room."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.checkpoints import Recipe, write_checkpoint


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Recipe], Path]:
    """Give the path of a recipe's GGUF file, written once a session."""
    folder = tmp_path_factory.mktemp("checkpoints")
    paths: dict[Recipe, Path] = {}

    def write(recipe: Recipe) -> Path:
        if recipe not in paths:
            paths[recipe] = write_checkpoint(folder / f"{len(paths)}-{recipe.architecture}.gguf", recipe)
        return paths[recipe]

    return write
