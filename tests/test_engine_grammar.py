"""Answers in a grammar: valid, and the same tokens whoever drafts, alone and in a batch, at any temperature."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from soothsay import Engine, Grammar, OptionError, Sampling
from soothsay.draft.model import ModelDrafter
from soothsay.load import Loaded, Loader
from soothsay.model.base import Feed
from soothsay.model.table import TableModel
from soothsay.sampling import Adjustment, law
from soothsay.text.grammar import Grammars
from soothsay.verify.coupled import draw_coupled
from soothsay.verify.noise import Noise
from tests.checkpoints import Kind, Recipe, Words, write_checkpoint

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "kind": {"enum": ["cat", "dog"]},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}


def is_pet(text: str) -> bool:
    found = json.loads(text)
    return set(found) == {"name", "age", "kind"} and 0 <= found["age"] <= 130 and found["kind"] in ("cat", "dog")


GRAMMARS: dict[str, tuple[Grammar, Callable[[str], object]]] = {
    "schema": (Grammar.json_schema(SCHEMA), is_pet),
    "regex": (Grammar.regex("(ab|ba){1,5}!"), re.compile("(ab|ba){1,5}!").fullmatch),
    "choice": (Grammar.choice(["abc", "abd", "xyz"]), {"abc", "abd", "xyz"}.__contains__),
    "lark": (
        Grammar.lark('start: /[ab]{1,3}/ "(" word ")" word\nword: "b" | "ab"'),
        re.compile(r".{1,3}\(a?b\)a?b").fullmatch,
    ),
}
PROMPTS = ["abab", "ba", '{"name": "ab", "age": 3, "kind": "cat"}']


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    recipe = Recipe("llama", Kind.Q8_0, vocab_size=264, max_length=256)
    return write_checkpoint(tmp_path_factory.mktemp("grammar") / "tiny.gguf", recipe, Words())


@pytest.fixture(scope="module")
def loaded(path: Path) -> Loaded:
    return Loader(1).target(path)


def by_definition(loaded: Loaded, prompt: str, sampling: Sampling) -> tuple[int, ...]:
    """One token after the other; no engine, and a grammar that is begun anew for each."""
    model, tokenizer = loaded.model, loaded.tokenizer
    context, noise = tokenizer.encode(prompt, special=True), Noise(sampling.seed or 0)
    start, slot = len(context), model.open()
    while len(context) < start + sampling.max_tokens and not tokenizer.end_ids.intersection(context[start:]):
        [rows] = model.forward([Feed(slot, context[model.length(slot) :], 1)])
        assert sampling.grammar is not None
        constraint = Grammars(tokenizer, model.vocab_size).start(sampling.grammar)
        adjust = Adjustment.of(sampling, context, start, model.vocab_size, tokenizer.end_ids, constraint)
        assert adjust is not None
        context.append(draw_coupled(law(adjust(rows[0]), sampling), noise, len(context)))
    model.close(slot)
    return tuple(context[start:])


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.5])
@pytest.mark.parametrize("name", GRAMMARS)
def test_the_same_words_whoever_drafts(loaded: Loaded, path: Path, name: str, temperature: float) -> None:
    grammar, valid = GRAMMARS[name]
    sampling = Sampling(temperature=temperature, seed=5, max_tokens=160, grammar=grammar)
    wanted = [by_definition(loaded, prompt, sampling) for prompt in PROMPTS]
    assert all(valid(loaded.tokenizer.decode(tokens)) for tokens in wanted)
    for draft, gamma in (("none", 0), ("ngram", 4), ("model", 3), ("ngram", "auto")):
        drafter = ModelDrafter(loaded.model, loaded.model.vocab_size, top_k=4) if draft == "model" else draft
        engine = Engine(path, draft=drafter, gamma=gamma, threads=1)  # type: ignore[arg-type]
        answers = engine.generate(PROMPTS, sampling, raw=True)
        assert [answer.tokens for answer in answers] == wanted, (draft, gamma)
        assert [engine.generate(prompt, sampling, raw=True).tokens for prompt in PROMPTS] == wanted
        assert {answer.finish_reason for answer in answers} == {"end"}
        engine.check()


@pytest.mark.parametrize("rule", ["block", "token"])
@pytest.mark.parametrize("name", GRAMMARS)
def test_other_rules_stay_in_the_language_too(loaded: Loaded, path: Path, name: str, rule: str) -> None:
    grammar, valid = GRAMMARS[name]
    drafter = ModelDrafter(loaded.model, loaded.model.vocab_size, top_k=4)
    engine = Engine(path, draft=drafter, gamma=3, verify=rule, threads=1)
    sampling = Sampling(temperature=1.2, seed=1, max_tokens=160, grammar=grammar)
    answers = engine.samples(PROMPTS[0], 12, sampling, raw=True)
    assert all(valid(answer.text) for answer in answers), [answer.text for answer in answers]
    assert sum(answer.stats.drafted for answer in answers) > 0


def test_tokens_that_must_come_are_free_drafts(path: Path) -> None:
    sampling = Sampling(max_tokens=80, grammar=Grammar.choice(["a long text that is the only one"]))
    answer = Engine(path, draft="none", threads=1).generate("x", sampling, raw=True)
    assert answer.text == "a long text that is the only one"
    assert answer.stats.accepted >= len(answer.tokens) - 3
    assert answer.stats.steps <= 3


def test_a_grammar_needs_words() -> None:
    engine = Engine(TableModel(6, seed=1), draft="none")
    with pytest.raises(OptionError, match="no tokenizer"):
        engine.generate([1, 2], Sampling(grammar=Grammar.json()))


def test_a_grammar_without_a_place_to_end_is_an_error_of_its_request_alone(path: Path) -> None:
    engine = Engine(path, draft="none", threads=1)
    banned = Sampling(max_tokens=9, grammar=Grammar.choice(["ab"]), banned_tokens=tuple(range(257)))
    with pytest.raises(OptionError, match="leave no token"):
        engine.generate("x", banned, raw=True)
    engine.check()
