"""How far ahead: the controller on a simulated machine, against the best constant gamma in hindsight."""

from collections.abc import Callable, Hashable, Sequence
from math import exp, log

import pytest

from soothsay.schedule.cost import Cost, Shape
from soothsay.schedule.gamma import DEBT_SHARE, DEBT_STEPS, GAP_STEPS, INSURED_SHARE, INSURED_STEPS, Controller
from soothsay.schedule.plan import Helper
from soothsay.schedule.survival import Survival
from soothsay.schedule.views import Choice, Outcome, Source, Step, View
from tests.schedule.simulator import CPU, DRAFT, EXPENSIVE, FREE, ROW_SECONDS, Coin, Machine, Text, coin, shape_of
from tests.schedule.traces import Trace, traces
from tests.schedule.traces import text as recorded

TABLES = {"free": FREE, "cpu": CPU, "expensive": EXPENSIVE}
DRAFTERS = {"ngram": 0.0, "model": 0.25, "light": 0.1}
PAIR = {"ngram": 0.0, "model": 0.3}
SEEDS = (1, 2, 3)


# Recorded answers


def plain_seconds(trace: Trace) -> float:
    return Machine(CPU, PAIR).run_fixed([recorded(trace)], None, 0)


def fixed_speedups(found: Sequence[Trace], gamma: int) -> list[float]:
    return [
        plain_seconds(trace) / Machine(CPU, PAIR).run_fixed([recorded(trace, ngram=False)], "model", gamma)
        for trace in found
    ]


def best_fixed(found: Sequence[Trace]) -> float:
    return max(mean_ratio(fixed_speedups(found, gamma)) for gamma in range(1, 7))


def cold_speedups(found: Sequence[Trace]) -> list[float]:
    """Each answer by an engine that has seen nothing before."""
    machines = [Machine(CPU, PAIR, seed=seed) for seed, _ in enumerate(found)]
    return [
        plain_seconds(trace) / machine.run([recorded(trace)], machine.controller())
        for trace, machine in zip(found, machines, strict=True)
    ]


def warm_speedups(found: Sequence[Trace]) -> list[float]:
    """One answer after the other by one engine, which has seen one more before."""
    machine = Machine(CPU, PAIR, seed=1)
    controller = machine.controller()
    machine.run([recorded(found[-1], "before")], controller)
    return [plain_seconds(trace) / machine.run([recorded(trace, name)], controller) for name, trace in enumerate(found)]


def mean_ratio(ratios: Sequence[float]) -> float:
    return exp(sum(map(log, ratios)) / len(ratios))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("category", ["coding", "math_reasoning"])
def test_recorded_answers_are_as_fast_as_with_the_best_gamma_in_hindsight(category: str, temperature: float) -> None:
    """Which has read the whole prompt, has stalled the second token for it, and makes longer gaps than are allowed."""
    found = traces(category, temperature)
    best = best_fixed(found)
    assert mean_ratio(warm_speedups(found)) > 0.99 * best
    assert mean_ratio(cold_speedups(found)) > 0.97 * best


def test_a_draft_that_stops_by_itself_beats_any_fixed_length() -> None:
    found = [*traces("coding", 0.0), *traces("math_reasoning", 0.0)]
    assert mean_ratio(warm_speedups(found)) > 1.04 * best_fixed(found)


def test_ngrams_take_over_where_a_text_repeats() -> None:
    found = traces("summarization", 0.0)
    assert mean_ratio(warm_speedups(found)) > 1.5 * best_fixed(found)


def test_wild_answers_are_hardly_slower() -> None:
    """Temperature 1.5, where nearly every guess fails: a mean over answers of 49 to 128 tokens."""
    found = traces("writing", 1.5)
    assert mean_ratio(cold_speedups(found)) > 0.97
    assert mean_ratio(warm_speedups(found)) > 0.97


@pytest.mark.parametrize(
    ("category", "temperature"), [("coding", 0.0), ("math_reasoning", 0.0), ("writing", 0.0), ("writing", 1.5)]
)
def test_a_recorded_batch_is_as_fast_as_with_the_best_gamma(category: str, temperature: float) -> None:
    found, ratios = traces(category, temperature), []
    for start in range(0, len(found) - 3, 2):
        batch = [recorded(trace, name, ngram=False) for name, trace in enumerate(found[start : start + 4])]
        best = min(Machine(CPU, PAIR).run_fixed(anew(batch), "model", gamma) for gamma in range(4))
        ratios.append(best / run(Machine(CPU, PAIR), found[start : start + 4]))
    assert mean_ratio(ratios) > 0.97


def anew(batch: Sequence[Text]) -> list[Text]:
    return [Text(text.name, text.tokens, text.guessers, text.prompt) for text in batch]


def run(machine: Machine, found: Sequence[Trace]) -> float:
    return machine.run([recorded(trace, name) for name, trace in enumerate(found)], machine.controller())


