"""Grammars over a vocabulary: what may come next is decided by the language alone, forwards, backwards and in jumps."""

import json
import random
import re
from collections.abc import Sequence

import numpy as np
import pytest
from tokenizers.pre_tokenizers import ByteLevel

from soothsay import Grammar, OptionError
from soothsay.text.grammar import Grammars, Matcher
from soothsay.text.tokenizer import Tokenizer

END = 258
SPARE = 3


def words() -> Tokenizer:
    """One token for each byte, two longer ones, and the end of the text."""
    plain = sorted(ByteLevel.alphabet())
    return Tokenizer([*plain, "ab", '{"', "<|im_end|>"], [1] * 258 + [3], ["a b"], pre="smollm", end_ids=[END])


WORDS = words()


def start(grammar: Grammar) -> Matcher:
    return Grammars(WORDS, WORDS.vocab_size + SPARE).start(grammar)


def ids(text: str) -> list[int]:
    return WORDS.encode(text, special=False)


def next_bytes(matcher: Matcher, said: Sequence[int]) -> set[bytes]:
    return {WORDS.bytes_of(int(token)) or b"END" for token in np.flatnonzero(matcher.allowed(said))}


def test_only_what_the_language_has_may_come_next() -> None:
    matcher = start(Grammar.regex("a(b|c)+d?"))
    assert next_bytes(matcher, []) == {b"a", b"ab"}
    assert next_bytes(matcher, ids("a")) == {b"b", b"c"}
    assert next_bytes(matcher, ids("ac")) == {b"b", b"c", b"d", b"END"}
    assert next_bytes(matcher, ids("acd")) == {b"END"}


def test_an_answer_may_be_asked_about_in_any_order() -> None:
    """Drafts are asked about and then forgotten: each question has the answer of a fresh matcher."""
    rng, grammar = random.Random(3), Grammar.regex("(ab|ba){1,4}c")
    matcher = start(grammar)
    texts = ["", "a", "ab", "abb", "abba", "abbac", "ba", "bab", "baba", "bac", "abc", "abx", "x"]
    for _ in range(200):
        said = ids(rng.choice(texts))
        assert (matcher.allowed(said) == start(grammar).allowed(said)).all(), said
        if rng.random() < 0.3:
            other = ids(rng.choice(texts))
            assert matcher.forced(other) == start(grammar).forced(other), other


def test_beyond_the_language_nothing_is_forbidden_and_nothing_is_lost() -> None:
    matcher = start(Grammar.regex("abc"))
    assert matcher.allowed(ids("xy")).all()
    assert matcher.forced(ids("xy")) == ()
    assert next_bytes(matcher, ids("a")) == {b"b"}


def test_what_has_to_come_is_told() -> None:
    matcher = start(Grammar.regex("x(yes|no)!"))
    assert WORDS.decode(matcher.forced([])).startswith("x")
    assert matcher.forced(ids("x")) == ()
    assert WORDS.decode(matcher.forced(ids("xye"))) in ("s", "s!")


def test_padding_beyond_the_vocabulary_is_never_allowed() -> None:
    assert not start(Grammar.regex(".*")).allowed([])[WORDS.vocab_size :].any()


def walk(grammar: Grammar, seed: int, most: int = 400) -> str:
    """Draw any allowed token, again and again."""
    matcher, rng, said = start(grammar), random.Random(seed), list[int]()
    while len(said) < most:
        token = rng.choice(np.flatnonzero(matcher.allowed(said)).tolist())
        if token == END:
            return WORDS.decode(said)
        said.append(token)
    raise AssertionError(f"no end after {most} tokens")


@pytest.mark.parametrize("seed", range(5))
def test_random_walks_stay_in_the_language(seed: int) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 40}, "w": {"enum": ["ab", "ba"]}},
        "required": ["n", "w"],
        "additionalProperties": False,
    }
    found = json.loads(walk(Grammar.json_schema(schema), seed))
    assert set(found) == {"n", "w"}
    assert 3 <= found["n"] <= 40
    assert found["w"] in ("ab", "ba")
    assert walk(Grammar.choice(["ab", 'c"d', "ef"]), seed) in ("ab", 'c"d', "ef")
    assert re.fullmatch("[ab]{2,9}", walk(Grammar.regex("[ab]{2,9}"), seed))
    assert walk(Grammar.lark('start: "a" start "b" | "c"'), seed).count("a") >= 0


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        (lambda: Grammar.regex("("), "the regex cannot be followed"),
        (lambda: Grammar.lark("start: missing"), "the lark cannot be followed"),
        (lambda: Grammar.json_schema({"type": "colour"}), "the json schema cannot be followed"),
        (lambda: Grammar.json_schema({"$ref": "http://example.org/x"}), "the json schema cannot be followed"),
        (lambda: Grammar.json_schema("{"), "the schema is not JSON"),
        (lambda: Grammar.json_schema("3"), "the schema is a int"),
        (lambda: Grammar.choice([]), "a choice needs one text"),
        (lambda: Grammar.choice(["a", ""]), "none that is empty"),
        (lambda: Grammar.regex("a" * (1 << 21)), "characters; legal are up to"),
    ],
)  # fmt: skip
def test_what_is_no_grammar_is_refused_in_one_line(grammar: object, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        start(grammar())  # type: ignore[operator]
    assert "\n" not in str(caught.value)


def test_a_vocabulary_without_an_end_has_no_grammars() -> None:
    endless = Tokenizer(sorted(ByteLevel.alphabet()), [1] * 256, [], pre="smollm")
    with pytest.raises(OptionError, match="no end token"):
        Grammars(endless, 256).start(Grammar.json())


def test_a_kept_grammar_is_begun_anew() -> None:
    grammars, grammar = Grammars(WORDS, WORDS.vocab_size), Grammar.regex("abc")
    first = grammars.start(grammar)
    first.allowed(ids("ab"))
    assert next_bytes(grammars.start(grammar), []) == {b"ab"}
