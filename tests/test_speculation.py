"""Between engine and policy: the right drafter hears the right question, and the policy hears what came of it."""

from collections.abc import Hashable, Mapping, Sequence

import pytest

from soothsay.draft.base import Ask, Draft, Outlook, Reader
from soothsay.model.base import Slot
from soothsay.patience import Patience
from soothsay.request import Request
from soothsay.sampling import Sampling
from soothsay.schedule.scheduler import Turn
from soothsay.schedule.views import Choice, Outcome, Source, Step, View
from soothsay.speculation import Speculation
from soothsay.text.stream import TextStream
from soothsay.text.tokenizer import Wordless
from soothsay.verify.noise import Noise
from soothsay.verify.rules import Rule, verifier


class Now:
    """A clock that only moves when it is told to."""

    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


class ScriptDrafter:
    """Answers each ask with `gamma` times its token, which takes it `price` seconds a call."""

    def __init__(self, token: int, clock: Now, price: float, first_reader: int, outlook: Outlook | None) -> None:
        self._token, self._clock, self._price, self._outlook = token, clock, price, outlook
        self._next = first_reader
        self.held: list[Reader] = []
        self.calls: list[list[Ask]] = []

    def open(self) -> Reader:
        self._next += 1
        self.held.append(Reader(self._next))
        return self.held[-1]

    def outlook(self, reader: Reader, context: Sequence[int]) -> Outlook | None:
        assert reader in self.held
        return self._outlook

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        self._clock.seconds += self._price
        self.calls.append(list(asks))
        return [Draft((self._token,) * ask.gamma, confidences=(self._price / 10,) * ask.gamma) for ask in asks]

    def close(self, reader: Reader) -> None:
        self.held.remove(reader)


class ScriptPolicy:
    """Chooses what it was told to, request by request, and writes down what it hears."""

    def __init__(self, wanted: Sequence[tuple[str | None, int]]) -> None:
        self._wanted = wanted
        self.plans: list[tuple[list[View], int]] = []
        self.steps: list[Step] = []
        self.forgotten: list[Hashable] = []

    def plan(self, views: Sequence[View], other_rows: int = 0) -> list[Choice]:
        self.plans.append((list(views), other_rows))
        return [
            Choice(view, drafter, gamma, 100 + gamma, Patience(gamma / 10)) if drafter else Choice(view)
            for view, (drafter, gamma) in zip(views, self._wanted, strict=True)
        ]

    def observe(self, step: Step) -> None:
        self.steps.append(step)

    def prompt_rows(self, decoding: int) -> int:
        return 10

    def pass_seconds(self, rows: int, sequences: int) -> float | None:
        return None

    def debt_seconds(self, request: Hashable) -> float | None:
        return None

    def forget(self, request: Hashable) -> None:
        self.forgotten.append(request)


def request(context: list[int], readers: Mapping[str, Reader], emitted: int = 0) -> Request:
    return Request(
        number=0,
        context=context,
        prompt_tokens=len(context) - emitted,
        max_tokens=20,
        sampling=Sampling(seed=len(context)),
        adjust=None,
        seed=0,
        verifier=verifier(Rule.COUPLED, Noise(0)),
        slot=Slot(0),
        readers=readers,
        words=TextStream(Wordless(), (), 20),
        max_length=100,
        cached_tokens=0,
        started=0.0,
    )


def decoding(sequence: Request, reach: int = 9) -> Turn[Request]:
    return Turn(sequence, sequence.context[-1:], complete=True, reach=reach)


def drafters(clock: Now) -> dict[str, ScriptDrafter]:
    return {
        "near": ScriptDrafter(1, clock, 0.5, 10, Outlook(lag_tokens=7, match=3)),
        "far": ScriptDrafter(2, clock, 2.0, 50, Outlook()),
        "mute": ScriptDrafter(3, clock, 9.0, 90, None),
    }


