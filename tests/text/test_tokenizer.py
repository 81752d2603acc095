"""Ids must be exactly those that the model was trained on: one wrong split and every answer is subtly worse."""

import json
import random
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from soothsay import hub
from soothsay.errors import FileCorrupt, PromptError, Unsupported
from soothsay.model.gguf import GGUFFile
from soothsay.text.template import ChatTemplate
from soothsay.text.tokenizer import Tokenizer

FIXTURES = Path(__file__).parent.parent / "fixtures" / "text"
ASCII_SPLIT = {
    "smollm": r"[0-9]|'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[^\sA-Za-z0-9]+|\s+(?=[0-9])|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]| ?[^\sA-Za-z0-9]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+",
}


def naive_bpe(metadata: dict[str, Any], text: str) -> list[int]:
    """Byte-pair encoding as its definition says it, for ASCII text: merge the best pair, one at a time."""
    tokens, merges = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.merges"]
    ids = []
    for word in re.findall(ASCII_SPLIT[metadata["tokenizer.ggml.pre"]], text):
        symbols = [character if "!" <= character <= "~" else chr(256 + ord(character)) for character in word]
        while pairs := [pair for pair in map(" ".join, pairwise(symbols)) if pair in merges]:
            left, right = min(pairs, key=merges.index).split(" ")
            place = next(i for i in range(len(symbols)) if symbols[i : i + 2] == [left, right])
            symbols[place : place + 2] = [left + right]
        ids += [tokens.index(symbol) for symbol in symbols]
    return ids


@pytest.mark.parametrize("pre", ["smollm", "qwen2"])
def test_ids_are_those_of_the_textbook_algorithm(metadata: dict[str, Any], pre: str) -> None:
    metadata["tokenizer.ggml.pre"] = pre
    tokenizer = Tokenizer.from_metadata(metadata)
    chance = random.Random(1)
    pieces = [
        "hello",
        " world",
        "he",
        "ll",
        "o",
        "'s",
        "'S",
        "'ll",
        "12",
        "1",
        " ",
        "  ",
        "    ",
        "\n",
        "\r\n",
        "!",
        "(",
    ]
    for _ in range(400):
        text = "".join(chance.choices(pieces, k=chance.randint(0, 8)))
        assert tokenizer.encode(text, special=False) == naive_bpe(metadata, text), repr(text)


def test_plain_text_comes_back_unchanged(metadata: dict[str, Any]) -> None:
    tokenizer = Tokenizer.from_metadata(metadata)
    for text in ["", "héllo wörld", "日本語 😀", "\x00\x01\x7f\r\n\t", "e\u0301 \u200d", "<|im_end|> <tool> [PAD0]"]:
        assert tokenizer.decode(tokenizer.encode(text, special=False)) == text


def test_control_tokens_in_plain_text_are_only_characters(metadata: dict[str, Any]) -> None:
    tokenizer = Tokenizer.from_metadata(metadata)
    end = metadata["tokenizer.ggml.tokens"].index("<|im_end|>")
    assert tokenizer.encode("he<|im_end|>", special=True)[1:] == [end]
    assert end not in tokenizer.encode("he<|im_end|>", special=False)
    assert tokenizer.decode(tokenizer.encode("he<|im_end|>", special=True)) == "he"


def test_user_defined_tokens_are_whole_either_way(metadata: dict[str, Any]) -> None:
    tokenizer = Tokenizer.from_metadata(metadata)
    tool = metadata["tokenizer.ggml.tokens"].index("<tool>")
    assert tokenizer.encode("<tool>", special=True) == tokenizer.encode("<tool>", special=False) == [tool]
    assert tokenizer.bytes_of(tool) == b"<tool>"


def test_qwen2_composes_characters_and_smollm_does_not(metadata: dict[str, Any]) -> None:
    composed, decomposed = "\u00e9", "e\u0301"
    plain = Tokenizer.from_metadata(metadata)
    assert plain.encode(composed, special=False) != plain.encode(decomposed, special=False)
    normalised = Tokenizer.from_metadata(metadata | {"tokenizer.ggml.pre": "qwen2"})
    assert normalised.encode(composed, special=False) == normalised.encode(decomposed, special=False)


def test_padding_prints_nothing(metadata: dict[str, Any]) -> None:
    tokenizer = Tokenizer.from_metadata(metadata)
    unused = metadata["tokenizer.ggml.tokens"].index("[PAD0]")
    assert [tokenizer.bytes_of(token) for token in (unused, tokenizer.vocab_size, tokenizer.vocab_size + 99)] == [
        b""
    ] * 3


def test_a_beginning_is_added_once_where_the_file_asks_for_it(metadata: dict[str, Any]) -> None:
    tokenizer = Tokenizer.from_metadata(metadata | {"tokenizer.ggml.add_bos_token": True})
    first = metadata["tokenizer.ggml.bos_token_id"]
    assert tokenizer.encode("he", special=True)[0] == first
    assert tokenizer.encode("<|endoftext|>he", special=True).count(first) == 1
    assert tokenizer.encode("", special=False) == [first]
    assert Tokenizer.from_metadata(metadata).encode("", special=True) == []


def test_ends_are_what_the_file_names_and_the_usual_control_tokens(metadata: dict[str, Any]) -> None:
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    end, text_end = tokens.index("<|im_end|>"), tokens.index("<|endoftext|>")
    assert Tokenizer.from_metadata(metadata).end_ids == {end, text_end}
    kinds[text_end] = 1  # a plain token that is only spelled so must not end an answer
    assert Tokenizer.from_metadata(metadata | {"tokenizer.ggml.eot_token_id": 7}).end_ids == {end, 7}


