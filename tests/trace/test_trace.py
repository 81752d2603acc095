"""A trace tells the truth: what comes back from its lines is what the answers, the target and the drafter say."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.text import Text

from soothsay import Completion, ContextFull, Engine, OptionError, Sampling, TraceError, Tracer
from soothsay.draft.model import ModelDrafter
from soothsay.errors import ProcessorError
from soothsay.model.table import TableModel
from soothsay.sampling import law
from soothsay.trace import show
from soothsay.trace.reader import Trace, Turn, read
from soothsay.trace.summary import summarise
from tests.engines import SpyModel, drafters

PROMPTS = [[1, 2, 3, 1, 2, 3, 1, 2], [4, 4], [0, 5] * 150]
RULES = ["coupled", "block", "token"]


def traced(path: Path, sampling: Sampling, **options: Any) -> tuple[list[Completion], Trace]:
    """Answer the prompts with a trace, and read it back."""
    with Tracer(path, {"model": "table"}) as tracer:
        answers = Engine(SpyModel(), draft=drafters(SpyModel())["alike"], trace=tracer, **options).generate(
            PROMPTS, sampling
        )
    return answers, read(path)


def turns(trace: Trace, request: int) -> list[Turn]:
    return [turn for step in trace.steps for turn in step.turns if turn.request == request]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("gamma", [0, 3, "auto"])
def test_the_lines_add_up_to_the_answers(tmp_path: Path, rule: str, temperature: float, gamma: Any) -> None:
    sampling = Sampling(max_tokens=30, temperature=temperature, seed=5)
    answers, trace = traced(tmp_path / "t.jsonl", sampling, verify=rule, gamma=gamma)
    for request, (prompt, answer) in enumerate(zip(PROMPTS, answers, strict=True)):
        mine = turns(trace, request)
        assert tuple(token for turn in mine for token in turn.emitted) == answer.tokens
        assert sum(len(turn.drafted) for turn in mine) == answer.stats.drafted
        assert sum(turn.accepted for turn in mine) == answer.stats.accepted
        assert [turn.finish_reason for turn in mine] == [None] * (len(mine) - 1) + ["length"]
        positions = [len(prompt) + sum(len(turn.emitted) for turn in mine[:place]) for place in range(len(mine))]
        assert [turn.position for turn in mine] == positions
        asked = trace.requests[request]
        assert (asked.prompt_tokens, asked.seed, asked.sample) == (len(prompt), 5, 0)
    assert not trace.cut
    assert trace.about == {"model": "table"}
    if gamma == 3:
        assert sum(step.rows for step in trace.steps) > sum(map(len, PROMPTS)) + sum(len(a.tokens) for a in answers) - 3


@pytest.mark.parametrize("rule", RULES)
def test_p_and_q_are_those_of_the_two_models(tmp_path: Path, rule: str) -> None:
    """Both are worked out anew from the tables; coupled has no p after a refusal, the others have them all."""
    sampling = Sampling(max_tokens=40, temperature=0.9, seed=5)
    answers, trace = traced(tmp_path / "t.jsonl", sampling, verify=rule, gamma=3)
    target = SpyModel()
    draft = target.blend(TableModel(target.vocab_size, seed=77), 0.2)  # type: ignore[arg-type]
    known = 0
    for request, prompt in enumerate(PROMPTS):
        text = [*prompt, *answers[request].tokens]
        for turn in turns(trace, request):
            for place, token in enumerate(turn.drafted):
                before = [*text[: turn.position], *turn.drafted[:place]]
                assert turn.q[place] == pytest.approx(probability(draft, before, token, sampling), rel=1e-5)
                if (p := turn.p[place]) is not None:
                    assert p == pytest.approx(probability(target, before, token, sampling), rel=1e-5)
                    known += 1
                else:
                    assert place > turn.accepted
            assert turn.own == own(turn)
    assert known > 40


def probability(model: TableModel, before: Sequence[int], token: int, sampling: Sampling) -> float:
    return math.exp(law(model.logits(before), sampling).log_probability(token))


def own(turn: Turn) -> str | None:
    if len(turn.emitted) == turn.accepted:
        return None
    if not turn.drafted:
        return "plain"
    return "bonus" if turn.accepted == len(turn.drafted) else "correction"


def test_the_books_are_there_where_they_are_kept(tmp_path: Path) -> None:
    _, trace = traced(tmp_path / "a.jsonl", Sampling(max_tokens=8), gamma="auto")
    assert all(turn.debt_seconds is not None for step in trace.steps for turn in step.turns)
    _, trace = traced(tmp_path / "b.jsonl", Sampling(max_tokens=8), gamma=2)
    assert {turn.debt_seconds for step in trace.steps for turn in step.turns} == {None}


def test_a_request_that_fails_leaves_a_line_and_the_others_alone(tmp_path: Path) -> None:
    def fails(history: list[int], logits: NDArray[np.float32]) -> NDArray[np.float32]:
        raise RuntimeError("no")

    path = tmp_path / "t.jsonl"
    with Tracer(path) as tracer:
        engine = Engine(SpyModel(), trace=tracer)
        with pytest.raises(ProcessorError):
            engine.generate([1, 2], Sampling(max_tokens=4, processors=(fails,)))
        answer = engine.generate([1, 2], Sampling(max_tokens=4))
    trace = read(path)
    assert [turn.emitted for turn in turns(trace, 0)] == [()]
    assert sum((turn.emitted for turn in turns(trace, 1)), ()) == answer.tokens
    assert summarise(trace).requests == 1


def test_a_full_disk_costs_the_trace_and_nothing_else() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no device that is always full")
    answers = list[Completion]()
    with pytest.raises(TraceError, match=r"/dev/full ends after 0 steps: No space left"), Tracer("/dev/full") as tracer:
        answers.append(Engine(SpyModel(), trace=tracer).generate([1, 2], Sampling(max_tokens=4)))
    assert answers[0] == Engine(SpyModel()).generate([1, 2], Sampling(max_tokens=4)) or len(answers[0].tokens) == 4


def test_an_error_of_the_block_is_not_hidden_by_one_of_the_file() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no device that is always full")
    with pytest.raises(ContextFull), Tracer("/dev/full") as tracer:
        Engine(SpyModel(max_length=6), trace=tracer).generate([1, 2], Sampling(max_tokens=9))


def test_a_file_that_is_there_is_written_over_by_the_first_step_only(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("old\n")
    with Tracer(path):
        pass
    assert path.read_text() == "old\n"
    traced(path, Sampling(max_tokens=2))


def test_a_place_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="No such file or directory"):
        Tracer(tmp_path / "nowhere" / "t.jsonl")


def test_each_step_is_in_the_file_when_it_is_over(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    tracer = Tracer(path)
    stream = Engine(SpyModel(), trace=tracer).stream([1, 2], Sampling(max_tokens=9))
    next(stream)
    assert [turn.emitted for turn in turns(read(path), 0)] != []
    tracer.close()


def lines(tmp_path: Path) -> list[str]:
    traced(tmp_path / "whole.jsonl", Sampling(max_tokens=12, seed=3, temperature=0.5), gamma=3)
    return (tmp_path / "whole.jsonl").read_text().splitlines(keepends=True)


def test_a_trace_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    whole, path = lines(tmp_path), tmp_path / "cut.jsonl"
    path.write_text("".join(whole[:-1]) + whole[-1][:20])
    found = read(path)
    assert found.cut
    assert len(found.steps) == len(read(tmp_path / "whole.jsonl").steps) - 1


def change(name: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda line: line | {name: value}


def change_turn(name: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda line: line | {"turns": [turn | {name: value} for turn in line["turns"]]}


WRONG: dict[str, Callable[[dict[str, Any]], Any]] = {
    "kind 'else' is none of": change("kind", "else"),
    "it is not a JSON object": lambda line: [line],
    "turns must be a list of objects": change("turns", [1]),
    "rows must be a whole number": change("rows", -1),
    "draft_seconds must be a number": change("draft_seconds", "1"),
    "drafted must be a list of token ids": change_turn("drafted", ["a"]),
    "p must be a list of numbers": change_turn("p", [True]),
    "drafted, p and q must be of one length": change_turn("q", [0.5] * 40),
    "emitted and texts must have the accepted": change_turn("emitted", [1] * 40),
    "texts must be a list of texts": change_turn("texts", [1]),
    "request must be a whole number": change_turn("request", None),
    "drafter must be a text": change_turn("drafter", 3),
}


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_line_is_named(tmp_path: Path, message: str) -> None:
    whole, path = lines(tmp_path), tmp_path / "wrong.jsonl"
    whole[-2] = json.dumps(WRONG[message](json.loads(whole[-2]))) + "\n"
    path.write_text("".join(whole))
    with pytest.raises(TraceError, match=f"line {len(whole) - 1}: {message}"):
        read(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\xff\xfe\n", "line 1: it is not JSON"),
        (b"{}\n", "line 1: kind is missing"),
        (b'{"kind":"step"}\n', "line 1: turns is missing"),
        (b'{"kind":"trace","schema":2,"about":{}}\n', "line 1: schema is 2; this version reads 1"),
        (b"[" * 100_000 + b"\n", "line 1: "),
        (b'{"kind":"request","request":0,"prompt_tokens":1,"cached_tokens":0,"temperature":0,"seed":1,"sample":0}\n',
         "line 1: the first line must have kind 'trace'"),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "none").write_bytes(content)
    with pytest.raises(TraceError, match=message):
        read(tmp_path / "none")


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        read(tmp_path / "none")


def test_the_summary_counts_by_drafter_position_and_origin(tmp_path: Path) -> None:
    answers, trace = traced(tmp_path / "t.jsonl", Sampling(max_tokens=40, temperature=0.9, seed=5), gamma=3)
    found = summarise(trace)
    stats = [answer.stats for answer in answers]
    assert (found.requests, found.tokens) == (3, 120)
    assert found.tokens_per_step == pytest.approx(120 / sum(one.steps for one in stats))
    [(name, drafter)] = found.drafters.items()
    assert (name, drafter.drafted, drafter.accepted) == (
        "object",
        sum(one.drafted for one in stats),
        sum(one.accepted for one in stats),
    )
    assert len(drafter.acceptance_by_position) == 3
    assert sum(found.origins.values()) == 120
    assert found.origins["object"] == drafter.accepted
    assert set(found.origins) == {"object", "plain", "bonus", "correction"}


def test_colours_say_where_a_token_came_from(tmp_path: Path) -> None:
    _, trace = traced(tmp_path / "t.jsonl", Sampling(max_tokens=40, temperature=0.9, seed=5), gamma=3)
    worded = Trace(
        trace.about,
        trace.requests,
        tuple(
            type(step)(
                step.rows,
                step.draft_seconds,
                step.verify_seconds,
                step.sample_seconds,
                tuple(with_texts(turn) for turn in step.turns),
            )
            for step in trace.steps
        ),
        cut=False,
    )
    summary = summarise(worded)
    styles = show.styles(summary)
    assert len(set(styles.values())) == 4
    for request, (heading, text) in enumerate(show.answers(worded, styles)):
        assert f"request {request}, {len(PROMPTS[request])} prompt tokens, temperature 0.9, seed 5" in heading
        expected = Text()
        for turn in turns(worded, request):
            for piece, origin in zip(turn.texts, turn.origins, strict=True):
                expected.append(piece, style=styles[origin])
        assert text == expected


def with_texts(turn: Turn) -> Turn:
    """The table model has no words; give each token one."""
    values = {name: getattr(turn, name) for name in turn.__slots__}
    return Turn(**values | {"texts": tuple(f"<{token}>" for token in turn.emitted)})


def test_a_file_cannot_steer_the_terminal(tmp_path: Path) -> None:
    whole, path = lines(tmp_path), tmp_path / "evil.jsonl"
    evil = [json.loads(line) for line in whole]
    for line in evil:
        for turn in line.get("turns", ()):
            turn["texts"] = ["\x1b[2Jx\ty\n\r\x07" for _ in turn["texts"]]
    path.write_text("".join(json.dumps(line) + "\n" for line in evil))
    trace = read(path)
    for _, text in show.answers(trace, show.styles(summarise(trace))):
        assert set(text.plain) == set("[2Jx\ty\n")


def test_a_model_drafter_is_told_apart(tmp_path: Path) -> None:
    """Without a controller there is one drafter; its name is the one that the engine knows it by."""
    target = SpyModel()
    path = tmp_path / "t.jsonl"
    with Tracer(path) as tracer:
        Engine(target, draft=ModelDrafter(target, target.vocab_size), gamma=2, trace=tracer).generate([1, 2, 3])
    assert set(summarise(read(path)).drafters) == {"object"}
