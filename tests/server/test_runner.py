"""The runner: the engine on a thread of its own, driven by orders; nobody waits for a listener, none is forgotten."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from soothsay.assemble import Parts
from soothsay.completion import Completion, Piece
from soothsay.engine import Engine
from soothsay.errors import ModelError
from soothsay.sampling import Sampling
from soothsay.schedule.policy import FixedGamma
from soothsay.server.refusals import Broken, Busy, Leaving
from soothsay.server.runner import Order, Runner
from tests.engines import SpyModel, assert_at_rest, plain

SAMPLING = Sampling(temperature=1.0, seed=3, max_tokens=20)
PROMPTS = [[1, 2, 3], [4, 4], [5, 5, 5, 5], [2, 1], [0, 0]]
PATIENCE = 20.0


class Ear:
    """A listener that keeps what it hears; after `full` pieces it wants no more."""

    def __init__(self, full: int = 1000) -> None:
        self.heard: list[Piece] = []
        self.error: Exception | None = None
        self.ended = threading.Event()
        self._full = full

    def hear(self, pieces: Sequence[Piece]) -> bool:
        self.heard += pieces
        if pieces[-1].completion is not None:
            self.ended.set()
        return len(self.heard) < self._full

    def fail(self, error: Exception) -> None:
        self.error = error
        self.ended.set()

    def tokens(self) -> tuple[int, ...]:
        assert self.ended.wait(PATIENCE)
        return tuple(piece.token for piece in self.heard)


class Tally:
    """A watcher that counts how orders end."""

    def __init__(self) -> None:
        self.answered_orders = 0
        self.others: list[str] = []

    def answered(self, completion: Completion, waited_seconds: float) -> None:
        assert waited_seconds >= 0
        self.answered_orders += 1

    def unanswered(self, why: str) -> None:
        self.others.append(why)


class Gate:
    """Lets a model's passes through one by one."""

    def __init__(self, model: SpyModel) -> None:
        self.reached, self._go = threading.Semaphore(0), threading.Semaphore(0)
        model.before = self._wait

    def _wait(self) -> None:
        self.reached.release()
        assert self._go.acquire(timeout=PATIENCE)

    def arrive(self) -> None:
        """Wait until a pass is about to begin."""
        assert self.reached.acquire(timeout=PATIENCE)

    def let(self, passes: int = 1000) -> None:
        self._go.release(passes)


class Setup:
    """A runner over a table model, and what there is to look at."""

    def __init__(self, max_batch: int, max_queue: int) -> None:
        self.model, self.tally = SpyModel(), Tally()
        self.engine = Engine.of(Parts(self.model, None, {}, FixedGamma(None, 0)))
        self.runner = Runner(self.engine, self.tally, max_batch=max_batch, max_queue=max_queue)

    def order(self, prompt: Sequence[int], ear: Ear, sampling: Sampling = SAMPLING) -> Order:
        order = Order(prompt, sampling, ear)
        self.runner.submit([order])
        return order


@contextmanager
def running(max_batch: int = 2, max_queue: int = 8) -> Iterator[Setup]:
    """Everything is at rest in the end, whatever happened."""
    setup = Setup(max_batch, max_queue)
    setup.runner.start()
    try:
        yield setup
    finally:
        setup.model.before = lambda: None
        setup.runner.stop()
    assert not setup.runner.alive
    assert (setup.runner.running, setup.runner.waiting) == (0, 0)
    assert_at_rest(setup.engine, setup.model)


def test_every_order_is_answered_as_it_would_be_alone() -> None:
    with running() as setup:
        ears = [Ear() for _ in PROMPTS]
        for prompt, ear in zip(PROMPTS, ears, strict=True):
            setup.order(prompt, ear)
        for prompt, ear in zip(PROMPTS, ears, strict=True):
            assert ear.tokens() == plain(setup.model, prompt, SAMPLING)
            assert ear.error is None
    assert setup.tally.answered_orders == len(PROMPTS)
    assert setup.tally.others == []


def test_first_come_first_served_and_no_more_at_once_than_the_batch() -> None:
    with running(max_batch=2) as setup:
        gate = Gate(setup.model)
        ears = [Ear() for _ in PROMPTS]
        setup.order(PROMPTS[0], ears[0])
        gate.arrive()
        for prompt, ear in zip(PROMPTS[1:], ears[1:], strict=True):
            setup.order(prompt, ear)
        gate.let()
        for ear in ears:
            ear.tokens()
        assert max(len(feeds) for feeds in setup.model.passes) == 2
        first_fed = [next(i for i, feeds in enumerate(setup.model.passes) if _feeds(feeds, p)) for p in PROMPTS]
        assert first_fed == sorted(first_fed)