@pytest.mark.parametrize("category", ["coding", "math_reasoning", "summarization"])
def test_no_step_takes_longer_than_three_plain_ones(category: str) -> None:
    """Reading included, whatever the length of the prompt."""
    for trace in traces(category, 0.0):
        machine = Machine(CPU, PAIR, noise=0.0)
        run(machine, [trace])
        longest_plain = ROW_SECONDS * (1 + 9e-5 * (trace["prompt_tokens"] + trace["tokens"]))
        assert machine.longest < (GAP_STEPS + 0.05) * longest_plain


# Coins


def text(
    acceptance: float | Callable[[int], float],
    tokens: int,
    seed: int,
    drafter: str,
    name: int = 0,
    sure: float | None = None,
) -> Text:
    match = 8 if drafter == "ngram" else 0
    return Text(name, tokens, {drafter: Coin(coin(acceptance, seed), lambda position: match, sure)})


def fixed_seconds(
    v: Sequence[float], acceptance: float | Callable[[int], float], tokens: int, drafter: str, gamma: int
) -> float:
    """Seconds at a constant gamma, all seeds together: the best of these has foreseen the mean, not the luck."""
    return sum(
        Machine(v, DRAFTERS, seed=seed).run_fixed([text(acceptance, tokens, seed, drafter)], drafter, gamma)
        for seed in SEEDS
    )


def legal_gammas(v: Sequence[float], drafter: str) -> list[int]:
    """Those that make no gap longer than the controller may."""
    return [gamma for gamma in range(13) if v[gamma] + gamma * DRAFTERS[drafter] <= 0.95 * GAP_STEPS]


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
        best = min(fixed_seconds(v, acceptance, 400, drafter, gamma) for gamma in legal_gammas(v, drafter))
        ratios.append(best / auto_seconds(v, acceptance, 400, drafter, warm=300))
    assert sum(ratios) / len(ratios) > 0.97
    assert min(ratios) > 0.9


@pytest.mark.parametrize("tokens", [64, 128, 500])
@pytest.mark.parametrize("sure", [None, 0.3, 0.95])
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("table", TABLES)
def test_a_text_on_which_every_guess_fails_is_hardly_slower(
    table: str, drafter: str, sure: float | None, tokens: int
) -> None:
    """Promise 2, from the very first text of an engine on, the draft's reading included, however sure it is."""
    plain = Machine(TABLES[table], DRAFTERS, noise=0).run_fixed([text(0.0, tokens, 1, drafter)], drafter, 0)
    machine = Machine(TABLES[table], {drafter: DRAFTERS[drafter]}, noise=0)
    assert plain / machine.run([text(0.0, tokens, 1, drafter, sure=sure)], machine.controller()) > 0.97


@pytest.mark.parametrize("sure", [None, 0.8])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_hopeless_text_after_good_ones_is_hardly_slower(drafter: str, sure: float | None) -> None:
    """What others saved may be staked, and that is bounded."""
    machine = Machine(CPU, {drafter: DRAFTERS[drafter]})
    controller = machine.controller()
    machine.run([text(0.85, 600, 5, drafter, sure=sure)], controller)
    seconds = machine.run([text(0.0, 200, 6, drafter, name=1, sure=sure)], controller)
    plain = Machine(CPU, DRAFTERS).run_fixed([text(0.0, 200, 6, drafter)], drafter, 0)
    assert plain / seconds > 0.95


@pytest.mark.parametrize(
    ("drafter", "sure", "least"), [("ngram", None, 0.93), ("model", None, 0.95), ("model", 0.8, 0.93)]
)
def test_a_good_draft_turns_bad_and_back(drafter: str, sure: float | None, least: float) -> None:
    """Within so many tokens of either turn, the pace is that of the new state, even where the drafter stays as sure."""
    for seed in SEEDS:
        machine = Machine(CPU, {drafter: DRAFTERS[drafter]}, seed=seed)
        changing = text(lambda position: 0.0 if 300 < position < 500 else 0.85, 900, seed, drafter, sure=sure)
        machine.run([changing], machine.controller())
        good, bad = machine.pace(150, 300), machine.pace(380, 500)
        assert bad > least * Machine(CPU, DRAFTERS, seed=seed).plain_pace()
        assert machine.pace(580, 900) > 0.8 * good


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
        choices = controller.plan([view(name) for name in range(crowd)])
        gammas.append(mean([choice.gamma for choice in choices]))
    assert gammas == sorted(gammas, reverse=True)
    assert gammas[0] >= 3
    assert gammas[-1] < 1


def test_rows_of_prompts_make_drafts_dearer() -> None:
    alone, beside = trained(0.92).plan([view(0)])[0], trained(0.92).plan([view(0)], other_rows=100)[0]
    assert 0 < beside.gamma <= alone.gamma
    assert alone.patience.least < beside.patience.least


