"""How far ahead: the controller on a simulated machine, against the best constant gamma in hindsight."""

from collections.abc import Callable, Sequence

import pytest

from soothsay.schedule.cost import Cost, Shape
from soothsay.schedule.gamma import DEBT_SHARE, DEBT_STEPS, Controller
from soothsay.schedule.plan import Helper
from soothsay.schedule.views import Choice, Outcome, Source, Step, View
from tests.schedule.simulator import CPU, EXPENSIVE, FREE, ROW_SECONDS, Guesser, Machine, Text, coin, shape_of

TABLES = {"free": FREE, "cpu": CPU, "expensive": EXPENSIVE}
DRAFTERS = {"ngram": 0.0, "model": 0.25, "light": 0.1}
SEEDS = (1, 2, 3)


def text(acceptance: float | Callable[[int], float], tokens: int, seed: int, drafter: str, name: int = 0) -> Text:
    return Text(name, tokens, {drafter: Guesser(coin(acceptance, seed))})


def fixed_seconds(
    v: Sequence[float], acceptance: float | Callable[[int], float], tokens: int, drafter: str, gamma: int
) -> float:
    """Seconds at a constant gamma, all seeds together: the best of these has foreseen the mean, not the luck."""
    return sum(
        Machine(v, DRAFTERS, seed=seed).run_fixed([text(acceptance, tokens, seed, drafter)], drafter, gamma)
        for seed in SEEDS
    )


def auto_seconds(v: Sequence[float], acceptance: float, tokens: int, drafter: str, *, warm: int = 0) -> float:
    """Seconds of the controller, fresh for each seed, after a text of `warm` tokens."""
    total = 0.0
    for seed in SEEDS:
        machine = Machine(v, {drafter: DRAFTERS[drafter]}, seed=seed)
        controller = machine.controller()
        if warm:
            machine.run([text(acceptance, warm, seed + 100, drafter)], controller)
        total += machine.run([text(acceptance, tokens, seed, drafter, name=1)], controller)
    return total


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("table", TABLES)
def test_the_rate_is_that_of_the_best_gamma_in_hindsight(table: str, drafter: str) -> None:
    v, ratios = TABLES[table], []
    for acceptance in (0.0, 0.3, 0.6, 0.8, 0.95):
        best = min(fixed_seconds(v, acceptance, 400, drafter, gamma) for gamma in (0, 1, 2, 3, 4, 6, 8, 12))
        ratios.append(best / auto_seconds(v, acceptance, 400, drafter, warm=300))
    assert sum(ratios) / len(ratios) > 0.97
    assert min(ratios) > 0.93


@pytest.mark.parametrize("tokens", [64, 128, 500])
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("table", TABLES)
def test_a_text_on_which_every_guess_fails_is_hardly_slower(table: str, drafter: str, tokens: int) -> None:
    """Promise 2, from the very first text of an engine on, the draft's reading included."""
    plain = fixed_seconds(TABLES[table], 0.0, tokens, drafter, 0)
    assert plain / auto_seconds(TABLES[table], 0.0, tokens, drafter) > 0.97


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_hopeless_text_after_good_ones_is_hardly_slower(drafter: str) -> None:
    """What others saved may be staked, and the estimates must stop the loss before it is large."""
    machine = Machine(CPU, {drafter: DRAFTERS[drafter]})
    controller = machine.controller()
    machine.run([text(0.85, 600, 5, drafter)], controller)
    seconds = machine.run([text(0.0, 200, 6, drafter, name=1)], controller)
    plain = Machine(CPU, DRAFTERS).run_fixed([text(0.0, 200, 6, drafter)], drafter, 0)
    assert plain / seconds > 0.96


@pytest.mark.parametrize(("drafter", "tokens"), [("ngram", 60), ("model", 80)])
def test_a_good_draft_turns_bad_and_back(drafter: str, tokens: int) -> None:
    """Within so many tokens of either turn, the pace is that of the new state."""
    for seed in SEEDS:
        machine = Machine(CPU, {drafter: DRAFTERS[drafter]}, seed=seed)
        changing = text(lambda position: 0.0 if 300 < position < 500 else 0.85, 900, seed, drafter)
        machine.run([changing], machine.controller())
        good, bad = machine.pace(150, 300), machine.pace(300 + tokens, 500)
        assert bad > 0.95 * Machine(CPU, DRAFTERS, seed=seed).plain_pace()
        assert machine.pace(500 + tokens, 900) > 0.85 * good


def test_a_slower_wide_pass_is_noticed() -> None:
    """Half-way through, wide passes cost what they cost elsewhere: another process takes the arithmetic."""
    machine = Machine(CPU, {"model": 0.25}, seed=3)
    controller = machine.controller()
    machine.run([text(0.6, 400, 3, "model")], controller)
    machine.v = EXPENSIVE
    machine.run([text(0.6, 500, 4, "model", name=1)], controller)
    seconds = machine.run([text(0.6, 400, 5, "model", name=2)], controller)
    plain = Machine(EXPENSIVE, DRAFTERS, seed=3).run_fixed([text(0.6, 400, 5, "model")], "model", 0)
    assert plain / seconds > 0.95


