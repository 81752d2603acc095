"""What `soothsay generate` hands to the engine, what it prints and where, and how it fails."""

import inspect
import json
import math
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from soothsay import Completion, Grammar, Piece, Stats, TokenLogprob
from soothsay.cli import app
from soothsay.cli.generate import generate
from soothsay.errors import ContextFull, ModelNotFound, OptionError
from soothsay.sampling import Sampling

STATS = Stats(
    prompt_tokens=5,
    cached_tokens=0,
    tokens=3,
    steps=2,
    drafted=6,
    accepted=1,
    seconds=0.25,
    first_token_seconds=0.125,
    draft_seconds=0.0,
    target_seconds=0.2,
    verify_seconds=0.0,
)
DONE = Completion("a b\tc", (7, 8, 9), "stop", 11, STATS)
PIECES = (Piece("a", 7, "model"), Piece(" b\t", 8, "draft"), Piece("c", 9, "model", DONE))


class FakeEngine:
    """Remembers what it was asked and answers `a b<tab>c`."""

    made: dict[str, Any]
    asked: dict[str, Any]
    failure: BaseException | None = None
    pieces: tuple[Piece, ...] = PIECES

    def __init__(self, model: str, **options: Any) -> None:
        FakeEngine.made = {"model": model, **options}

    def stream(self, prompt: str, sampling: Sampling, **options: Any) -> Iterator[Any]:
        FakeEngine.asked = {"prompt": prompt, "sampling": sampling, **options}
        for piece in self.pieces:
            yield piece
            if FakeEngine.failure is not None:
                raise FakeEngine.failure

    def samples(self, prompt: str, count: int, sampling: Sampling, **options: Any) -> list[Completion]:
        answers = [replace(DONE, sample=sampling.sample + place) for place in range(count)]
        if FakeEngine.failure is not None:
            raise FakeEngine.failure
        return answers


@pytest.fixture(autouse=True)
def fake_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("soothsay.Engine", FakeEngine)
    monkeypatch.setattr(FakeEngine, "failure", None)


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["generate", *arguments], input=stdin)


def test_defaults() -> None:
    assert run("hi").exit_code == 0
    assert FakeEngine.made == {
        "model": "smollm2-135m",
        "draft": "auto",
        "gamma": "auto",
        "verify": "coupled",
        "threads": None,
        "trace": None,
    }
    assert FakeEngine.asked == {"prompt": "hi", "sampling": Sampling(), "raw": False, "system": None}


def test_defaults_are_those_of_sampling() -> None:
    """The help shows the command line's own defaults; they must not drift from the library's."""
    parameters = inspect.signature(generate).parameters
    for option in fields(Sampling):
        if option.name == "processors":
            continue  # code has no place on a command line
        assert (parameters[option.name].default or None) == (getattr(Sampling(), option.name) or None), option.name


def test_every_option_arrives() -> None:
    options = (
        "--model m.gguf --draft d.gguf --gamma 7 --max-tokens 9 --temperature 0.5 --top-k 3 --top-p 0.9 --min-p 0.1"
    )
    more = "--seed 5 --stop A --stop B --raw --system S --verify block --threads 3"
    assert run("hi", *options.split(), *more.split()).exit_code == 0
    made = {"model": "m.gguf", "draft": "d.gguf", "gamma": 7, "verify": "block", "threads": 3}
    assert FakeEngine.made == made | {"trace": None}
    assert FakeEngine.asked == {
        "prompt": "hi",
        "sampling": Sampling(0.5, 3, 0.9, 0.1, 5, 9, ("A", "B")),
        "raw": True,
        "system": "S",
    }


def test_every_option_of_the_sampler_arrives() -> None:
    options = "--sample 2 --stop-ids 4,5 --ignore-eos --min-tokens 3 --repetition-penalty 1.1 --frequency-penalty 0.2"
    more = "--presence-penalty -0.3 --logit-bias 7=-1.5 --logit-bias 8=-inf --banned-tokens 1 --allowed-tokens 2,7"
    assert (
        run("hi", "--json", *options.split(), *more.split(), "--logprobs", "2", "--logprobs-of", "sampler").exit_code
        == 0
    )
    assert FakeEngine.asked["sampling"] == Sampling(
        sample=2,
        stop_ids=(4, 5),
        ignore_eos=True,
        min_tokens=3,
        repetition_penalty=1.1,
        frequency_penalty=0.2,
        presence_penalty=-0.3,
        logit_bias={7: -1.5, 8: -math.inf},
        banned_tokens=(1,),
        allowed_tokens=(2, 7),
        logprobs=2,
        logprobs_of="sampler",
    )


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--logit-bias=7", "logit-bias is '7'; it must be a token id and a number"),
        ("--logit-bias=a=1", "logit-bias is 'a=1'"),
        ("--banned-tokens=1,x", "banned-tokens has 'x'"),
        ("--allowed-tokens=", "allowed-tokens has ''"),
        ("--logprobs=2", "give --json too"),
        ("--logprobs-of=both", "it must be 'model' or 'sampler'"),
    ],
)
def test_a_wrong_option_of_the_sampler_is_an_error_of_one_line(option: str, said: str) -> None:
    result = run("hi", option)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert said in result.stderr


