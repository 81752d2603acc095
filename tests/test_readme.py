"""The README says nothing that does not run: its examples, options, make targets and links."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer.main

from soothsay.cli import app
from soothsay.hub import MODELS, cached

ROOT = Path(__file__).parents[1]
GUIDES = ["docs/sampling.md", "docs/traces.md", "docs/audit.md", "docs/serving.md"]
PAGES = ["README.md", "CONTRIBUTING.md", "docs/map.md", *GUIDES, "bench/README.md"]


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.skipif(cached(MODELS["smollm2-135m"]) is None, reason="the small model is not in the cache")
@pytest.mark.skipif(find_spec("soothsay._native") is None, reason="the native runtime is not built")
@pytest.mark.parametrize("page", ["README.md", "docs/sampling.md", "docs/traces.md"])
def test_python_examples_run(
    capsys: pytest.CaptureFixture[str], page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks(page, "python"):
        if "openai" in block:  # which needs a server: tests/server/test_examples.py
            continue
        exec(compile(block, page, "exec"), names)
    assert len(capsys.readouterr().out) > 100


@pytest.mark.parametrize("verb", ["generate", "serve", "audit", "bench cost", "bench run"])
def test_options_exist(verb: str) -> None:
    command: Any = typer.main.get_group(app)
    for word in verb.split():
        command = command.commands[word]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    lines = [line for page in PAGES for block in blocks(page, "") for line in block.splitlines()]
    asked = [line.split(f"soothsay {verb}")[1] for line in lines if f"soothsay {verb}" in line]
    named = {option for line in asked for option in re.findall(r"(?<= )--[a-z-]+", line)}
    assert len(named) >= 2
    assert named <= known


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_make_targets_exist(page: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {target for block in blocks(page, "") for target in re.findall(r"^make ([a-z]+)", block, re.MULTILINE)}
    assert named
    assert named <= targets


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / page).read_text())
    assert [link for link in links if ":" not in link and not ((ROOT / page).parent / link).exists()] == []


def test_map_names_real_rooms() -> None:
    """Every path on the map is there, under the package or at the root."""
    paths = re.findall(r"`([a-z_]+(?:/[a-z_]*)*(?:\.py)?)`", (ROOT / "docs/map.md").read_text())
    paths = [path for path in paths if "/" in path or path.endswith(".py")]
    assert len(paths) > 15
    assert [p for p in paths if not (ROOT / p).exists() and not (ROOT / "src/soothsay" / p).exists()] == []
