"""The n-gram drafter finds the longest, most recent match, in linear time, and never looks at what it may not."""

import random
from typing import Any

import pytest

from soothsay.draft.base import Ask, Draft, Outlook, Reader
from soothsay.draft.ngram import REFRESH_DEPTH, Match, NgramDrafter, SuffixAutomaton
from soothsay.errors import OptionError
from soothsay.sampling import Law, Sampling


def no_chance(law: Law, position: int) -> int:
    raise AssertionError("the n-gram drafter draws nothing")


def ask(reader: Reader, context: str | list[int], gamma: int) -> Ask:
    tokens = [ord(letter) for letter in context] if isinstance(context, str) else context
    return Ask(reader, tokens, gamma, Sampling(), no_chance)


def draft(context: str, gamma: int, min_match: int = 1) -> str:
    drafter = NgramDrafter(min_match)
    (answer,) = drafter.propose([ask(drafter.open(), context, gamma)])
    assert answer.laws is None
    return "".join(map(chr, answer.tokens))


def slow_match(text: str) -> Match:
    """Try every length, longest first, and take the last occurrence that ends before the text does."""
    for length in range(len(text) - 1, 0, -1):
        start = text.rfind(text[-length:], 0, len(text) - 1)
        if start >= 0:
            return Match(length, start + length)
    return Match(0, 0)


@pytest.mark.parametrize("alphabet", ["ab", "abc", "abcdef"])
@pytest.mark.parametrize("seed", range(5))
def test_match_is_the_longest_and_then_the_most_recent(alphabet: str, seed: int) -> None:
    text = "".join(random.Random(seed).choices(alphabet, k=300))
    automaton = SuffixAutomaton()
    for size, letter in enumerate(text, start=1):
        automaton.append(ord(letter))
        expected = slow_match(text[:size])
        assert automaton.match.length == expected.length
        assert expected.length == 0 or automaton.match.end == expected.end


def test_match_in_text_made_of_repeated_phrases() -> None:
    """Phrases that recur in growing contexts split states again and again; that is where ends get lost."""
    rng = random.Random(7)
    phrases = ["".join(rng.choices("abcd", k=rng.randint(2, 9))) for _ in range(6)]
    text = "".join(rng.choice(phrases) for _ in range(100))
    automaton = SuffixAutomaton()
    for size, letter in enumerate(text, start=1):
        automaton.append(ord(letter))
        assert size == 1 or automaton.match.length == 0 or automaton.match == slow_match(text[:size])


def test_a_long_run_keeps_a_true_occurrence_of_its_short_suffixes() -> None:
    text = "a" * (3 * REFRESH_DEPTH) + "b"
    automaton = SuffixAutomaton()
    for letter in text:
        automaton.append(ord(letter))
    for extra in range(1, 6):
        automaton.append(ord("a"))
        length, end = automaton.match.length, automaton.match.end
        assert (length, text[end - length : end]) == (extra, "a" * extra)


class CountingList(list[Any]):
    """A list that counts how often it is touched."""

    touched = 0

    def __getitem__(self, index: Any) -> Any:
        CountingList.touched += 1
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        CountingList.touched += 1
        super().__setitem__(index, value)


def fibonacci_word(size: int) -> str:
    shorter, longer = "a", "ab"
    while len(longer) < size:
        shorter, longer = longer, longer + shorter
    return longer[:size]


@pytest.mark.parametrize(
    "text",
    [
        "a" * 4000,
        "ab" * 2000,
        "a" * 2000 + "b" + "a" * 1999,
        "a" + "b" * 3998 + "c",
        fibonacci_word(4000),
        "".join(random.Random(0).choices("ab", k=4000)),
    ],
    ids=["run", "period", "broken run", "late end", "fibonacci", "random"],
)
def test_time_is_linear_in_the_text(text: str) -> None:
    """Telling every repeated suffix of each occurrence takes 8 million steps on the run; a constant a token, 0.5."""
    automaton = SuffixAutomaton()
    for name in ("_next", "_link", "_length", "_latest"):
        setattr(automaton, name, CountingList(getattr(automaton, name)))
    CountingList.touched = 0
    for letter in text:
        automaton.append(ord(letter))
    assert CountingList.touched < (2 * REFRESH_DEPTH + 30) * len(text)


def test_draft_is_what_followed() -> None:
    assert draft("the cat sat. the c", 5) == "at sa"


def test_the_later_of_two_equal_matches_wins() -> None:
    assert draft("xy1 xy2 xy", 1) == "2"


def test_a_longer_match_beats_a_later_one() -> None:
    assert draft("wxy1 xy2 wxy", 1) == "1"


def test_periodic_text_drafts_the_full_gamma() -> None:
    """The match overlaps the end of the text: the draft goes on into itself instead of stopping after a period."""
    assert draft("abcabcab", 7) == "cabcabc"
    assert draft("aa", 5) == "aaaaa"


def test_short_matches_draft_nothing() -> None:
    assert draft("a1a", 3, min_match=2) == ""
    assert draft("ba1ba", 3, min_match=2) == "1ba"
    assert draft("abcdef", 3) == ""
    assert draft("", 3) == ""


def test_min_match_below_one_is_refused() -> None:
    with pytest.raises(OptionError, match="min_match is 0"):
        NgramDrafter(min_match=0)


class ReadOnce(list[int]):
    """A context that refuses to be read again where it has been read."""

    read_from = 0

    def __iter__(self) -> Any:
        raise AssertionError("the whole context was read")

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice) and index.stop is None:
            assert index.start >= self.read_from
            self.read_from = len(self)
        return super().__getitem__(index)


def test_only_new_tokens_are_read() -> None:
    drafter, rng = NgramDrafter(), random.Random(3)
    reader, context, copy = drafter.open(), ReadOnce(), list[int]()
    for _ in range(30):
        news = rng.choices(range(3), k=rng.randint(0, 6))
        context.extend(news)
        copy.extend(news)
        (stepwise,) = drafter.propose([ask(reader, context, 4)])
        fresh = drafter.open()
        (at_once,) = drafter.propose([ask(fresh, copy, 4)])
        drafter.close(fresh)
        assert stepwise == at_once


def test_readers_do_not_mix_and_gamma_zero_draws_nothing() -> None:
    drafter = NgramDrafter(min_match=1)
    first, second = drafter.open(), drafter.open()
    drafts = drafter.propose([ask(first, "abcab", 2), ask(second, "xyxyx", 3), ask(first, "abcab", 0)])
    assert drafts == [Draft((ord("c"), ord("a"))), Draft(tuple(map(ord, "yxy"))), Draft()]


@pytest.mark.parametrize(("text", "length"), [("xabcab", 2), ("abcabca", 4), ("abca", None), ("abc", None), ("", None)])
def test_the_outlook_is_the_length_of_the_match(text: str, length: int | None) -> None:
    drafter = NgramDrafter()
    reader = drafter.open()
    outlook = drafter.outlook(reader, [*map(ord, text)])
    assert outlook == (None if length is None else Outlook(lag_tokens=0, match=length))


def test_an_outlook_before_each_draft_changes_none() -> None:
    drafter, rng, context = NgramDrafter(), random.Random(3), ReadOnce()
    watched, plain = drafter.open(), drafter.open()
    for _ in range(30):
        context.extend(rng.choices(range(3), k=rng.randint(0, 6)))
        context.read_from = 0
        outlook = drafter.outlook(watched, context)
        context.read_from = 0
        first, second = drafter.propose([ask(watched, context, 4), ask(plain, list(context.copy()), 4)])
        assert first == second
        assert (outlook is None) == (first == Draft())