def test_numbers_may_come_as_arrays(metadata: dict[str, Any]) -> None:
    metadata["tokenizer.ggml.token_type"] = np.array(metadata["tokenizer.ggml.token_type"], np.int32)
    assert Tokenizer.from_metadata(metadata).encode("hello", special=False) == naive_bpe(metadata, "hello")


def test_a_lone_surrogate_is_refused(metadata: dict[str, Any]) -> None:
    with pytest.raises(PromptError, match="surrogate"):
        Tokenizer.from_metadata(metadata).encode("a\ud800", special=False)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("tokens", None, "lacks the list tokenizer.ggml.tokens"),
        ("merges", None, "lacks the list tokenizer.ggml.merges"),
        ("merges", "h e", "lacks the list"),
        ("token_type", [1, 1], "2 token types"),
        ("merges", ["h q q"], "'h q q'"),
        ("merges", ["he"], "'he'"),
        ("merges", ["h z"], "'h z'"),  # both parts are known, what they make is not
        ("merges", [1], "other than text"),
        ("pre", None, "tokenizer.ggml.pre"),
        ("model", 3, "tokenizer.ggml.model"),
        ("eos_token_id", 100_000, "legal is 0 to"),
        ("bos_token_id", -1, "legal is 0 to"),
    ],
)
def test_malformed_metadata_is_one_line(metadata: dict[str, Any], key: str, value: object, message: str) -> None:
    with pytest.raises(FileCorrupt, match=re.escape(message)) as caught:
        Tokenizer.from_metadata(metadata | {f"tokenizer.ggml.{key}": value})
    assert "\n" not in str(caught.value)


def test_a_token_listed_twice_is_refused(metadata: dict[str, Any]) -> None:
    metadata["tokenizer.ggml.tokens"][300 - 256] = "hello"
    with pytest.raises(FileCorrupt, match="'hello' twice"):
        Tokenizer.from_metadata(metadata)


@pytest.mark.parametrize(("key", "value", "known"), [("model", "llama", "gpt2"), ("pre", "tekken", "qwen2, smollm")])
def test_another_tokenizer_is_unsupported_by_name(metadata: dict[str, Any], key: str, value: str, known: str) -> None:
    with pytest.raises(Unsupported, match=f"'{value}'.*{known}"):
        Tokenizer.from_metadata(metadata | {f"tokenizer.ggml.{key}": value})


def renamed(metadata: dict[str, Any], place: int, token: str) -> Tokenizer:
    tokens = list(metadata["tokenizer.ggml.tokens"])
    tokens[place] = token
    return Tokenizer.from_metadata(metadata | {"tokenizer.ggml.tokens": tokens})


def longer(metadata: dict[str, Any], kind: int) -> Tokenizer:
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    more = {"tokenizer.ggml.tokens": [*tokens, "more"], "tokenizer.ggml.token_type": [*kinds, kind]}
    return Tokenizer.from_metadata(metadata | more)


def test_vocabularies_differ_only_where_an_id_means_something_else(metadata: dict[str, Any]) -> None:
    one = Tokenizer.from_metadata(metadata)
    size = one.vocab_size
    assert one.first_difference(Tokenizer.from_metadata(metadata)) is None
    assert one.first_difference(renamed(metadata, size - 1, "<unused7>")) is None
    assert one.first_difference(longer(metadata, kind=5)) is longer(metadata, kind=5).first_difference(one) is None
    assert one.first_difference(renamed(metadata, size - 5, "<|end|>")) == (
        f"id {size - 5} is '<|im_end|>' in one and '<|end|>' in the other"
    )
    spaces = renamed(metadata, 0, "Ġ" * 64)  # tokens too long to show in full must still be told apart
    assert spaces.first_difference(renamed(metadata, 0, "Ġ" * 65)) is not None
    assert one.first_difference(longer(metadata, kind=1)) == f"id {size} is unused in one and 'more' in the other"


RECORDED = [
    ("smollm2-135m", "smollm2"),
    ("qwen2.5-coder-0.5b", "qwen2.5-coder"),
    ("qwen2.5-coder-1.5b", "qwen2.5-coder"),
]


@pytest.mark.parametrize(("alias", "recorded"), RECORDED)
def test_ids_and_chats_are_those_of_transformers(alias: str, recorded: str) -> None:
    """500 varied strings and the file's own chat template, against what transformers answered (scripts/record_...)."""
    path = hub.cached(hub.MODELS[alias])
    if path is None:
        pytest.skip(f"{alias} is not in the cache folder {hub.cache_folder()}")
    metadata = GGUFFile.open(path).metadata
    strings, answers = load("strings"), load(recorded)
    tokenizer = Tokenizer.from_metadata(metadata)
    assert different(strings, [tokenizer.encode(text, special=True) for text in strings], answers["special"]) == []
    assert different(strings, [tokenizer.encode(text, special=False) for text in strings], answers["plain"]) == []
    template = ChatTemplate.from_metadata(metadata)
    for chat in answers["chats"]:
        assert template.render(chat["messages"], chat["add_generation_prompt"]) == chat["text"]


def load(name: str) -> Any:
    return json.loads((FIXTURES / f"{name}.json").read_text())


def different(strings: Sequence[str], ours: list[list[int]], theirs: list[list[int]]) -> list[str]:
    assert len(strings) == len(ours) == len(theirs) == 500
    return [text for text, mine, yours in zip(strings, ours, theirs, strict=True) if mine != yours]