def test_several_answers_each_have_their_figures_and_one_object_a_line() -> None:
    result = run("hi", "-n", "2", "--sample", "5")
    assert result.stdout == "a b\tc\na b\tc\n"
    assert [line[:8] for line in result.stderr.splitlines()] == ["[1 of 2]", "[2 of 2]"]
    reports = [json.loads(line) for line in run("hi", "--n", "2", "--json").stdout.splitlines()]
    assert [(report["sample"], report["text"]) for report in reports] == [(0, "a b\tc"), (1, "a b\tc")]


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_several_answers_are_shown_before_a_full_context_is_an_error(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setattr(FakeEngine, "failure", ContextFull("the context is full", (DONE, DONE)))
    result = run("hi", "-n", "2", *options)
    assert (result.exit_code, len(result.stdout.splitlines())) == (1, 2)
    assert result.stderr.splitlines()[-1] == "soothsay: error: the context is full"


def test_log_probabilities_are_in_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    done = replace(DONE, logprobs=(TokenLogprob(7, -0.5, ((7, -0.5), (3, -1.5))),))
    monkeypatch.setattr(FakeEngine, "pieces", (Piece("a", 7, "model", done),))
    report = json.loads(run("hi", "--json", "--logprobs", "2").stdout)
    assert report["logprobs"] == [{"token": 7, "logprob": -0.5, "top": [[7, -0.5], [3, -1.5]]}]


def test_gamma_may_be_auto() -> None:
    report = json.loads(run("hi", "--json", "--gamma", "auto", "--draft", "self").stdout)
    assert (FakeEngine.made["gamma"], FakeEngine.made["draft"]) == ("auto", "self")
    assert (report["gamma"], report["draft"]) == ("auto", "self")


@pytest.mark.parametrize("gamma", ["x", "-1", "1.5", "²", "", "AUTO"])
def test_any_other_gamma_is_an_error_of_one_line(gamma: str) -> None:
    result = run("hi", f"--gamma={gamma}")
    assert result.exit_code != 0
    assert result.stderr.endswith(f"gamma is {gamma!r}; it must be auto, or an integer, 0 (no drafts) or more\n")
    assert (result.stdout, result.stderr.count("\n")) == ("", 1)


def test_text_goes_out_and_figures_go_to_standard_error() -> None:
    """A tab must come out as a tab, and no colour code may reach a file."""
    result = run("hi")
    assert result.stdout == "a b\tc\n"
    assert result.stderr == (
        "3 tokens in 0.25 s, first after 0.12 s, then 16.0 tokens/s, 1.50 tokens a step, "
        "1 of 6 drafted tokens accepted, seed 11\n"
    )


def test_figures_that_are_unknown_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """One token has no pace, and without drafts there is no rate: neither is zero, and neither is a crash."""
    stats = replace(STATS, tokens=1, steps=1, drafted=0, accepted=0, seconds=0.125)
    last = Piece("a", 7, "model", Completion("a", (7,), "length", 11, stats))
    monkeypatch.setattr(FakeEngine, "pieces", (last,))
    assert run("hi").stderr == "1 tokens in 0.12 s, first after 0.12 s, 1.00 tokens a step, seed 11\n"
    report = json.loads(run("hi", "--json").stdout)
    assert (report["tokens_per_second"], report["acceptance_rate"]) == (None, None)


def test_json_is_one_object_on_the_last_line() -> None:
    result = run("hi", "--json", "--gamma", "3")
    assert json.loads(result.stdout.splitlines()[-1]) == {
        "text": "a b\tc",
        "token_ids": [7, 8, 9],
        "tokens": 3,
        "finish_reason": "stop",
        "seed": 11,
        "sample": 0,
        "seconds": 0.25,
        "tokens_per_second": 16.0,
        "first_token_seconds": 0.125,
        "steps": 2,
        "drafted": 6,
        "accepted": 1,
        "tokens_per_step": 1.5,
        "acceptance_rate": 1 / 6,
        "model": "smollm2-135m",
        "draft": "auto",
        "gamma": 3,
        "verify": "coupled",
    }


def test_prompt_from_standard_input() -> None:
    """`echo hi | soothsay generate` asks what `soothsay generate hi` asks; raw text keeps its last newline."""
    assert run(stdin="hé\n").exit_code == 0
    assert FakeEngine.asked["prompt"] == "hé"
    assert run("--raw", stdin="def f():\n").exit_code == 0
    assert FakeEngine.asked["prompt"] == "def f():\n"


def test_prompt_that_is_not_utf8_is_an_error_of_one_line() -> None:
    result = run(stdin=b"ab\xff")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "soothsay: error: standard input has byte 0xff at 2; it must be UTF-8\n"
    result = run("ab\udcff")
    assert (result.exit_code, result.stderr) == (
        1,
        "soothsay: error: the prompt has byte 0xff at 2; it must be UTF-8\n",
    )


@pytest.mark.parametrize("arguments", [[], [""]])
def test_empty_prompt(arguments: list[str]) -> None:
    result = run(*arguments, stdin="")
    assert result.exit_code == 1
    assert "is empty; a prompt needs at least one character" in result.stderr


@pytest.mark.parametrize(("error", "status"), [(ModelNotFound("no such"), 1), (OptionError("no such"), 2)])
def test_errors_are_one_line_and_a_status(error: Exception, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeEngine, "failure", error)
    result = run("hi")
    assert (result.exit_code, result.stderr) == (status, "soothsay: error: no such\n")


def test_wrong_options_are_usage_errors_before_a_model_is_loaded() -> None:
    for wrong in (["--top-p", "2"], ["--gama", "3"], ["--seed", "x"]):
        FakeEngine.made = {}
        result = run("hi", *wrong)
        assert (result.exit_code, result.stdout, FakeEngine.made) == (2, "", {})


def test_interrupt_keeps_the_text_and_gives_130(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeEngine, "failure", KeyboardInterrupt())
    result = run("hi")
    assert (result.exit_code, result.stdout) == (130, "a\n")


def test_accepted_drafts_have_another_shade_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "a\x1b[32m b\t\x1b[0mc\n" in run("hi").stdout


def test_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("soothsay.cli.version", lambda name: f"9 of {name}")
    assert CliRunner().invoke(app, ["--version"]).stdout == "soothsay 9 of soothsay\n"


@pytest.mark.parametrize("arguments", [("--json",), ()])
def test_a_full_context_loses_nothing(monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]) -> None:
    """The error comes after the last piece; the answer and its figures must have been printed by then."""

    def full(*_: Any, **__: Any) -> Iterator[Piece]:
        yield from PIECES
        raise ContextFull("an answer reached the model's context of 8 tokens")

    monkeypatch.setattr(FakeEngine, "stream", full)
    result = run("hi", *arguments)
    assert result.exit_code == 1
    assert "soothsay: error: an answer reached" in result.stderr
    shown = json.loads(result.stdout)["text"] if arguments else result.stdout.rstrip("\n")
    assert shown == "a b\tc"
    assert arguments or "3 tokens in 0.25 s" in result.stderr


def test_grammars_arrive(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"type": "object"}')
    (tmp_path / "g.lark").write_text('start: "a"')
    for options, grammar in (
        (["--json-schema", str(tmp_path / "s.json")], Grammar.json()),
        (["--regex", "[ab]+"], Grammar.regex("[ab]+")),
        (["--grammar", str(tmp_path / "g.lark")], Grammar.lark('start: "a"')),
    ):
        assert run("hi", *options).exit_code == 0
        assert FakeEngine.asked["sampling"].grammar == grammar


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--json-schema", "nowhere.json"], "json-schema cannot be read from 'nowhere.json': No such file"),
        (["--grammar", "nowhere.lark"], "grammar cannot be read from 'nowhere.lark'"),
        (["--regex", "a", "--json-schema", "/dev/null"], "the schema is not JSON"),
        (["--regex", "a", "--grammar", "/dev/null"], "exclude each other"),
    ],
)
def test_grammars_that_cannot_be_are_refused(options: list[str], said: str) -> None:
    result = run("hi", *options)
    assert result.exit_code == 2
    assert said in result.stderr