def test_a_stolen_core_and_single_interruptions_hardly_change_the_choices() -> None:
    def run(seed: int, slow: float = 1.0, outliers: float = 0.0) -> Machine:
        machine = Machine(CPU, {"model": 0.25}, outliers=outliers, seed=seed)
        machine.slowness = lambda step: slow if 100 <= step < 200 else 1.0
        machine.run([text(0.85, 1200, seed, "model")], machine.controller())
        return machine

    usual, stolen, interrupted = (
        [run(seed, **case) for seed in range(5)] for case in ({}, {"slow": 1.8}, {"outliers": 0.03})
    )
    assert middle(stolen) == pytest.approx(middle(usual), rel=0.1)
    assert steps(stolen) == pytest.approx(steps(usual), rel=0.03)
    assert steps(interrupted) == pytest.approx(steps(usual), rel=0.03)


def middle(machines: Sequence[Machine]) -> float:
    return mean([gamma for machine in machines for gamma in machine.gammas[100:200]])


def steps(machines: Sequence[Machine]) -> int:
    return sum(machine.steps for machine in machines)


@pytest.mark.parametrize("drafter", ["ngram", "model"])
@pytest.mark.parametrize("crowd", [2, 4, 8])
@pytest.mark.parametrize("acceptances", [(0.85,) * 8, (0.9, 0.1, 0.8, 0.0) * 2])
def test_a_batch_is_as_fast_as_at_the_best_gamma(drafter: str, crowd: int, acceptances: Sequence[float]) -> None:
    def texts() -> list[Text]:
        return [text(acceptances[place], 300, place, drafter, name=place) for place in range(crowd)]

    best = min(Machine(CPU, DRAFTERS).run_fixed(texts(), drafter, gamma) for gamma in range(6))
    machine = Machine(CPU, {drafter: DRAFTERS[drafter]})
    controller = machine.controller()
    machine.run(texts(), controller)
    assert best / machine.run(texts(), controller) > 0.95


def test_gamma_shrinks_as_the_batch_grows() -> None:
    controller, gammas = trained(0.92), []
    for crowd in (1, 2, 4, 8, 16):
        choices = controller.plan([view(name) for name in range(crowd)], waiting=True)
        gammas.append(mean([choice.gamma for choice in choices]))
    assert gammas == sorted(gammas, reverse=True)
    assert gammas[0] >= 3
    assert gammas[-1] < 1


def test_rows_of_prompts_make_drafts_dearer() -> None:
    alone, beside = trained(0.92).plan([view(0)])[0], trained(0.92).plan([view(0)], other_rows=100)[0]
    assert 1 < beside.speedup < 0.95 * alone.speedup
    assert 0 < beside.gamma <= alone.gamma


def test_who_ends_long_before_the_others_does_not_slow_them() -> None:
    """A short request's tokens free a row of a pass that is read for the long ones anyway."""
    short_and_long = [view(0, remaining=10), *(view(name, remaining=400) for name in (1, 2, 3))]
    gammas = [choice.gamma for choice in trained(0.92).plan(short_and_long)]
    assert gammas[0] == 0
    assert min(gammas[1:]) > 0
    assert trained(0.92).plan(short_and_long, waiting=True)[0].gamma > 0


def test_each_half_of_a_text_has_its_drafter() -> None:
    def halves(names: Sequence[str], seed: int) -> Text:
        guessers = {
            "model": Guesser(coin(0.75, seed)),
            "ngram": Guesser(
                coin(lambda position: 0.95 if repeats(position) else 0.1, seed + 50),
                lambda position: 12 if repeats(position) else 2 if position % 3 == 0 else None,
            ),
        }
        return Text(0, 900, {name: guessers[name] for name in names})

    for seed in SEEDS:
        seconds = {}
        for names in (("model", "ngram"), ("model",), ("ngram",)):
            machine = Machine(CPU, {name: DRAFTERS[name] for name in names}, seed=seed)
            seconds[names] = machine.run([halves(names, seed)], machine.controller())
        assert min(seconds["model",], seconds["ngram",]) / seconds["model", "ngram"] > 1.1


def repeats(position: int) -> bool:
    return position // 60 % 2 == 0


@pytest.mark.parametrize(("prior", "least"), [(0.05, 0.8), (0.3, 0.85), (0.99, 0.9)])
def test_a_wrong_prior_is_outgrown(prior: float, least: float) -> None:
    for acceptance in (0.0, 0.8):
        best = min(fixed_seconds(CPU, acceptance, 600, "model", gamma) for gamma in range(5))
        total = 0.0
        for seed in SEEDS:
            machine = Machine(CPU, {"model": 0.25}, seed=seed)
            total += machine.run([text(acceptance, 600, seed, "model")], machine.controller(prior=prior))
        assert best / total > least