def test_who_has_most_to_go_is_drafted_for_first() -> None:
    """The last one of a batch has the machine for itself, and nobody gains by it: they should end together."""
    late_and_early = [view(0, remaining=400), *(view(name, remaining=200) for name in (1, 2, 3))]
    gammas = [choice.gamma for choice in trained(0.92).plan(late_and_early)]
    assert gammas[0] > max(gammas[1:])


def test_each_half_of_a_text_has_its_drafter() -> None:
    def halves(names: Sequence[str], seed: int) -> Text:
        guessers = {
            "model": Coin(coin(0.75, seed)),
            "ngram": Coin(
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


@pytest.mark.parametrize(("prior", "least"), [(0.5, 0.85), (0.99, 0.9)])
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


def test_reading_leaves_room_for_a_guess_and_grows_with_what_was_saved() -> None:
    fresh, rich = trained(0.95, steps=0).plan([view(0, lag=1000)])[0], trained(0.95).plan([view(0, lag=1000)])[0]
    assert fresh.window is not None
    assert rich.window is not None
    assert 10 < fresh.window < rich.window < 60
    reading = 0.25 * (DRAFT[rich.window] - 1)
    assert reading + 0.25 + CPU[1] <= GAP_STEPS
    assert trained(0.95).plan([view(0, lag=5)])[0].read_tokens == 5


@pytest.mark.parametrize("saved", [0, 200])
@pytest.mark.parametrize("lag", [0, 500])
@pytest.mark.parametrize("slow", [1.0, 1.6])
def test_debt_is_never_beyond_the_line(saved: int, lag: int, slow: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the estimates say: here they say that all is well, and every draft fails.

    A drafter that is slower than its costs say is charged what it took: no more than one draft's surprise is beyond.
    """
    controller = trained(0.9, steps=saved)
    insured = min(INSURED_SHARE * controller._saved, INSURED_STEPS * ROW_SECONDS)
    monkeypatch.setattr(Survival, "acceptance", lambda *_: 0.95)
    lost = elapsed = surprise = 0.0
    for _ in range(400):
        choice = controller.plan([view("other", lag=lag)])[0]
        reading = DRAFT[choice.read_tokens] - 1
        drafting = slow * 0.25 * (choice.gamma + reading) * ROW_SECONDS if choice.drafter else 0.0
        target = CPU[choice.gamma] * ROW_SECONDS
        lost, elapsed = lost + drafting + target - ROW_SECONDS, elapsed + ROW_SECONDS
        surprise = max(surprise, (1 - 1 / slow) * drafting)
        assert lost <= DEBT_SHARE * elapsed + DEBT_STEPS * ROW_SECONDS + insured + surprise + 1e-9
        timed = {choice.drafter: drafting} if choice.drafter else {}
        controller.observe(Step([Outcome(choice, choice.gamma, 0, 1)], target, timed))
    assert lost > DEBT_STEPS * ROW_SECONDS


def test_a_drafter_that_is_sure_is_given_its_head_and_a_price() -> None:
    """Where it has no confidence, the plan is all there is."""
    machine = Machine(CPU, {"model": 0.25}, seed=2)
    for sure, alike in ((None, True), (0.8, False)):
        controller = machine.controller()
        machine.run([text(0.75, 200, 3, "model", sure=sure)], controller)
        short, long = (controller.plan([view(0, reach=reach)])[0] for reach in (8, 16))
        assert (short.gamma < 5) == alike
        assert 0.4 < long.patience.least < 1
        assert long.patience.chance(0.85) == pytest.approx(0.75 if sure else 0.85, abs=0.05)


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
        both = {"model": Coin(coin(0.7, 1)), "ngram": Coin(coin(0.4, 2), lambda position: position % 9)}
        machine.run([Text(0, 400, both)], machine.controller())
        runs.append(machine.gammas)
    assert runs[0] == runs[1]


def view(name: Hashable, *, lag: int = 0, reach: int = 16, remaining: int = 300) -> View:
    return View(name, 0, reach, remaining, {"model": Source(lag)})


def step(choice: Choice, kept: int) -> Step:
    """A step on a machine without noise."""
    drafting = {choice.drafter: 0.25 * ROW_SECONDS * choice.gamma} if choice.drafter else {}
    return Step([Outcome(choice, choice.gamma, kept, kept + 1)], ROW_SECONDS * CPU[choice.gamma], drafting)


def trained(acceptance: float, steps: int = 200) -> Controller:
    """A controller that has seen request 0 for so many steps."""
    target = Cost(shape_of(CPU))
    controller = Controller(target, {"model": Helper(Cost(shape_of(DRAFT, 0.25 * ROW_SECONDS), beside=target), 0.85)})
    good, position = coin(acceptance, 4), 0
    for _ in range(steps):
        choice = controller.plan([view(0)])[0]
        kept = next((place for place in range(choice.gamma) if not good(position + place)), choice.gamma)
        controller.observe(step(choice, kept))
        position += kept + 1
    return controller


def mean(numbers: Sequence[int]) -> float:
    return sum(numbers) / len(numbers)
