"""What is learned of acceptance: from whom, for whom, and for how long."""

from collections.abc import Sequence

import pytest

from soothsay.schedule.survival import Survival


def survival() -> Survival:
    return Survival({"model": 0.8, "ngram": 0.4})


def fare(learner: Survival, request: str, accepted: int, confidences: Sequence[float] = (), times: int = 30) -> None:
    """Drafts of three tokens, each with so many accepted."""
    for _ in range(times):
        learner.observe(request, "model", 0, 3, accepted, confidences)


def test_before_anything_was_seen_there_are_priors() -> None:
    learner = survival()
    assert learner.acceptance("a", "model", 0) == pytest.approx(0.8)
    assert [learner.acceptance("a", "ngram", match) for match in (2, 8, 64)] == pytest.approx([0.4, 0.7, 1 - 1.2 / 7])
    assert learner.chances("model") == pytest.approx([0.05 + place / 10 for place in range(10)])


def test_a_request_is_judged_by_its_own_drafts_and_a_new_one_by_all() -> None:
    learner = survival()
    fare(learner, "good", 3)
    fare(learner, "bad", 0)
    assert learner.acceptance("good", "model", 0) > 0.85
    assert learner.acceptance("bad", "model", 0) < 0.3
    assert 0.5 < learner.acceptance("new", "model", 0) < 0.8
    assert learner.acceptance("good", "ngram", 2) == pytest.approx(0.4)
    learner.forget("bad")
    assert learner.acceptance("bad", "model", 0) == learner.acceptance("new", "model", 0)


def test_tokens_behind_the_first_rejected_one_tell_nothing() -> None:
    short, long = survival(), survival()
    short.observe("a", "model", 0, 2, 1, (0.95, 0.55))
    long.observe("a", "model", 0, 6, 1, (0.95, 0.55, 0.15, 0.15, 0.15, 0.15))
    assert short.chances("model") == long.chances("model")
    assert short.acceptance("a", "model", 0) == long.acceptance("a", "model", 0)


def test_the_chances_are_how_tokens_of_that_confidence_fared() -> None:
    learner = survival()
    assert not learner.confident("model")
    fare(learner, "a", 1, (0.95, 0.45, 0.45), times=200)
    assert learner.confident("model")
    assert not learner.confident("ngram")
    chances = learner.chances("model")
    assert chances[9] > 0.98
    assert chances[4] < 0.05
    assert chances[6] == pytest.approx(0.65)


def test_a_low_promise_tells_more_than_a_lucky_draft() -> None:
    doubtful, lucky = survival(), survival()
    fare(doubtful, "a", 3, (0.45, 0.35, 0.35), times=1)
    fare(lucky, "a", 3, times=1)
    assert doubtful.acceptance("a", "model", 0) < 0.8 < lucky.acceptance("a", "model", 0)


def test_a_request_that_breaks_its_word_is_believed_less() -> None:
    """Another's drafts keep theirs, so that the chances of this confidence stay high."""
    learner = survival()
    for _ in range(20):
        fare(learner, "true", 3, (0.95,) * 3, times=1)
        fare(learner, "false", 0, (0.95,) * 3, times=1)
    assert learner.acceptance("true", "model", 0) > 0.85
    assert learner.acceptance("false", "model", 0) < 0.55


def test_what_was_put_aside_gets_another_try() -> None:
    learner = survival()
    fare(learner, "a", 0)
    before = learner.acceptance("a", "model", 0)
    for _ in range(2500):
        learner.idle("a", "model", 0)
    assert before < 0.3 < 0.65 < learner.acceptance("a", "model", 0)
