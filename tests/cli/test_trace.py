"""`--trace` and `soothsay trace show`: from the options to the file and back."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from soothsay.cli import app
from tests.checkpoints import Kind, Recipe, Words, write_checkpoint


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOOTHSAY_CACHE", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    recipe = Recipe("llama", Kind.Q8_0, vocab_size=264, max_length=160)
    return str(write_checkpoint(tmp_path_factory.mktemp("trace") / "tiny.gguf", recipe, Words()))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_what_generate_traced_is_shown(model: str, tmp_path: Path) -> None:
    path = str(tmp_path / "t.jsonl")
    options = ["--model", model, "--draft", "ngram", "--gamma", "2", "--max-tokens", "20", "--seed", "3"]
    said = json.loads(run("generate", *options, "--json", "--trace", path, "abababab").stdout)
    head = json.loads(Path(path).read_text().splitlines()[0])
    assert head["about"] == {"model": model, "draft": "ngram", "gamma": "2", "verify": "coupled"}
    shown = run("trace", "show", path)
    assert shown.exit_code == 0
    assert "request 0, 4 prompt tokens, temperature 0, seed 3, end: length" in shown.stdout
    assert f"{said['tokens']} tokens: " in shown.stdout
    summary = json.loads(run("trace", "show", "--json", path).stdout)
    assert (summary["tokens"], summary["requests"]) == (said["tokens"], 1)
    assert summary["drafters"]["ngram"]["drafted"] == said["drafted"]
    assert summary["drafters"]["ngram"]["accepted"] == said["accepted"]


def test_several_samples_are_several_requests(model: str, tmp_path: Path) -> None:
    path = str(tmp_path / "t.jsonl")
    options = ["--model", model, "--max-tokens", "6", "--temperature", "1", "--seed", "3", "-n", "3"]
    assert run("generate", *options, "--trace", path, "abab").exit_code == 0
    shown = run("trace", "show", path).stdout
    assert [f"request {number}, 2 prompt tokens, temperature 1, seed 3" in shown for number in range(3)] == [True] * 3
    assert "sample 2" in shown


def test_bench_run_traces_the_steps_with_drafts(model: str, tmp_path: Path) -> None:
    line = {"question_id": 1, "category": "a", "turns": ["abababab"]}
    (tmp_path / "p.jsonl").write_text(json.dumps(line))
    path = str(tmp_path / "t.jsonl")
    options = ["--model", model, "--prompts", str(tmp_path / "p.jsonl"), "--max-tokens", "8", "--gamma", "2"]
    result = run("bench", "run", *options, "--trace", path, "--threads", "1")
    assert result.exit_code == 0, result.output
    summary = json.loads(run("trace", "show", "--json", path).stdout)
    assert summary["tokens"] == 16  # a warm-up of 8, then the prompt's 8
    assert summary["drafters"]["ngram"]["drafted"] > 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_a_full_disk_is_told_after_the_answer(model: str) -> None:
    options = ["--model", model, "--max-tokens", "6", "--seed", "1", "--trace", "/dev/full", "abab"]
    result = run("generate", *options)
    assert result.stdout == run("generate", *options[:6], "abab").stdout
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == ("soothsay: error: /dev/full ends after 0 steps: No space left on device")


@pytest.mark.parametrize("verb", ["generate", "bench run"])
def test_a_trace_that_cannot_be_written_is_a_wrong_option(model: str, verb: str) -> None:
    result = run(*verb.split(), "--model", model, "--trace", "nowhere/t.jsonl", *(["a"] if verb == "generate" else []))
    assert result.exit_code == 2
    assert "trace is 'nowhere/t.jsonl', which cannot be written" in result.stderr


def test_what_is_no_trace_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("{}\n")
    result = run("trace", "show", str(tmp_path / "t"))
    assert result.exit_code == 1
    assert result.stderr.startswith("soothsay: error: ")
    assert "line 1: kind is missing" in result.stderr
