"""The comparison with other engines is fair and hides nothing; the engines themselves are played by a few lines."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any
from xml.etree import ElementTree

import pytest

import bench.peers.__main__ as command
from bench.peers.contest import Answer, Contender, Question, Results, Team, run
from bench.peers.figure import draw
from bench.peers.process import Peer, PeerFailed
from bench.peers.report import Row, rows, table
from bench.peers.servers.answers import Ask, Emitted
from tests.checkpoints import Recipe, Words, write_checkpoint

SERVER = """
    import os, sys

    print("a library's greeting")

    class Server:
        def __init__(self, model):
            if model == "bad":
                raise ValueError("trace line\\nthe file is bad")
            self.version = "1"

        def generate(self, ask):
            print("a library's chatter")
            if ask.drafter == "ngram":
                print("out of memory", file=sys.stderr, flush=True)
                os._exit(3)
            return {"tokens": ask.tokens[: ask.max_tokens], "first_token_seconds": 1.0, "seconds": 2.0}
"""
PLAIN, NGRAM, GUESSED = Contender("a", "none"), Contender("a", "ngram", 2), Contender("a", "model", 2)
OURS, OURS_PLAIN = Contender("soothsay", "ngram", "auto"), Contender("soothsay", "none")
LAW = {"end": [0], "max_tokens": 3, "temperature": 0.0, "seed": 1}
QUESTIONS = [Question(name, "coding", [5, 6, 7, 8]) for name in ("first", "second")]


@pytest.fixture(autouse=True)
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "played.py").write_text(dedent(SERVER))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("SOOTHSAY_CACHE", str(tmp_path))


@pytest.fixture
def team() -> Iterator[Team]:
    found = Team({"a": sys.executable, "absent": None}, lambda _, python: Peer(python, "played", model="good"))
    yield found
    found.close()


def state(peer: Peer) -> str:
    """The kernel's letter for what a process does: T when it is stopped."""
    return Path(f"/proc/{peer._process.pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the state of a process is read from /proc")
def test_a_peer_is_stopped_when_it_is_not_its_turn() -> None:
    """Threads that spin on after their work take time from the next engine's turn."""
    with Peer(sys.executable, "played", model="good") as peer:
        for _ in range(2):
            assert peer.ask("generate", tokens=[1, 2], drafter="none", gamma=None, **LAW)["tokens"] == [1, 2]
            assert state(peer) == "T"


@pytest.mark.parametrize(
    ("python", "server", "model", "reason"),
    [
        ("/no/python", "played", "good", "/no/python cannot be run: No such file or directory"),
        (sys.executable, "unheard_of", "good", "ModuleNotFoundError: No module named 'unheard_of'"),
        (sys.executable, "played", "bad", "ValueError: the file is bad"),
    ],
)
def test_a_peer_that_cannot_be_had_says_why_in_a_line(python: str, server: str, model: str, reason: str) -> None:
    with pytest.raises(PeerFailed) as failure:
        Peer(python, server, model=model)
    assert str(failure.value) == reason


def test_a_death_costs_one_setting_and_not_the_engine(team: Team) -> None:
    """The others of its engine, and the prompts after it, must go on."""
    absent = Contender("absent", "none")
    for _ in (found := list(run(team, [PLAIN, NGRAM, GUESSED, absent], QUESTIONS[0], QUESTIONS, LAW))):
        pass
    assert found[-1].failures == {
        NGRAM: "its process ended with status 3: out of memory",
        absent: "no interpreter was named that has it",
    }
    asked = [(answer.contender, answer.prompt, answer.tokens) for answer in found[-1].answers]
    assert asked == [
        *((contender, "first", [5, 6, 7]) for contender in (PLAIN, GUESSED)),
        *((contender, "second", [5, 6, 7]) for contender in (GUESSED, PLAIN)),  # who begins changes
    ]


def answered(contender: Contender, prompt: str, tokens: list[int], seconds: float) -> Answer:
    return Answer(contender, prompt, tokens, 0.5, seconds)


def results() -> Results:
    found = Results(failures={NGRAM: "it died"})
    for name, slow in (("first", 1), ("second", 2), ("third", 3)):
        found.answers += [
            answered(PLAIN, name, [1, 2, 3], 2.0 * slow),  # 1 token a second and slower
            answered(GUESSED, name, [1, 2, 3] if slow == 1 else [1, 2, 4, 5, 6], 1.0 * slow),
            answered(OURS_PLAIN, name, [1, 2, 3], 1.0 * slow),
            answered(OURS, name, [1, 2, 3], 0.25 * slow),
        ]
    return found


