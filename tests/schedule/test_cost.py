"""What passes cost: the fit against a known machine, the pace under interruptions, and a file that may be damaged."""

import json
import random
from pathlib import Path
from statistics import median

import pytest

from soothsay.errors import OptionError
from soothsay.schedule.cost import FORMAT, Cost, Probe, Shape, load, save
from tests.schedule.simulator import CPU, EXPENSIVE, ROW_SECONDS, shape_of

ROWS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
CONTEXTS = (128, 2048)


def truth(rows: int, context: int) -> float:
    return ROW_SECONDS * (CPU[rows - 1] + 9e-5 * context + 3e-5 * context * (rows - 1))


def probes(rounds: int, noise: float, *, seed: int = 0) -> list[Probe]:
    """Rounds over all cells with one-sided noise."""
    chance = random.Random(seed)
    found = []
    for turn in range(rounds):
        for rows in ROWS:
            for context in CONTEXTS:
                spread = 1 + noise * abs(chance.gauss(0, 1))
                found.append(Probe(turn, rows, context, truth(rows, context) * spread))
    return found


def errors(shape: Shape) -> list[float]:
    """How far the ratios to a one-row pass are off, as shares."""
    scale = shape.seconds(1, 128) / truth(1, 128)
    cells = [(rows, context) for rows in ROWS for context in CONTEXTS]
    return [abs(shape.seconds(*cell) / truth(*cell) / scale - 1) for cell in cells]


@pytest.mark.parametrize(("noise", "most"), [(0.0, 0.02), (0.03, 0.04), (0.2, 0.15)])
def test_the_shape_is_found(noise: float, most: float) -> None:
    for seed in range(5):
        assert max(errors(Shape.fit(probes(10, noise, seed=seed)))) < most


def test_rounds_that_met_a_slower_machine_count_as_pairs() -> None:
    """Wide passes were only probed while a core was stolen; the others tell by how much."""
    uneven = [
        Probe(probe.round, probe.rows, probe.context, probe.seconds * (1.8 if probe.round % 2 else 1.0))
        for probe in probes(12, 0.02)
        if probe.rows <= 6 or probe.round % 2
    ]
    assert max(errors(Shape.fit(uneven))) < 0.06


def test_the_luckiest_cell_is_not_believed() -> None:
    """With few noisy rounds the worst cell of the raw medians is further off than the worst of the shape."""
    better = 0
    for seed in range(10):
        few = probes(3, 0.25, seed=seed)
        cells = {(probe.rows, probe.context) for probe in few}
        raw = {cell: median(p.seconds for p in few if (p.rows, p.context) == cell) for cell in cells}
        scale = median(seconds / truth(*cell) for cell, seconds in raw.items())
        shape = Shape.fit(few)
        level = median(shape.seconds(*cell) / truth(*cell) for cell in raw)
        worst_raw = max(abs(seconds / truth(*cell) / scale - 1) for cell, seconds in raw.items())
        worst = max(abs(shape.seconds(*cell) / truth(*cell) / level - 1) for cell in raw)
        better += worst < worst_raw
    assert better >= 8


def test_row_counts_differ_little_from_the_smooth_form_when_noise_is_large() -> None:
    strays = [max(abs(effect - 1) for effect in Shape.fit(probes(3, 0.25, seed=seed)).effects) for seed in range(10)]
    assert sum(strays) / len(strays) < 0.06


def test_a_kink_of_the_kernels_survives_when_it_is_well_measured() -> None:
    quiet = [
        Probe(p.round, p.rows, p.context, p.seconds * (0.9 if p.rows == 4 else 1.0)) for p in probes(20, 0.01, seed=1)
    ]
    shape = Shape.fit(quiet)
    assert shape.seconds(4, 128) / shape.seconds(1, 128) == pytest.approx(0.9 * truth(4, 128) / truth(1, 128), rel=0.02)


def test_what_was_not_probed_is_the_priors() -> None:
    """One context says nothing of attention; unknown is not zero."""
    shape = Shape.fit([probe for probe in probes(10, 0.01) if probe.context == 128])
    assert 1.2 < shape.seconds(1, 4096) / shape.seconds(1, 128) < 1.6
    assert shape.seconds(64, 128) > 2 * shape.seconds(16, 128)


def test_no_probe_is_no_shape() -> None:
    with pytest.raises(OptionError, match="no pass was timed"):
        Shape.fit([])


def test_more_rows_and_more_context_never_cost_less_by_the_prior() -> None:
    seconds = [Shape.prior().seconds(rows, context) for rows in range(1, 40) for context in (0, 500, 4000)]
    assert [Shape.prior().seconds(rows, 500) for rows in range(1, 40)] == sorted(seconds[1::3])
    assert Shape.prior().seconds(4, 4000) > Shape.prior().seconds(4, 0)


def test_attention_is_paid_by_each_sequence() -> None:
    shape = Shape((1.0, 0.0, 0.0, 0.001, 0.0001))
    assert shape.seconds(4, 1000, sequences=4) == pytest.approx(1 + 4 * 1.0)
    assert shape.seconds(4, 1000, sequences=1) == pytest.approx(1 + 1.0 + 3 * 0.1)