@pytest.mark.parametrize("believed", [Shape.prior(ROW_SECONDS), shape_of(CPU)])
def test_wrong_costs_are_outgrown(believed: Shape) -> None:
    """An engine that thinks wide passes cheap, on a machine where they are not: a fresh one loses little."""
    for acceptance in (0.0, 0.4, 0.8):
        plain = fixed_seconds(EXPENSIVE, acceptance, 600, "model", 0)
        total = 0.0
        for seed in SEEDS:
            machine = Machine(EXPENSIVE, {"model": 0.25}, seed=seed)
            total += machine.run([text(acceptance, 600, seed, "model")], machine.controller(believed))
        assert plain / total > 0.9


def test_reading_is_bounded_by_what_may_be_lost_and_grows_with_what_was_saved() -> None:
    fresh, rich = trained(0.0, steps=0), trained(0.95)
    costs = Cost(shape_of(CPU, 0.25 * ROW_SECONDS))
    few, many = fresh.readable_tokens(view(0), "model"), rich.readable_tokens(view(0), "model")
    assert 5 < few <= many + 1
    assert costs.pass_seconds(1 + many, 0) < 1.3 * ROW_SECONDS
    assert fresh.readable_tokens(view(0), "model", sequences=8) < few
    assert trained(0.0, steps=2).readable_tokens(view(0), "model") < few


def test_a_long_reading_waits_for_savings() -> None:
    choice = trained(0.0, steps=0).plan([view(0, lag=1000)])[0]
    assert choice.drafter is None


def test_debt_is_never_beyond_the_line() -> None:
    """Whatever the estimates say: a drafter that lies in wait (good until the stake is high) is cut off."""
    controller = trained(0.9, steps=0)
    lost = elapsed = 0.0
    for _ in range(400):
        choice = controller.plan([view(0)])[0]
        kept = 1 if choice.gamma == 1 else 0
        spent = ROW_SECONDS * (CPU[choice.gamma] + (0.25 * choice.gamma if choice.drafter else 0))
        lost += spent - (kept + 1) * ROW_SECONDS
        elapsed += (kept + 1) * ROW_SECONDS
        assert lost < DEBT_SHARE * elapsed + (DEBT_STEPS + 0.3) * ROW_SECONDS + 0.03 * elapsed
        controller.observe(step(choice, kept))


def test_nothing_to_plan_and_nobody_to_ask() -> None:
    controller = Controller(Cost(Shape.prior()), {})
    assert controller.plan([]) == []
    choice = controller.plan([View("r", 10, 16, 100, {})])[0]
    assert (choice.drafter, choice.gamma) == (None, 0)
    controller.observe(Step([], 0.01))
    controller.observe(Step([Outcome(choice, 0, 0, 1)], 0.01))
    controller.forget("r")
    controller.forget("never seen")


def test_gamma_stays_within_reach() -> None:
    assert [trained(0.95).plan([view(0, reach=reach)])[0].gamma for reach in (0, 1, 2)] == [0, 1, 2]


def test_the_same_steps_lead_to_the_same_choices() -> None:
    runs = []
    for _ in range(2):
        machine = Machine(CPU, {"model": 0.25, "ngram": 0.0}, seed=9)
        both = {"model": Guesser(coin(0.7, 1)), "ngram": Guesser(coin(0.4, 2), lambda position: position % 9)}
        machine.run([Text(0, 400, both)], machine.controller())
        runs.append(machine.gammas)
    assert runs[0] == runs[1]


def view(name: int, *, lag: int = 0, reach: int = 16, remaining: int = 300) -> View:
    return View(name, 0, reach, remaining, {"model": Source(lag)})


def step(choice: Choice, kept: int) -> Step:
    """A step on a machine without noise."""
    drafting = {choice.drafter: 0.25 * ROW_SECONDS * choice.gamma} if choice.drafter else {}
    return Step([Outcome(choice, choice.gamma, kept, kept + 1)], ROW_SECONDS * CPU[choice.gamma], drafting)


def trained(acceptance: float, steps: int = 200) -> Controller:
    """A controller that has seen request 0 for so many steps."""
    target = Cost(shape_of(CPU))
    controller = Controller(target, {"model": Helper(Cost(shape_of(CPU, 0.25 * ROW_SECONDS), beside=target))})
    good, position = coin(acceptance, 4), 0
    for _ in range(steps):
        choice = controller.plan([view(0)])[0]
        kept = next((place for place in range(choice.gamma) if not good(position + place)), choice.gamma)
        controller.observe(step(choice, kept))
        position += kept + 1
    return controller


def mean(numbers: Sequence[int]) -> float:
    return sum(numbers) / len(numbers)
