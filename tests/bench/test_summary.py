"""From answers to figures, on answers whose figures can be had by hand."""

import pytest

from soothsay.bench.prompts import Prompt
from soothsay.bench.run import Pair, Side
from soothsay.bench.summary import by_category, summarise, time_share
from soothsay.completion import Completion, Stats
from soothsay.record import Drafted, Record, by_position


def answer(tokens: int, seconds: float, first: float = 1.0, drafted: int = 0, accepted: int = 0) -> Completion:
    steps = tokens - accepted
    stats = Stats(9, 0, tokens, steps, drafted, accepted, first + seconds, first, 0.0, 0.0, 0.0)
    return Completion("", tuple(range(tokens)), "length", 7, stats)


def steps(count: int, drafted: int = 0, accepted: int = 0) -> tuple[Record, ...]:
    drafts = (Drafted("ngram" if drafted else None, drafted, accepted, accepted + 1),)
    return (Record(1 + drafted, drafts, draft_seconds=0.01, target_seconds=0.1, verify_seconds=0.02),) * count


def pair(name: str, speedup: float, category: str = "a", *, tokens: int = 21) -> Pair:
    """Twenty tokens after the first: one a plain step, or two a step in 4 seconds, by drafts of two."""
    plain = Side((answer(tokens, 4.0 * speedup),), steps(tokens - 1))
    drafted = Side((answer(tokens, 4.0, drafted=20, accepted=10),), steps(10, drafted=2, accepted=1))
    return Pair((Prompt(name, category, ""),), plain, drafted, draft_seconds=0.0)


def test_a_prompt_counts_once_however_often_it_was_asked() -> None:
    """Rounds 1, 9 and 2 of one prompt are a 2; the median over prompts is then 2.5, not that of five pairs."""
    found = summarise([pair("x", 1.0), pair("y", 3.0), pair("x", 9.0), pair("x", 2.0), pair("y", 3.0)])
    assert (found.prompts, found.speedup) == (2, 2.5)
    assert found.speedup_interval == (2.0, 3.0)


def test_paces_and_rates() -> None:
    found = summarise([pair("x", 2.0)])
    assert (found.plain_tokens_per_second, found.tokens_per_second) == (20 / 8, 20 / 4)
    assert found.tokens_per_step == 21 / 11
    assert (found.acceptance_rate, found.acceptance_by_position) == (0.5, (1.0, 0.0))
    assert found.speedup_interval is None
    assert found.bound_share == pytest.approx(2.0 / (20 * 0.1 / (10 * 0.1)))


def test_positions_are_counted_apart() -> None:
    drafts = [Drafted("m", 3, 2, 3), Drafted(None, 0, 0, 1), Drafted("m", 1, 1, 2), Drafted("m", 2, 0, 1)]
    assert by_position(drafts) == (2 / 3, 1 / 2, 0.0)
    assert by_position(drafts[1:2]) == ()


def test_categories_are_summed_apart() -> None:
    found = by_category([pair("x", 2.0, "b"), pair("y", 4.0, "a"), pair("z", 6.0, "b")])
    assert [(name, one.prompts, one.speedup) for name, one in found.items()] == [("b", 2, 4.0), ("a", 1, 4.0)]


def test_time_is_split_from_the_first_token_to_the_last() -> None:
    found = time_share([pair("x", 2.0)])
    wanted = {"draft": 0.1 / 4, "verify": 1.0 / 4, "sample": 0.2 / 4, "rest": 2.7 / 4}
    assert found == pytest.approx(wanted)


def test_a_batch_runs_from_the_first_token_of_any_to_the_last_of_all() -> None:
    side = Side((answer(5, 2.0, first=1.0), answer(9, 4.0, first=1.5)), steps(10))
    assert side.seconds == 5.5 - 1.0


def test_an_answer_of_one_token_has_no_speedup() -> None:
    """Unknown is not zero, and not a crash."""
    one = Side((answer(1, 0.0),), ())
    found = summarise([Pair((Prompt("x", "a", ""),), one, one, 0.0)])
    assert (found.speedup, found.bound_share, found.tokens_per_second) == (None, None, None)
    assert found.identical
    assert set(time_share([Pair((Prompt("x", "a", ""),), one, one, 0.0)]).values()) == {None}


def test_one_other_token_is_a_difference() -> None:
    other = pair("x", 2.0, tokens=21)
    plain, drafted = Side((answer(20, 1.0),), ()), Side((answer(21, 1.0),), ())
    assert not summarise([other, Pair(other.batch, plain, drafted, 0.0)]).identical
