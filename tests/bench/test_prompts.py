"""Which prompts are asked, and what is said of a file that has none."""

import json
from collections import Counter
from pathlib import Path

import pytest

from soothsay import OptionError, PromptError
from soothsay.bench.prompts import Prompt, batches, read


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def line(name: object, category: str, *turns: str) -> str:
    return json.dumps({"question_id": name, "category": category, "turns": turns, "reference": ["kept apart"]})


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Three categories whose prompts are not in one piece, as in real files."""
    lines = [line(n, "odd" if n % 2 else "even", f"ask {n}", f"then {n}") for n in range(1, 7)]
    return write(tmp_path / "mixed.jsonl", *lines, "", line("last", "other", "é"))


def test_the_first_turns_of_a_file_by_category(mixed: Path) -> None:
    assert [prompt.name for prompt in read(mixed)] == ["1", "3", "5", "2", "4", "6", "last"]
    assert read(mixed, ["other"]) == [Prompt("last", "other", "é")]
    assert [prompt.text for prompt in read(mixed, ["even", "odd"], count=2)] == ["ask 1", "ask 3", "ask 2", "ask 4"]


def test_the_built_in_prompts_are_a_few_of_each_kind() -> None:
    found = read()
    kinds = Counter(prompt.category for prompt in found)
    assert kinds == {"coding": 3, "math_reasoning": 3, "editing": 10, "writing": 3}
    assert len({prompt.name for prompt in found}) == len({prompt.text for prompt in found}) == kinds.total()


def test_a_batch_has_one_category(mixed: Path) -> None:
    cut = batches(read(mixed), 2)
    assert [[prompt.name for prompt in batch] for batch in cut] == [["1", "3"], ["5"], ["2", "4"], ["6"], ["last"]]


def test_an_unknown_category_is_told_the_legal_ones(mixed: Path) -> None:
    with pytest.raises(OptionError, match=r"category 'evn'; legal are odd, even, other$"):
        read(mixed, ["odd", "evn"])


@pytest.mark.parametrize("count", [0, -1])
def test_a_count_below_one(mixed: Path, count: int) -> None:
    with pytest.raises(OptionError, match=f"count is {count}; it must be at least 1"):
        read(mixed, count=count)
    with pytest.raises(OptionError, match=f"batch is {count}; it must be at least 1"):
        batches(read(mixed), count)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"gone\.jsonl': No such file or directory; a file of JSON lines is legal"):
        read(tmp_path / "gone.jsonl")
    (tmp_path / "latin.jsonl").write_bytes(b'{"category": "\xe9"}')
    with pytest.raises(OptionError, match=r"latin\.jsonl': it is not UTF-8"):
        read(tmp_path / "latin.jsonl")


@pytest.mark.parametrize(
    "wrong",
    [
        "plain text",
        "[1]",
        "3",
        '{"category": "a", "turns": ["x"]}',
        '{"question_id": 1, "category": "a", "turns": []}',
        '{"question_id": 1, "category": 2, "turns": ["x"]}',
        '{"question_id": 1, "category": "a", "turns": [null]}',
        '{"question_id": 1, "category": "a", "turns": null}',
        '{"question_id": 1, "category": "a", "turns": "not a list"}',
    ],
)
def test_a_line_of_another_form_is_named(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(PromptError, match=r"^line 2 of .*one\.jsonl is no prompt; "):
        read(write(tmp_path / "one.jsonl", line(1, "a", "x"), wrong))


def test_a_file_without_prompts(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="has no prompts"):
        read(write(tmp_path / "empty.jsonl", "", ""))