def by_contender(greedy: bool = True) -> dict[Contender, Row]:
    every = [OURS_PLAIN, OURS, PLAIN, GUESSED, NGRAM]
    return {row.contender: row for row in rows(every, results(), OURS, greedy=greedy)}


def test_ratios_are_of_paces_prompt_by_prompt() -> None:
    """Seconds of answers of different lengths, medians of one side over the other's, or another engine's plain pace."""
    found = by_contender()
    assert found[PLAIN].tokens_per_second == pytest.approx(0.5)
    assert found[GUESSED].tokens_per_second == pytest.approx(2.0)
    assert found[GUESSED].speedup == pytest.approx(4.0)  # 2, 4, 4
    assert found[GUESSED].ahead == pytest.approx(2.0)  # 4, 2, 2
    assert found[OURS].speedup == pytest.approx(4.0)
    assert found[PLAIN].ahead == pytest.approx(8.0)
    assert (found[PLAIN].speedup, found[OURS].ahead) == (None, None)


def test_answers_are_compared_with_the_engines_own() -> None:
    assert (by_contender()[GUESSED].identical, by_contender()[GUESSED].compared) == (1, 3)
    assert (by_contender()[OURS].identical, by_contender()[OURS].compared) == (3, 3)
    assert by_contender(greedy=False)[OURS].identical is None


def test_one_token_has_no_pace() -> None:
    alone = Results(answers=[answered(PLAIN, "first", [0], 0.0)])
    [row] = rows([PLAIN], alone, PLAIN, greedy=True)
    assert (row.prompts, row.tokens_per_second) == (1, None)


def test_table_and_figure_name_those_that_did_not_run() -> None:
    found = list(by_contender().values())
    text = table(found, OURS)
    assert "| a | n-gram, gamma 2 | did not run |" in text
    assert "a, n-gram, gamma 2: it died" in text
    figure = ElementTree.fromstring(draw(found, "<Title>", ("one", "two"), "soothsay"))
    words = [element.text for element in figure.iter("{http://www.w3.org/2000/svg}text")]
    assert words[:3] == ["<Title>", "one", "two"]
    assert words[-2:] == ["a, n-gram, gamma 2", "did not run"]
    assert sum(element.get("class") == "ours" for element in figure.iter()) == 2


@pytest.mark.parametrize(
    ("steps", "kept"), [([[1], [2, 3, 4]], [1, 2, 3]), ([[1, 0, 5]], [1, 0]), ([[0], [1]], [0]), ([[1], [2]], [1, 2])]
)
def test_an_answer_ends_at_the_same_place_for_all(steps: list[list[int]], kept: list[int]) -> None:
    """What an engine emits past the end or past the limit must not count as speed."""
    emitted = Emitted(Ask(tokens=[9], drafter="none", gamma=None, **LAW))  # type: ignore[arg-type]
    ended = [emitted.add(step) for step in steps][-1]
    answer = emitted.answer()
    assert (answer["tokens"], ended) == (kept, len(kept) == 3 or kept[-1] == 0)
    assert answer["seconds"] >= 0
    assert answer["first_token_seconds"] > 0


def test_the_command_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """soothsay as its own only contestant; the peers, which are not there, are named and cost nothing."""
    recipe = Recipe("llama", vocab_size=264, max_length=512)
    model = write_checkpoint(tmp_path / "model.gguf", recipe, Words())
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"question_id": 1, "category": "coding", "turns": ["ababab"]}))
    options: dict[str, Any] = {"model": model, "prompts": prompts, "output": tmp_path / "out", "max-tokens": 8}
    arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    monkeypatch.setattr(sys, "argv", ["peers", *arguments, "--threads", "1"])
    assert command.main() == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    ours = [row for row in last["rows"] if row["contender"]["engine"] == "soothsay"]
    assert [row["contender"]["drafter"] for row in ours] == ["none", "ngram"]
    assert (ours[1]["identical"], ours[1]["compared"]) == (1, 1)
    assert {row["failure"] for row in last["rows"]} == {None, "no interpreter was named that has it"}
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["peers.json", "peers.md", "peers.svg"]


def test_a_wrong_option_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["peers", "--model", str(tmp_path / "none.gguf"), "--output", str(tmp_path)])
    assert command.main() == 1
    assert capsys.readouterr().err.count("\n") == 1
