"""Who may know whom: the rooms of the design, read from the imports themselves."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "soothsay"

MAY_KNOW = {
    "completion": set[str](),
    "record": {"completion", "draft.base", "request", "sampling", "verify.base"},
    "terminal": set[str](),
    "trace": {"errors", "record", "request", "terminal"},
    "errors": {"completion"},
    "sampling": {"errors", "completion", "_native"},
    "verify": {"errors", "sampling"},
    "patience": set[str](),
    "draft": {"errors", "sampling", "verify", "patience", "model.base"},
    "schedule": {"errors", "sampling", "verify", "patience"},
    "model": {"errors", "_native"},
    "text": {"errors", "sampling.grammar"},
    "hub": {"errors"},
    "load": {"errors", "model", "text", "hub"},
    "prompt": {"errors", "load"},
    "request": {"completion", "errors", "sampling", "verify", "draft.base", "schedule", "model.base", "text"},
    "calibrate": {"model.base", "schedule.cost"},
    "assemble": {"errors", "draft", "schedule", "model.base", "hub", "load", "calibrate"},
    "speculation": {"draft.base", "schedule", "request"},
    "core": {
        *("completion", "errors", "sampling", "verify", "draft.base", "schedule", "model", "text"),
        *("prompt", "request", "record", "assemble", "speculation"),
    },
    "engine": {
        *("assemble", "completion", "core", "draft.base", "errors", "model.base", "prompt", "record", "request"),
        *("sampling", "verify.rules"),
    },
    "": {"completion", "core", "errors", "sampling", "engine", "trace.writer"},
    "bench": {
        "terminal",
        *("completion", "core", "errors", "sampling", "record", "engine", "assemble", "hub", "model", "_native"),
        *("draft.model", "schedule.policy", "verify.rules"),
    },
    "audit": {
        *("assemble", "completion", "core", "draft.base", "engine", "errors", "load", "model.base", "prompt", "record"),
        *("sampling", "schedule.policy", "terminal", "verify"),
    },
    "server": {
        *("completion", "core", "errors", "sampling", "record", "engine", "request", "assemble", "load", "model"),
        *("schedule.wish", "text.tokenizer", "verify.rules"),
    },
    "cli": {"", "errors", "audit", "bench", "server", "terminal", "trace", "verify.rules"},
}
NETWORK = {"huggingface_hub", "urllib.request", "http.client", "requests", "httpx"}
HEAVY = {"torch", "transformers"}


def name_of(file: Path) -> str:
    """`src/soothsay/draft/model.py` is `draft.model`; the package's own `__init__` is ``."""
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imported(file: Path) -> Iterator[str]:
    """Every module that a file names in an import, at its top or deep in a function."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} has a relative import; they hide who knows whom"
            assert node.module is not None
            native = {alias.name for alias in node.names} == {"_native"}
            yield f"{node.module}._native" if native else node.module


def known(file: Path) -> set[str]:
    """What a file knows of this package, without the `soothsay.`; the package's own `__init__` is ``."""
    ours = {name for name in imported(file) if name.split(".")[0] == "soothsay"}
    return {name.removeprefix("soothsay").removeprefix(".") for name in ours}


def allowed(name: str, room: str) -> bool:
    return any(name == place or (place and name.startswith(f"{place}.")) for place in {room, *MAY_KNOW[room]})


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=[name_of(file) or "soothsay" for file in FILES])
def test_rooms_know_only_whom_they_may(file: Path) -> None:
    room = name_of(file).split(".")[0]
    assert room in MAY_KNOW, "a new room: say in MAY_KNOW and in docs/map.md whom it may know"
    assert {name for name in known(file) if not allowed(name, room)} == set()


@pytest.mark.parametrize("file", FILES, ids=[name_of(file) or "soothsay" for file in FILES])
def test_no_room_needs_torch(file: Path) -> None:
    assert {name.split(".")[0] for name in imported(file)} & HEAVY == set()


def test_a_stranger_is_noticed() -> None:
    assert not allowed("engine", "draft")
    assert not allowed("model.native", "draft")
    assert not allowed("verify.coupled", "sampling")
    assert allowed("model.base", "draft")


def test_the_scheduler_touches_no_array() -> None:
    for file in (PACKAGE / "schedule").rglob("*.py"):
        assert "numpy" not in set(imported(file)), file


def test_import_loads_neither_torch_nor_the_network() -> None:
    code = "import sys, soothsay; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) & (HEAVY | NETWORK) == set()
