"""Probes of a model: what they cost is what is measured, once a machine, and no disk can stop them."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from soothsay import calibrate
from soothsay.calibrate import CONTEXT_TOKENS, GREETINGS, ROUNDS, Guest, greet, probes, shape
from soothsay.model.base import Feed, Logits
from soothsay.schedule.cost import Cost, Probe, Shape
from tests.engines import SpyModel

ROWS = (1, 2, 8)


class TimedModel(SpyModel):
    """A pass takes a second and a quarter for each further row; the first three take ten times as long."""

    now = 0.0

    def clock(self) -> float:
        return self.now

    def forward(self, feeds: Sequence[Feed]) -> list[Logits]:
        (feed,) = feeds
        slow = 10 if len(self.passes) <= len(ROWS) else 1
        self.now += slow * (1 + 0.25 * (len(feed.tokens) - 1))
        return super().forward(feeds)


class NoModel(SpyModel):
    def forward(self, feeds: Sequence[Feed]) -> list[Logits]:
        raise AssertionError("it was measured before")


def test_rounds_of_passes_after_one_that_only_warms_up() -> None:
    model = TimedModel()
    found = list(probes(model, ROWS, model.clock))
    wanted = [(turn, rows) for turn in range(1, ROUNDS + 1) for rows in ROWS]
    assert found == [Probe(turn, rows, CONTEXT_TOKENS, 1 + 0.25 * (rows - 1)) for turn, rows in wanted]
    (first,), *others = model.passes
    assert (len(first.tokens), first.rows) == (CONTEXT_TOKENS, 0)
    assert [(len(feed.tokens), feed.rows) for (feed,) in others] == [(rows, rows) for rows in ROWS * (ROUNDS + 1)]
    assert model.open_slots == 0


def test_a_model_with_little_context_is_probed_as_far_as_it_goes() -> None:
    model = TimedModel(max_length=10)
    assert {probe.rows for probe in probes(model, ROWS, model.clock)} == {1, 2}


def test_a_probe_that_fails_leaves_no_slot_behind() -> None:
    model = NoModel()
    with pytest.raises(AssertionError):
        list(probes(model, ROWS, lambda: 0.0))
    assert model.open_slots == 0


def test_the_shape_is_what_was_measured_and_is_kept(tmp_path: Path) -> None:
    path, model = tmp_path / "costs.json", TimedModel()
    found = shape(model, "toy", ROWS, path, model.clock)
    for rows in ROWS:
        assert found.seconds(rows, CONTEXT_TOKENS) == pytest.approx(1 + 0.25 * (rows - 1), rel=0.02)
    assert shape(NoModel(), "toy", ROWS, path, model.clock) == found


def test_another_model_or_faster_kernels_are_measured_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, model = tmp_path / "costs.json", TimedModel()
    shape(model, "toy", ROWS, path, model.clock)
    with pytest.raises(AssertionError, match="measured before"):
        shape(NoModel(), "other", ROWS, path, model.clock)
    monkeypatch.setattr(calibrate, "KERNELS", calibrate.KERNELS + 1)
    with pytest.raises(AssertionError, match="measured before"):
        shape(NoModel(), "toy", ROWS, path, model.clock)


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path, model, again = tmp_path / "file" / "costs.json", TimedModel(), TimedModel()
    found = shape(model, "toy", ROWS, path, model.clock)
    assert found == shape(again, "toy", ROWS, path, again.clock)
    assert again.passes


def test_shapes_from_different_machines_are_put_right_by_greeting() -> None:
    """The target's was kept while the machine was busy, four times as slow as now; the draft model's in quiet."""
    model = TimedModel()
    model.passes = [[]] * 9  # it is warm
    target = Cost(Shape((4.0, 1.0, 0.0, 0.0, 0.0), rounds=4))
    draft = Cost(Shape((1.0, 0.25, 0.0, 0.0, 0.0), rounds=4), beside=target)
    assert draft.pass_seconds(1, 0) / target.pass_seconds(1, 0) == pytest.approx(0.25)
    greet([Guest(model, target, 5), Guest(model, draft, 8)], model.clock)
    assert target.pass_seconds(1, 0) == pytest.approx(1)
    assert draft.pass_seconds(1, 0) == pytest.approx(1)
    assert len(model.passes) == 9 + 4 * (GREETINGS + 1)
    assert model.open_slots == 0


def test_a_shape_whose_wide_passes_met_a_busy_machine_is_put_right_by_greeting() -> None:
    """One row waits for the memory, many for the second core that was taken: so a draft model would hardly read."""
    model = TimedModel()
    model.passes = [[]] * 9  # it is warm
    cost = Cost(Shape((1.0, 0.6, 0.3, 0.0, 0.0), effects=(1.0, 1.0, 1.1), extra=0.1, rounds=4))
    greet([Guest(model, cost, 24)], model.clock)
    assert cost.pass_seconds(24, 0) == pytest.approx(1 + 0.25 * 23)


def test_a_model_with_little_context_is_greeted_within_it() -> None:
    model = TimedModel(max_length=10)
    greet([Guest(model, Cost(Shape.prior()), 24)], model.clock)
    assert max(len(feed.tokens) for (feed,) in model.passes) == 10