def test_each_drafter_is_asked_once_for_all_its_requests() -> None:
    clock = Now()
    helpers, policy = drafters(clock), ScriptPolicy([("far", 2), ("near", 1), (None, 0), ("far", 3)])
    speculation = Speculation(helpers, policy, clock)
    requests = [request([4] * length, speculation.open(), emitted=2) for length in (3, 4, 5, 6)]
    proposal = speculation.propose([decoding(one) for one in requests])
    assert [draft.tokens for draft in proposal.drafts] == [(2, 2), (1,), (), (2, 2, 2)]
    assert proposal.seconds == {"far": 2.0, "near": 0.5}
    ((near,),) = helpers["near"].calls
    (far,) = helpers["far"].calls
    assert helpers["mute"].calls == []
    for ask, one, gamma, name in [(near, requests[1], 1, "near"), *zip(far, requests[::3], (2, 3), ["far"] * 2)]:  # noqa: B905
        assert (ask.reader, ask.gamma, ask.sampling) == (one.readers[name], gamma, one.sampling)
        assert ask.context is one.context
        assert (ask.window, ask.patience) == (100 + gamma, Patience(gamma / 10))
    ((views, other_rows),) = policy.plans
    assert other_rows == 0
    assert [(view.request, view.context, view.reach, view.remaining) for view in views] == [
        (one, len(one.context), 9, 18) for one in requests
    ]
    assert all(view.sources == {"near": Source(7, 3), "far": Source()} for view in views)


def test_prompts_that_are_read_are_other_rows_and_nobody_drafts_for_them() -> None:
    clock = Now()
    helpers, policy = drafters(clock), ScriptPolicy([("near", 2)])
    speculation = Speculation(helpers, policy, clock)
    reading, ending, running = (request([4] * length, speculation.open()) for length in (9, 8, 5))
    turns = [Turn(reading, [4] * 6, False, 9), decoding(running), Turn(ending, [4] * 3, True, 9)]
    proposal = speculation.propose(turns)
    assert [draft.tokens for draft in proposal.drafts] == [(), (1, 1), ()]
    assert [(len(views), rows) for views, rows in policy.plans] == [(1, 9)]
    speculation.learn(proposal, {1: (0, 1), 2: (0, 1)}, 3.0)
    (step,) = policy.steps
    assert (len(step.outcomes), step.other_rows) == (1, 9)


def test_the_policy_hears_what_became_of_each_choice() -> None:
    clock = Now()
    policy = ScriptPolicy([("far", 4), (None, 0), ("near", 2)])
    speculation = Speculation(drafters(clock), policy, clock)
    turns = [decoding(request([4] * length, speculation.open())) for length in (3, 4, 5)]
    proposal = speculation.propose(turns)
    speculation.learn(proposal, {0: (3, 2), 1: (0, 1), 2: (2, 3)}, 6.5)
    first, second, third = (proposal.choices[place] for place in range(3))
    assert policy.steps == [
        Step(
            [Outcome(first, 4, 3, 2, (0.2,) * 4), Outcome(second, 0, 0, 1), Outcome(third, 2, 2, 3, (0.05,) * 2)],
            6.5,
            {"far": 2.0, "near": 0.5},
            0,
        )
    ]


def test_a_step_without_a_decoding_request_is_no_lesson() -> None:
    clock = Now()
    policy = ScriptPolicy([])
    speculation = Speculation(drafters(clock), policy, clock)
    turn = Turn(request([4] * 9, speculation.open()), [4] * 9, complete=True, reach=9)
    speculation.learn(speculation.propose([turn]), {0: (0, 1)}, 1.0)
    assert (policy.plans, policy.steps) == ([], [])


def test_readers_are_given_back_and_the_policy_forgets() -> None:
    clock = Now()
    helpers, policy = drafters(clock), ScriptPolicy([])
    speculation = Speculation(helpers, policy, clock)
    one, other = (request([1, 2], speculation.open()) for _ in range(2))
    speculation.close(one)
    assert {name: drafter.held for name, drafter in helpers.items()} == {
        name: [reader] for name, reader in other.readers.items()
    }
    assert policy.forgotten == [one]


def test_a_drafter_that_cannot_start_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Now()
    helpers = drafters(clock)

    def fail() -> Reader:
        raise MemoryError

    monkeypatch.setattr(helpers["mute"], "open", fail)
    with pytest.raises(MemoryError):
        Speculation(helpers, ScriptPolicy([]), clock).open()
    assert [drafter.held for drafter in helpers.values()] == [[], [], []]
