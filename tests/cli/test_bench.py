"""`soothsay bench`: the last line key for key, where everything else goes, and how it fails."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from soothsay.bench import cost
from soothsay.bench.run import Pair
from soothsay.cli import app
from tests.checkpoints import Kind, Recipe, Words, write_checkpoint

COST_KEYS = [
    *("model", "isa", "threads", "context", "rows", "bytes_per_pass", "read_bandwidth_bytes_per_second"),
    *("peak_products_per_second", "prompt_tokens_per_second"),
]
RUN_KEYS = [
    *("model", "draft", "temperature", "verify", "prompts", "identical", "speedup", "speedup_interval", "bound_share"),
    *(
        "plain_tokens_per_second",
        "tokens_per_second",
        "tokens_per_step",
        "acceptance_rate",
        "by_category",
        "time_share",
    ),
]


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOOTHSAY_CACHE", str(tmp_path))
    monkeypatch.setattr(cost, "READ_BYTES", 1 << 20)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    recipe = Recipe("llama", Kind.Q8_0, vocab_size=264, max_length=96)
    return str(write_checkpoint(tmp_path_factory.mktemp("bench") / "tiny.gguf", recipe, Words()))


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    lines = [{"question_id": n, "category": "ab"[n % 2], "turns": ["ab" * n]} for n in range(2, 8)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return str(tmp_path / "prompts.jsonl")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", *arguments, "--threads", "1"])


def test_cost_ends_with_its_object(model: str) -> None:
    result = run("cost", "--model", model, "--rows", "1, 3", "--context", "9", "--rounds", "1")
    assert (result.exit_code, result.stderr) == (0, "")
    *table, last = result.stdout.splitlines()
    found = json.loads(last)
    assert list(found) == COST_KEYS
    assert [list(row) for row in found["rows"]] == [["rows", "seconds", "v", "roofline_share"]] * 2
    assert (found["model"], found["threads"], found["context"]) == ("tiny.gguf", 1, 9)
    assert "tiny.gguf" in table[0]
    assert all(len(line) <= 120 for line in table)


def test_run_ends_with_its_object(model: str, prompts: str) -> None:
    options = ["--gamma", "2", "--draft", "ngram", "--max-tokens", "9", "--temperature", "0.5", "--seed", "4"]
    result = run("run", "--model", model, "--prompts", prompts, *options)
    assert result.exit_code == 0
    *table, last = result.stdout.splitlines()
    found = json.loads(last)
    assert list(found) == RUN_KEYS
    assert (found["model"], found["draft"], found["temperature"]) == ("tiny.gguf", "ngram", 0.5)
    assert (found["prompts"], found["identical"]) == (6, True)
    assert {name: one["prompts"] for name, one in found["by_category"].items()} == {"a": 3, "b": 3}
    assert list(found["time_share"]) == ["draft", "verify", "sample", "rest"]
    assert sum(found["time_share"].values()) == pytest.approx(1.0)
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == ["a 2", "a 4", "a 6", "b 3", "b 5", "b 7"]
    assert any("of the bound" in line for line in table)


def test_json_alone(model: str, prompts: str) -> None:
    for verb in (["cost", "--rows", "2", "--context", "0"], ["run", "--prompts", prompts, "--max-tokens", "4"]):
        result = run(*verb, "--model", model, "--rounds", "1", "--json")
        assert (result.exit_code, len(result.stdout.splitlines())) == (0, 1)


def test_categories_counts_batches_and_rounds(model: str, prompts: str) -> None:
    options = ["--categories", "b", "--count", "2", "--batch", "2", "--rounds", "2", "--max-tokens", "4"]
    result = run("run", "--model", model, "--prompts", prompts, *options, "--json")
    assert json.loads(result.stdout)["prompts"] == 2
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == ["b 3, 5"] * 2


def test_a_difference_is_an_exit_status(model: str, prompts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pair, "identical", property(lambda pair: pair.batch[0].name != "5"))
    result = run("run", "--model", model, "--prompts", prompts, "--max-tokens", "4")
    assert result.exit_code == 1
    assert json.loads(result.stdout.splitlines()[-1])["identical"] is False
    assert result.stderr.count("DIFFERENT") == 1


@pytest.mark.parametrize(("temperature", "identical"), [("0", True), ("1.5", None)])
def test_answers_by_another_rule_are_compared_where_it_owes_the_same(
    model: str, prompts: str, temperature: str, identical: bool | None
) -> None:
    options = ["--verify", "block", "--temperature", temperature, "--max-tokens", "9", "--draft", "ngram"]
    result = run("run", "--model", model, "--prompts", prompts, *options)
    found = json.loads(result.stdout.splitlines()[-1])
    assert (result.exit_code, found["verify"], found["identical"]) == (0, "block", identical)
    assert "DIFFERENT" not in result.stderr + result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run --verify other", "verify is 'other'; it must be one of coupled, block, token"),
        ("cost --rows 1,x", "rows has 'x'; it must be whole numbers with commas between them, as 1,2,4"),
        ("cost --rows -1", "rows has '-1'; it must be"),
        ("cost --context 90 --rows 8", "context is 90; with 8 rows in 96 tokens, legal is 0 to 88"),
        ("run --prompts gone.jsonl", "prompts cannot be read from 'gone.jsonl': No such file or directory"),
        (
            "run --categories codin",
            "no prompt has category 'codin'; legal are coding, math_reasoning, editing, writing",
        ),
        ("run --categories coding,", "categories is 'coding,'; it must be words with commas between them"),
        ("run --gamma 2.5", "gamma is '2.5'; it must be auto, or an integer"),
        ("run --draft none", "there is nothing to compare: draft must not be none"),
        ("run --batch 0", "batch is 0; it must be at least 1"),
        ("run --temperature -1", "temperature"),
    ],
)
def test_errors_are_one_line_and_status_2(model: str, arguments: str, message: str) -> None:
    result = run(*arguments.split(), "--model", model)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith("soothsay: error: ")
    assert message in result.stderr


def test_a_model_that_is_not_there() -> None:
    for verb in ("cost", "run"):
        result = run(verb, "--model", "gone.gguf")
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
