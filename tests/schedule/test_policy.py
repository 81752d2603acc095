"""A fixed gamma: as many tokens as were asked for and are legal, from the one drafter, and never a thought."""

import pytest

from soothsay.schedule.policy import FixedGamma
from soothsay.schedule.views import Source, View


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
