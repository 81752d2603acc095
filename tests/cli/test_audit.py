"""`soothsay audit`: what it prints and writes, its status, and how it fails."""

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from soothsay.cli import app
from soothsay.verify.noise import Noise
from tests.checkpoints import Kind, Recipe, Words, write_checkpoint

SMALL = ["--samples", "200", "--max-tokens", "6", "--count", "2", "--temperature", "0,0.9", "--verify", "block"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOOTHSAY_CACHE", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    recipe = Recipe("llama", Kind.Q8_0, vocab_size=264, max_length=160)
    return str(write_checkpoint(tmp_path_factory.mktemp("audit") / "tiny.gguf", recipe, Words()))


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    texts = ["abc abc abc abd", "x y x y x y z", "one two three"]
    lines = [{"question_id": n, "category": "ab"[n % 2], "turns": [text]} for n, text in enumerate(texts)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return str(tmp_path / "prompts.jsonl")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["audit", *arguments, "--threads", "2"])


class Page(HTMLParser):
    """Counts tags, and notes what the page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value for name, value in attrs if name in ("src", "href")]


def test_a_right_engine_passes_and_its_reports_say_so(model: str, prompts: str, tmp_path: Path) -> None:
    files = ["--json", str(tmp_path / "a.json"), "--html", str(tmp_path / "a.html")]
    result = run("--model", model, "--prompts", prompts, *SMALL, *files)
    assert result.exit_code == 0, result.output
    assert "no defect: " in result.stdout
    assert "would have failed with 0.99" in result.stdout
    found = json.loads((tmp_path / "a.json").read_text())
    assert (found["schema"], found["ok"], found["stage"], found["defects"]) == (1, True, None, [])
    assert {one["rule"] for one in found["laws"]} == {"block"}
    assert {one["temperature"] for one in found["equalities"]} == {0.0, 0.9}
    assert {one["way"] for one in found["equalities"]} >= {"none", "auto", "ngram, gamma 2", "none, 1 thread"}
    page = Page()
    page.feed((tmp_path / "a.html").read_text())
    assert page.fetched == []
    assert "script" not in page.tags
    assert page.tags.count("svg") == 2
    assert page.tags.count("circle") == 2 * len(found["laws"])


def test_a_defect_ends_with_status_1_and_its_stage(model: str, prompts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Noise._hash
    monkeypatch.setattr(Noise, "_hash", lambda self, words: right(Noise(self.seed), words))
    result = run("--model", model, "--prompts", prompts, *SMALL)
    assert result.exit_code == 1
    assert "DEFECT at the stage 'noise'" in result.stdout


def test_a_single_temperature_of_0_has_no_law_to_test(model: str, prompts: str) -> None:
    result = run("--model", model, "--prompts", prompts, *SMALL, "--temperature", "0")
    assert result.exit_code == 0
    assert "no defect: " in result.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--draft none", "there is nothing to audit: draft must not be none"),
        ("--temperature hot", "hot'; it must be numbers from 0 up"),
        ("--temperature -1", "temperature is '0,0.9,-1'"),
        ("--verify best", "verify is 'best'; it must be one of coupled, block, token"),
        ("--samples 5", "samples is 5; it must be at least 200"),
        ("--max-tokens 900", "max_tokens is 900; beside these prompts it must be from 1 to"),
        ("--count 0", "count is 0; it must be at least 1"),
        ("--gamma two", "gamma has 'two'"),
        ("--gamma 0", "gamma has 0"),
        ("--seed -1", "seed is -1"),
        ("--html nowhere/a.html", "the report cannot be written to 'nowhere/a.html': No such file"),
        ("--model none.gguf", "none.gguf"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(model: str, prompts: str, options: str, message: str) -> None:
    result = run("--model", model, "--prompts", prompts, *SMALL, *options.split())
    assert result.exit_code in (1, 2)
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert "Traceback" not in result.output
