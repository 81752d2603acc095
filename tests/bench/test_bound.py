"""What drafted steps could have saved: the formula of the literature, where it applies, and its like in a batch."""

from collections.abc import Sequence

import pytest

from soothsay.bench.bound import QuietPasses, bound, widths
from soothsay.record import Drafted, Record
from soothsay.verify.theory import speedup
from tests.engines import SpyModel

PLAIN = 0.03


def step(rows: int, target_seconds: float, *drafts: Drafted) -> Record:
    return Record(rows, drafts, draft_seconds=9.0, target_seconds=target_seconds, verify_seconds=9.0)


def plain(tokens: int) -> list[Record]:
    return [step(1, PLAIN, Drafted(None, 0, 0, 1))] * tokens


@pytest.mark.parametrize("gamma", [1, 3])
def test_with_all_accepted_it_is_the_formula(gamma: int) -> None:
    """E[tokens] / (gamma c + v), at acceptance 1; overheads are in the records and must not be in the bound."""
    c, v, steps = 0.25, 1.3, 5
    drafted = [step(gamma + 1, v * PLAIN, Drafted("model", gamma, gamma, gamma + 1))] * steps
    draft_seconds = steps * gamma * c * PLAIN
    assert bound(plain(steps * (gamma + 1)), drafted, draft_seconds) == pytest.approx(speedup(1.0, gamma, c, v))


def test_steps_count_with_their_own_gamma() -> None:
    drafted = [
        step(4, 1.4 * PLAIN, Drafted("model", 3, 1, 2)),
        step(1, PLAIN, Drafted(None, 0, 0, 1)),
        step(2, 1.1 * PLAIN, Drafted("ngram", 1, 1, 2)),
    ]
    assert bound(plain(5), drafted, 3 * 0.2 * PLAIN) == pytest.approx(5 / (1.4 + 1 + 1.1 + 3 * 0.2))


def test_without_steps_there_is_no_bound() -> None:
    assert bound([], [], 0.0) is None


def test_a_batch_drafts_in_passes_that_narrow() -> None:
    """Three drafts of 3, 1 and 3 tokens take three passes, over 3, 2 and 2 sequences; others' drafts none."""
    drafts = [
        Drafted("model", 3, 0, 1),
        Drafted("model", 1, 0, 1),
        Drafted("ngram", 8, 8, 9),
        Drafted("model", 3, 3, 4),
    ]
    assert widths(step(19, 1.0, *drafts), "model") == [3, 2, 2]
    assert widths(step(1, 1.0, Drafted(None, 0, 0, 1)), "model") == []


def test_quiet_passes_are_one_token_wide_and_leave_the_cache_as_it_was() -> None:
    model = SpyModel(max_length=40)
    quiet = QuietPasses(model)
    assert set(quiet.seconds({1, 3})) == {1, 3}
    fed: Sequence[Sequence[int]] = [[len(feed.tokens) for feed in feeds] for feeds in model.passes]
    assert [lengths for lengths in fed if max(lengths) == 1] == [[1]] * 3 + [[1, 1, 1]] * 3
    assert {len(tokens) for tokens in model._held.values()} == {39}
    assert quiet.seconds(set()) == {}
