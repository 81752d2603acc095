"""The controller at work: the same words whoever guesses and however far, and the parts it is made of."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from soothsay import Engine, OptionError, Sampling
from soothsay.assemble import DRAFT_TOP_K, Parts, assemble
from soothsay.calibrate import GREETINGS, READ_ROWS, VERIFIED_ROWS
from soothsay.draft.model import ModelDrafter
from soothsay.load import Loaded
from soothsay.model.base import Feed, Logits
from soothsay.schedule.gamma import Controller
from soothsay.schedule.policy import FixedGamma
from soothsay.schedule.scheduler import Scheduler
from soothsay.schedule.views import Step
from soothsay.text.tokenizer import Tokenizer
from tests.engines import SpyDrafter, SpyModel, assert_at_rest, drafters, plain, watch_cache

PROMPTS = [[1, 2, 3, 1, 2, 3, 1, 2], [4], [0, 5] * 40, [3, 3], [2, 4, 2, 4, 2]]
TOY = Tokenizer(["a", "b", "c", "d", "e", "ab"], [1] * 6, ["a b"], pre="smollm")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SOOTHSAY_CACHE", str(tmp_path))
    return tmp_path


def samplings(max_tokens: int) -> list[Sampling]:
    return [Sampling(temperature=temperature, seed=11, max_tokens=max_tokens) for temperature in (0.0, 0.8)]


@pytest.mark.parametrize("sampling", samplings(60), ids=["greedy", "warm"])
@pytest.mark.parametrize("batch", [1, 3, 32])
@pytest.mark.parametrize("kind", ["ngram", "alike", "unlike"])
def test_the_same_words_whatever_the_controller_chooses(
    kind: str, batch: int, sampling: Sampling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("soothsay.core.Scheduler", partial(Scheduler, max_batch=batch, chunk_tokens=16))
    model = SpyModel()
    drafter = SpyDrafter(drafters(model)[kind])
    engine = Engine(model, draft=drafter, gamma="auto", clock=lambda: 0.0)
    watch_cache(engine, model)
    answers = engine.generate(PROMPTS, sampling)
    assert [answer.tokens for answer in answers] == [plain(model, prompt, sampling) for prompt in PROMPTS]
    assert drafter.drafted > 20
    assert len({gamma for _, gamma in drafter.asked}) > 1 or batch == 32  # a wide pass has no room for long drafts
    assert_at_rest(engine, model, drafter)


def test_the_controller_hears_what_the_answers_say(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[Step] = []
    learn = Controller.observe

    def observe(self: Controller, step: Step) -> None:
        steps.append(step)
        learn(self, step)

    monkeypatch.setattr(Controller, "observe", observe)
    engine = Engine(model := SpyModel(), draft=drafters(model)["alike"], gamma="auto", clock=lambda: 0.0)
    answers = engine.generate(PROMPTS[:2], Sampling(temperature=0.8, seed=11, max_tokens=40))
    outcomes = [outcome for step in steps for outcome in step.outcomes]
    stats = [answer.stats for answer in answers]
    assert sum(outcome.drafted for outcome in outcomes) == sum(one.drafted for one in stats) > 20
    assert sum(outcome.accepted for outcome in outcomes) == sum(one.accepted for one in stats) > 10
    read = [one.prompt_tokens > 1 for one in stats]  # such a prompt's last pass emits, and is nobody's choice
    assert sum(outcome.emitted for outcome in outcomes) == sum(one.tokens for one in stats) - sum(read)


# By name


class Machine:
    """A clock that every pass of its models moves: a target's by 10, a draft model's by 1, each further row's by 2%."""

    def __init__(self) -> None:
        self.now = 0.0
        self.target = self._model(10.0)
        self.draft = self._model(1.0)
        self.draft._terms = self.target.blend(SpyModel(seed=77), 0.2)._terms
        self.requantised: list[bool] = []

    def clock(self) -> float:
        return self.now

    def _model(self, price: float) -> SpyModel:
        machine = self

        class Timed(SpyModel):
            def forward(self, feeds: Sequence[Feed]) -> list[Logits]:
                machine.now += price * (1 + 0.02 * sum(len(feed.tokens) for feed in feeds))
                return super().forward(feeds)

        return Timed()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()

    class FakeLoader:
        def __init__(self, threads: int | None) -> None:
            pass

        def target(self, name: str) -> Loaded:
            return Loaded(machine.target, TOY, None, Path(name))

        def draft_model(self, name: str, target: Loaded, *, requantise: bool) -> SpyModel:
            machine.requantised.append(requantise)
            return machine.draft

    monkeypatch.setattr("soothsay.assemble.Loader", FakeLoader)
    return machine


