"""A fixed gamma: as many tokens as were asked for and are legal, from the one drafter, and never a thought.

It may be the engine's, or that of a single request.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace

import pytest

from soothsay.schedule.policy import FixedGamma, Granting
from soothsay.schedule.views import Choice, Source, Step, View


def view(reach: int, *drafters: str) -> View:
    return View(object(), context=9, reach=reach, remaining=reach + 1, sources={name: Source() for name in drafters})


@pytest.mark.parametrize(
    ("reach", "drafters", "expected"),
    [
        (9, ("ngram",), ("ngram", 4)),
        (3, ("ngram",), ("ngram", 3)),
        (0, ("ngram",), (None, 0)),
        (9, (), (None, 0)),
        (9, ("other", "ngram"), ("ngram", 4)),
        (9, ("other",), (None, 0)),
    ],
)
def test_gamma_is_what_was_fixed_as_far_as_it_can_be(
    reach: int, drafters: tuple[str, ...], expected: tuple[str | None, int]
) -> None:
    policy, asked = FixedGamma("ngram", 4), view(reach, *drafters)
    (choice,) = policy.plan([asked], 100)
    assert choice.view is asked
    assert (choice.drafter, choice.gamma) == expected


@pytest.mark.parametrize("policy", [FixedGamma(None, 4), FixedGamma("ngram", 0)])
def test_nobody_and_nothing_are_no_drafts(policy: FixedGamma) -> None:
    choices = policy.plan([view(9, "ngram"), view(5, "ngram")])
    assert [(choice.drafter, choice.gamma) for choice in choices] == [(None, 0)] * 2


class Listening:
    """A policy that drafts one token for everyone by ngram, and writes down what it is asked and told."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[View], int]] = []
        self.told: list[object] = []

    def plan(self, views: Sequence[View], other_rows: int = 0) -> list[Choice]:
        self.asked.append((list(views), other_rows))
        return [Choice(view, "ngram", 1) for view in views]

    def observe(self, step: Step) -> None:
        self.told.append(step)

    def prompt_rows(self, decoding: int) -> int:
        return 10 * decoding

    def pass_seconds(self, rows: int, sequences: int) -> float | None:
        return None

    def debt_seconds(self, request: Hashable) -> float | None:
        return 0.25

    def forget(self, request: Hashable) -> None:
        self.told.append(request)


def wishing(gamma: int | None, reach: int = 9, *drafters: str) -> View:
    return replace(view(reach, *(drafters or ("ngram",))), gamma=gamma)


def test_a_wished_gamma_is_granted_and_the_policy_sees_its_rows() -> None:
    listening = Listening()
    views = [wishing(None), wishing(4), wishing(None), wishing(6, 2), wishing(0), wishing(3, 0)]
    choices = Granting(listening).plan(views, 7)
    assert [choice.view for choice in choices] == views
    assert [choice.gamma for choice in choices] == [1, 4, 1, 2, 0, 0]
    assert [choice.drafter for choice in choices] == ["ngram", "ngram", "ngram", "ngram", None, None]
    rows = 7 + (1 + 4) + (1 + 2) + 1 + 1
    assert listening.asked == [([views[0], views[2]], rows)]


def test_a_wished_gamma_is_drafted_by_the_last_of_the_sources() -> None:
    """The draft model, where there is one: it stands behind the n-grams."""
    choices = Granting(Listening()).plan([wishing(4, 9, "ngram", "model"), replace(view(9), gamma=4)])
    assert [(choice.drafter, choice.gamma) for choice in choices] == [("model", 4), (None, 0)]


def test_nobody_asks_the_policy_when_there_is_nothing_left_to_choose() -> None:
    listening = Listening()
    Granting(listening).plan([wishing(2)])
    assert listening.asked == []
