"""Requests that are submitted and stepped by hand, each with its own rule, drafts and end, as a server needs them."""

from collections.abc import Sequence
from typing import Any

import pytest

from soothsay import OptionError, PromptTooLong, Sampling
from soothsay.assemble import Parts
from soothsay.core import Capacity
from soothsay.draft.base import Drafter
from soothsay.engine import Engine
from soothsay.record import Record
from soothsay.request import Request
from soothsay.schedule.policy import FixedGamma, Policy
from soothsay.schedule.wish import NO_WISH, Wish
from tests.engines import SpyDrafter, SpyModel, assert_at_rest, drafters, plain

PROMPT = [1, 2, 3, 1, 2, 3, 1, 2]
SAMPLING = Sampling(temperature=0.8, seed=11, max_tokens=30)


class Stage:
    """An engine with two drafters, and what its steps drafted by whom."""

    def __init__(self, policy: Policy | None = None, **options: Any) -> None:
        self.model = SpyModel()
        found = drafters(self.model)
        self.spies: dict[str, Drafter] = {name: SpyDrafter(found[name]) for name in ("ngram", "alike")}
        self.records: list[Record] = []
        parts = Parts(self.model, None, self.spies, policy or FixedGamma("ngram", 3))
        self.engine = Engine.of(parts, watch=self.records.append, **options)

    def run(self, requests: Sequence[Request]) -> list[tuple[int, ...]]:
        while any(request.completion is None for request in requests):
            self.engine.step()
        return [tuple(piece.token for piece in request.pieces) for request in requests]

    def drafted(self) -> set[tuple[str | None, int]]:
        """By whom, and how many at most."""
        drafts = [one for record in self.records for one in record.drafts if one.drafted]
        return {
            (name, max(one.drafted for one in drafts if one.drafter == name)) for name in {d.drafter for d in drafts}
        }


def test_the_names_of_the_drafters_are_known() -> None:
    assert Stage().engine.drafters == ("ngram", "alike")


@pytest.mark.parametrize(
    ("wish", "drafted"),
    [
        (NO_WISH, {("ngram", 3)}),
        (Wish(gamma=5), {("alike", 5)}),
        (Wish(frozenset({"ngram"}), 2), {("ngram", 2)}),
        (Wish(frozenset({"alike"}), 4), {("alike", 4)}),
        (Wish(frozenset({"alike"})), set()),  # which the fixed policy does not use
        (Wish(frozenset()), set()),
        (Wish(gamma=0), set()),
    ],
    ids=str,
)
@pytest.mark.parametrize("verify", ["coupled", "block", "token"])
def test_a_wish_changes_who_guesses_and_never_the_words(wish: Wish, drafted: set[tuple[str, int]], verify: str) -> None:
    stage = Stage()
    request = stage.engine.submit(PROMPT, SAMPLING, verify=verify, wish=wish)
    (found,) = stage.run([request])
    assert stage.drafted() == drafted
    if verify == "coupled":
        assert found == plain(stage.model, PROMPT, SAMPLING)
    else:
        alone = Stage()
        by_option = Engine.of(Parts(alone.model, None, {}, FixedGamma(None, 0)), verify=verify)
        assert drafted or found == by_option.generate(PROMPT, SAMPLING).tokens
    assert_at_rest(stage.engine, stage.model)


def test_requests_with_and_without_wishes_share_steps() -> None:
    stage = Stage()
    wishes = [NO_WISH, Wish(gamma=5), Wish(gamma=0), Wish(frozenset({"ngram"}), 1)]
    requests = [stage.engine.submit(PROMPT, SAMPLING, wish=wish) for wish in wishes]
    assert set(stage.run(requests)) == {plain(stage.model, PROMPT, SAMPLING)}
    assert any(len(feeds) == 4 for feeds in stage.model.passes)


def test_a_cancelled_request_takes_no_part_in_the_next_step() -> None:
    stage = Stage()
    stays, goes = (stage.engine.submit(PROMPT, SAMPLING) for _ in range(2))
    stage.engine.step()
    stage.engine.cancel([goes])
    stage.engine.step()
    assert [len(feeds) for feeds in stage.model.passes] == [2, 1]
    stage.run([stays])
    stage.engine.cancel([stays])  # it has ended: nothing to do
    assert goes.completion is None
    assert_at_rest(stage.engine, stage.model)


def test_a_context_may_be_shorter_than_the_models() -> None:
    stage = Stage(capacity=Capacity(context=10))
    assert stage.engine.max_length == 10
    with pytest.raises(PromptTooLong, match="the model's context of 10 "):
        stage.engine.encode([1] * 10)
    request = stage.engine.submit([1] * 8, SAMPLING)
    stage.run([request])
    assert request.completion is not None
    assert (request.completion.finish_reason, len(request.context)) == ("context", 10)


@pytest.mark.parametrize("context", [-1, 1, 4097])
def test_a_context_must_fit_the_model(context: int) -> None:
    with pytest.raises(OptionError, match="from 2 to the 4096 tokens"):
        Stage(capacity=Capacity(context=context))


def test_no_more_run_at_once_than_the_batch() -> None:
    stage = Stage(capacity=Capacity(max_batch=2))
    requests = [stage.engine.submit(PROMPT, SAMPLING) for _ in range(5)]
    stage.run(requests)
    assert max(len(feeds) for feeds in stage.model.passes) == 2


def test_held_tokens_are_those_of_running_and_kept_sequences() -> None:
    stage = Stage()
    assert stage.engine.held_tokens == 0
    request = stage.engine.submit(PROMPT, SAMPLING)
    stage.engine.step()
    held = len(request.context) - 1
    assert stage.engine.held_tokens == held >= len(PROMPT)
    stage.run([request])
    assert stage.engine.held_tokens == len(request.context) - 1  # kept for a prompt that goes on from here