@pytest.mark.parametrize("sampling", samplings(80), ids=["greedy", "warm"])
def test_a_draft_model_and_ngrams_together_say_the_same_words(machine: Machine, sampling: Sampling) -> None:
    engine = Engine("big.gguf", draft="small.gguf", gamma="auto", clock=machine.clock)
    assert machine.draft.open_slots == 0
    watch_cache(engine, machine.target)
    answers = [*engine.generate(PROMPTS, sampling), engine.generate(PROMPTS[2], sampling)]
    wanted = [plain(machine.target, prompt, sampling) for prompt in [*PROMPTS, PROMPTS[2]]]
    assert [answer.tokens for answer in answers] == wanted
    assert all(answer.stats.drafted > 0 for answer in answers)
    assert_at_rest(engine, machine.target)
    assert machine.draft.open_slots == 0
    assert engine._speculation._policy._ledgers == {}  # type: ignore[attr-defined]  # a controller's


def made(
    machine: Machine, model: Any = "big.gguf", draft: Any = "small.gguf", gamma: Any = "auto", **more: Any
) -> Parts:
    options: dict[str, Any] = {"threads": None, "top_k": DRAFT_TOP_K, "requantise": True, "clock": machine.clock}
    return assemble(model, draft, gamma, **options | more)


@pytest.mark.parametrize(
    ("draft", "gamma", "names"),
    [
        ("none", 4, []),
        ("none", "auto", []),
        ("ngram", 4, ["ngram"]),
        ("ngram", "auto", ["ngram"]),
        ("auto", 4, ["ngram"]),
        ("small.gguf", 4, ["model"]),
        ("small.gguf", "auto", ["ngram", "model"]),
        (Path("small.gguf"), "auto", ["ngram", "model"]),
        ("self", 0, ["model"]),
    ],
)
def test_who_guesses(machine: Machine, draft: str | Path, gamma: Any, names: list[str]) -> None:
    parts = made(machine, draft=draft, gamma=gamma)
    assert (parts.model, [*parts.drafters]) == (machine.target, names)
    assert isinstance(parts.policy, Controller) == (gamma == "auto" and bool(names))
    if isinstance(parts.policy, FixedGamma) and names:
        assert parts.policy == FixedGamma(names[0], gamma)


def test_auto_takes_the_usual_draft_model_where_it_is_at_hand(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual: Callable[[object], Path | None] = {"big.gguf": Path("usual.gguf")}.get  # type: ignore[assignment]
    monkeypatch.setattr("soothsay.assemble.draft_partner", usual)
    assert [*made(machine, draft="auto", gamma=4, requantise=False).drafters] == ["model"]
    assert machine.requantised == [False]
    assert [*made(machine, "other.gguf", draft="auto", gamma=4).drafters] == ["ngram"]
    assert [*made(machine, SpyModel(), draft="auto", gamma="auto").drafters] == ["ngram"]


def test_auto_is_the_default(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("soothsay.assemble.draft_partner", lambda name: Path("usual.gguf"))
    speculation = Engine("big.gguf", clock=machine.clock)._speculation
    assert isinstance(speculation._policy, Controller)
    assert [*speculation._drafters] == ["ngram", "model"]


def test_a_draft_model_is_cut_as_asked(machine: Machine) -> None:
    for gamma in ("auto", 3):
        drafter = made(machine, gamma=gamma, top_k=5).drafters["model"]
        assert isinstance(drafter, ModelDrafter)
        assert drafter._top_k == 5


def test_passes_are_timed_once_a_model_and_only_for_the_controller(machine: Machine, cache: Path) -> None:
    made(machine, gamma=4)
    made(machine, draft="none")
    assert (machine.now, [*cache.iterdir()]) == (0, [])
    greeting = 10 * (1.02 + 1 + 0.02 * VERIFIED_ROWS) + 1.02 + 1 + 0.02 * READ_ROWS
    spent = []
    for draft in ("self", "self", "small.gguf"):
        begun = machine.now
        made(machine, draft=draft)
        spent.append(machine.now - begun)
    assert spent[0] > spent[2] > spent[1] == pytest.approx((GREETINGS + 1) * greeting)
    begun = machine.now
    made(machine, "bigger.gguf", "self")
    assert machine.now - begun == pytest.approx(spent[0])
    begun = machine.now
    made(machine, draft="ngram")
    assert machine.now == begun  # nobody to compare the target with


class OnlyProposes:
    def propose(self, asks: Any) -> None: ...


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draft": 3}, "draft is 3; it must be auto, none, ngram, self, a path, an alias or a drafter object"),
        ({"draft": OnlyProposes()}, "it must be auto, none, ngram, self, a path, an alias or a drafter object"),
        ({"gamma": "x"}, "gamma is 'x'; it must be auto, or an integer"),
        ({"draft": "auto", "top_k": None}, "draft_top_k and draft_requantise are options of draft models"),
        ({"draft": "ngram", "requantise": False}, "draft_top_k and draft_requantise are options of draft models"),
    ],
    ids=str,
)
def test_options_are_checked_before_anything_is_loaded(
    options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("soothsay.assemble.Loader", None)
    with pytest.raises(OptionError, match=message):
        made(Machine(), **options)
