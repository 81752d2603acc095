"""Text comes out whole: no half characters, no half stop strings, and the same whatever the pieces."""

import random
from typing import Any

import pytest

from soothsay.errors import OptionError
from soothsay.text.detokenizer import Detokenizer
from soothsay.text.stop import StopStrings
from soothsay.text.stream import TextStream
from soothsay.text.tokenizer import Tokenizer


@pytest.fixture
def tokenizer(metadata: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_metadata(metadata)


def test_half_a_character_is_never_shown(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("é😀", special=False)
    detokenizer = Detokenizer(tokenizer)
    shown = [detokenizer.push(token) for token in ids]
    assert len(ids) == 4  # é by its merge; the emoji's first two bytes are a token, each of the others one
    assert shown == ["é", "", "", "😀"]


def test_pieces_give_the_text_of_the_whole_whatever_the_bytes(tokenizer: Tokenizer) -> None:
    chance = random.Random(2)
    for _ in range(2000):
        ids = chance.choices(range(tokenizer.vocab_size + 2), k=chance.randint(0, 12))
        detokenizer = Detokenizer(tokenizer)
        assert "".join(map(detokenizer.push, ids)) + detokenizer.flush() == tokenizer.decode(ids)


def first_to_end(text: str, stops: list[str]) -> int | None:
    """Where to cut, by the definition: grow the text until it ends with a stop string."""
    for end in range(len(text) + 1):
        if found := [stop for stop in stops if text[:end].endswith(stop)]:
            return end - max(map(len, found))
    return None


def test_stop_strings_do_what_the_definition_says_whatever_the_pieces() -> None:
    chance = random.Random(3)
    for _ in range(5000):
        stops = ["".join(chance.choices("ab", k=chance.randint(1, 4))) for _ in range(chance.randint(0, 3))]
        pieces = ["".join(chance.choices("abc", k=chance.randint(0, 3))) for _ in range(chance.randint(0, 8))]
        whole, watch = "".join(pieces), StopStrings(stops)
        shown = "".join(map(watch.push, pieces)) + watch.flush()
        cut = first_to_end(whole, stops)
        assert (shown, watch.stopped) == (whole[:cut], cut is not None), (stops, pieces)


def test_nothing_more_is_held_back_than_could_begin_a_stop_string() -> None:
    watch = StopStrings(["\n\nUser:"])
    assert [watch.push(piece) for piece in ("one\n", "\nUse", "ful\n", "\nUser: two")] == ["one", "", "\n\nUseful", ""]
    assert watch.stopped
    assert watch.push("more") + watch.flush() == ""


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(OptionError, match="empty"):
        StopStrings(["x", ""])


def answer(tokenizer: Tokenizer, ids: list[int], **options: Any) -> tuple[str, int, str | None]:
    """The text, how many tokens were taken, and why it ended."""
    stream, text = TextStream(tokenizer, **options), ""
    for taken, token in enumerate(ids, start=1):
        text += stream.push(token)
        if stream.finish_reason is not None:
            return text, taken, stream.finish_reason
    return text + stream.flush(), len(ids), None


def test_the_token_at_which_an_answer_ends(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("hello world 12<|im_end|>hello", special=True)
    pieces = [tokenizer.decode([token]) for token in ids]
    assert pieces == ["hello", " wor", "l", "d", " ", "1", "2", "", "hello"]
    assert answer(tokenizer, ids) == ("hello world 12", 8, "end")
    assert answer(tokenizer, ids, stops=["rld"]) == ("hello wo", 4, "stop")
    assert answer(tokenizer, ids, stops=["world!"], max_tokens=2) == ("hello wor", 2, "length")
    assert answer(tokenizer, ids[:2], stops=["world!"]) == ("hello wor", 2, None)


def test_an_end_token_comes_before_max_tokens_and_a_stop_string_too(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("hello<|im_end|>", special=True)
    assert answer(tokenizer, ids, max_tokens=len(ids))[2] == "end"
    assert answer(tokenizer, ids, max_tokens=1, stops=["lo"]) == ("hel", 1, "stop")


def test_an_answer_cut_inside_a_character_ends_with_the_replacement(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("he😀", special=False)
    assert answer(tokenizer, ids, max_tokens=len(ids) - 1) == ("he\ufffd", len(ids) - 1, "length")


def test_max_tokens_below_one_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(OptionError, match="legal is 1"):
        TextStream(tokenizer, max_tokens=0)


def test_a_stop_token_ends_the_text_and_prints_nothing(tokenizer: Tokenizer) -> None:
    first, second = tokenizer.encode("a", special=False) + tokenizer.encode("b", special=False)
    stream = TextStream(tokenizer, stop_ids=(second,))
    assert (stream.push(first), stream.push(second), stream.finish_reason) == ("a", "", "stop")
    assert stream.ending_ids == tokenizer.end_ids | {second}


def test_end_tokens_may_be_passed_over(tokenizer: Tokenizer) -> None:
    (token,) = tokenizer.encode("a", special=False)
    end = next(iter(tokenizer.end_ids))
    stream = TextStream(tokenizer, max_tokens=3, ignore_ends=True)
    assert [stream.push(one) for one in (token, end, token)] == ["a", "", "a"]
    assert (stream.finish_reason, stream.ending_ids) == ("length", frozenset())