def test_single_interruptions_do_not_move_the_pace_and_a_stolen_core_does() -> None:
    cost = Cost(shape_of(CPU))
    usual = cost.pass_seconds(4, 128)
    for step in range(30):
        cost.observe(1 + step % 4, 128, cost.shape.seconds(1 + step % 4, 128) * (5 if step % 4 == 2 else 1))
    assert cost.pass_seconds(4, 128) == pytest.approx(usual, rel=0.1)
    for _ in range(6):
        cost.observe(4, 128, 1.8 * cost.shape.seconds(4, 128))
    assert cost.pass_seconds(1, 128) == pytest.approx(1.8 * cost.shape.seconds(1, 128), rel=1e-6)


def test_a_draft_model_that_was_put_aside_is_not_remembered_as_slow() -> None:
    target = Cost(shape_of(CPU))
    draft = Cost(shape_of(CPU, 0.25 * ROW_SECONDS), beside=target)

    def live(steps: int, slow: float, drafting: bool) -> None:
        for _ in range(steps):
            target.observe(1, 0, slow * target.shape.seconds(1, 0))
            if drafting:
                draft.observe(1, 0, slow * draft.shape.seconds(1, 0))

    live(30, 1.0, True)
    live(30, 1.8, True)
    live(30, 1.0, False)
    assert draft.pass_seconds(1, 0) == pytest.approx(draft.shape.seconds(1, 0), rel=1e-6)


@pytest.mark.parametrize("start", [Shape.prior(ROW_SECONDS), Shape((ROW_SECONDS, 0.0, 0.0, 0.0, 0.0))])
def test_neighbouring_passes_correct_a_wrong_shape(start: Shape) -> None:
    """The machine's pace wanders by more than the error of the shape; only neighbours can be compared."""
    cost, chance, pace = Cost(start), random.Random(2), 1.0
    for _ in range(300):
        pace *= chance.choice((0.97, 1 / 0.97))
        rows = chance.choice((1, 3, 5))
        cost.observe(rows, 0, pace * ROW_SECONDS * EXPENSIVE[rows - 1] * (1 + 0.05 * chance.random()))
    for rows in (3, 5):
        assert cost.pass_seconds(rows, 0) / cost.pass_seconds(1, 0) == pytest.approx(EXPENSIVE[rows - 1], rel=0.2)


def test_a_clock_that_stood_still_teaches_nothing() -> None:
    cost = Cost(Shape.prior())
    cost.observe(1, 0, 0.0)
    cost.observe_total(0.1, 0.0)
    assert cost.pace == 1.0


def test_shapes_are_kept_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "shapes.json"
    ours, theirs = Shape.fit(probes(3, 0.1)), Shape.prior()
    save(path, "ours", ours)
    save(path, "theirs", theirs)
    assert load(path, "ours") == ours
    assert load(path, "theirs") == theirs
    assert load(path, "nobody's") is None
    assert [file.name for file in path.parent.iterdir()] == ["shapes.json"]


GOOD = {"coefficients": [1.0, 0.1, 0.1, 0.0, 0.0], "effects": [1.0], "extra": 0.0, "rounds": 3}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\xff\xfe garbage",
        b"[1, 2]",
        b'{"format": 1, "shapes": {"ours"',
        json.dumps({"format": FORMAT + 1, "shapes": {"ours": GOOD}}).encode(),
        json.dumps({"format": FORMAT, "shapes": ["ours"]}).encode(),
        json.dumps({"format": FORMAT, "shapes": {"ours": 3}}).encode(),
        json.dumps({"format": FORMAT, "shapes": {"ours": GOOD | {"coefficients": [1.0]}}}).encode(),
        json.dumps({"format": FORMAT, "shapes": {"ours": GOOD | {"coefficients": [0.0] * 5}}}).encode(),
        json.dumps({"format": FORMAT, "shapes": {"ours": GOOD | {"effects": [float("nan")]}}}).encode(),
        json.dumps({"format": FORMAT, "shapes": {"ours": GOOD | {"effects": []}}}).encode(),
        json.dumps({"format": FORMAT, "shapes": {"ours": GOOD | {"extra": None}}}).encode(),
        json.dumps({"format": FORMAT, "shapes": {"ours": GOOD | {"extra": 1e9}}}).encode(),
    ],
)
def test_a_damaged_file_is_no_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "shapes.json"
    path.write_bytes(content)
    assert load(path, "ours") is None
    save(path, "ours", Shape.prior())
    assert load(path, "ours") == Shape.prior()


def test_a_file_as_written_by_hand_is_read(tmp_path: Path) -> None:
    path = tmp_path / "shapes.json"
    path.write_text(json.dumps({"format": FORMAT, "shapes": {"ours": GOOD}}))
    assert load(path, "ours") == Shape((1.0, 0.1, 0.1, 0.0, 0.0), rounds=3)
    assert load(tmp_path, "ours") is None
    assert load(tmp_path / "absent.json", "ours") is None