def _feeds(feeds: Sequence[object], prompt: Sequence[int]) -> bool:
    return any(list(feed.tokens) == list(prompt) for feed in feeds)  # type: ignore[attr-defined]


def test_a_full_line_refuses_all_of_a_request_or_none() -> None:
    with running(max_batch=1, max_queue=2) as setup:
        gate = Gate(setup.model)
        ears = [Ear() for _ in range(3)]
        setup.order([1], ears[0])
        gate.arrive()
        setup.order([2], ears[1])
        with pytest.raises(Busy, match="2 answers are running or waiting, of at most 3") as caught:
            setup.runner.submit([Order([3], SAMPLING, Ear()), Order([4], SAMPLING, Ear())])
        assert caught.value.headers["Retry-After"].isdigit()
        assert setup.runner.waiting == 1
        setup.order([3], ears[2])  # one fits
        gate.let()
        assert [len(ear.tokens()) for ear in ears] == [20, 20, 20]


@pytest.mark.parametrize("waiting", [False, True])
def test_a_cancelled_order_takes_no_part_in_the_next_step(waiting: bool) -> None:
    with running(max_batch=1 if waiting else 2) as setup:
        gate = Gate(setup.model)
        stays, goes = Ear(), Ear()
        setup.order([1, 1], stays)
        gate.arrive()
        order = setup.order([2, 2], goes)
        gate.let(1)
        gate.arrive()
        assert len(setup.model.passes[-1]) == 1
        setup.runner.cancel([order])
        gate.let(1)
        gate.arrive()
        before = len(setup.model.passes)
        gate.let()
        assert stays.tokens() == plain(setup.model, [1, 1], SAMPLING)
        assert {len(feeds) for feeds in setup.model.passes[before:]} == {1}
        assert not goes.ended.is_set()
    assert setup.tally.others == ["cancelled"]


def test_a_listener_that_wants_no_more_is_let_go_alone() -> None:
    with running() as setup:
        patient, sated = Ear(), Ear(full=3)
        setup.order([1], patient)
        setup.order([2], sated)
        assert patient.tokens() == plain(setup.model, [1], SAMPLING)
    assert 3 <= len(sated.heard) <= 4
    assert setup.tally.others == ["cancelled"]


@pytest.mark.parametrize(
    ("error", "told"),
    [(ModelError("a row of NaN"), "the model failed: a row of NaN"), (KeyError("x"), "the engine failed")],
)
def test_a_failed_step_is_told_to_those_in_it_and_the_next_order_runs(error: Exception, told: str) -> None:
    def fail() -> None:
        raise error

    with running() as setup:
        setup.model.before = fail
        ears = [Ear(), Ear()]
        for ear in ears:
            setup.order([1], ear)
        for ear in ears:
            assert ear.ended.wait(PATIENCE)
            assert isinstance(ear.error, Broken)
            assert ear.error.message == told
        setup.model.before = lambda: None
        after = Ear()
        setup.order([1], after)
        assert after.tokens() == plain(setup.model, [1], SAMPLING)


def test_an_order_that_the_engine_refuses_is_told_alone() -> None:
    with running() as setup:
        refused, taken = Ear(), Ear()
        broken = setup.model.open

        def open_once() -> object:
            setup.model.open = broken  # type: ignore[method-assign]
            raise ModelError("no room")

        setup.model.open = open_once  # type: ignore[method-assign, assignment]
        setup.runner.submit([Order([1], SAMPLING, refused), Order([2], SAMPLING, taken)])
        assert taken.tokens() == plain(setup.model, [2], SAMPLING)
        assert isinstance(refused.error, Broken)
        assert "no room" in refused.error.message


def test_draining_lets_answers_end_and_takes_no_more() -> None:
    with running() as setup:
        gate = Gate(setup.model)
        ear = Ear()
        setup.order([1], ear)
        gate.arrive()
        setup.runner.drain(1000)
        assert not setup.runner.accepting
        with pytest.raises(Leaving):
            setup.order([2], Ear())
        gate.let()
        assert ear.tokens() == plain(setup.model, [1], SAMPLING)


def test_whoever_has_not_ended_when_the_time_is_over_is_told() -> None:
    with running(max_batch=1) as setup:
        gate = Gate(setup.model)
        runs, waits = Ear(), Ear()
        setup.order([1], runs)
        gate.arrive()
        setup.order([2], waits)
        setup.runner.drain(-1)
        gate.let()
        for ear in (runs, waits):
            assert ear.ended.wait(PATIENCE)
            assert isinstance(ear.error, Leaving)
    assert setup.tally.others == ["failed", "failed"]
