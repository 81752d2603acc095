"""What an engine tells of its steps is what its answers say of themselves."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from soothsay import Completion, Engine, Sampling
from soothsay.assemble import DRAFT_TOP_K, Parts, assemble
from soothsay.core import Capacity
from soothsay.draft.model import ModelDrafter
from soothsay.load import Loaded
from soothsay.record import Drafted, Record
from soothsay.schedule.policy import FixedGamma
from soothsay.text.tokenizer import Tokenizer
from tests.engines import ScriptModel, SpyDrafter, SpyModel, assert_at_rest, drafters, plain

PROMPTS = [[1, 2, 3, 1, 2, 3, 1, 2], [4, 4], [0, 5] * 150]


def parts(model: SpyModel, gamma: int = 3, clock: Callable[[], float] = time.perf_counter) -> Parts:
    drafter = drafters(model)["alike"]
    return assemble(model, drafter, gamma, threads=None, top_k=DRAFT_TOP_K, requantise=True, clock=clock)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_records_add_up_to_the_stats(temperature: float) -> None:
    model, records = SpyModel(), list[Record]()
    sampling = Sampling(max_tokens=30, temperature=temperature, seed=5)
    answers: list[Completion] = Engine.of(parts(model), watch=records.append).generate(PROMPTS, sampling)
    stats = [answer.stats for answer in answers]
    drafts = [draft for record in records for draft in record.drafts]
    assert [sum(record.rows for record in records)] == [sum(model.fed)]
    assert sum(draft.emitted for draft in drafts) == sum(one.tokens for one in stats)
    assert sum(draft.drafted for draft in drafts) == sum(one.drafted for one in stats) > 0
    assert sum(draft.accepted for draft in drafts) == sum(one.accepted for one in stats) > 0
    assert len(drafts) == sum(one.steps for one in stats)
    assert {draft.drafter for draft in drafts} == {"object", None}
    assert sum(record.verify_seconds for record in records) == pytest.approx(sum(one.verify_seconds for one in stats))
    assert [answer.tokens for answer in answers] == [plain(model, prompt, sampling) for prompt in PROMPTS]


def test_seconds_are_those_of_the_clock() -> None:
    """The pass takes 10 s and a draft 1 s by this clock; each must be in its own place."""
    now, records = [0.0], list[Record]()
    model = SpyModel()

    def spend(seconds: float) -> None:
        now[0] += seconds

    drafter, model.after = SpyDrafter(drafters(model)["alike"]), lambda: spend(10.0)
    drafter.before = lambda: spend(1.0)
    made = replace(parts(model, clock=lambda: now[0]), drafters={"object": drafter})
    Engine.of(made, clock=lambda: now[0], watch=records.append).generate([1, 2, 3], Sampling(max_tokens=6))
    assert {record.target_seconds for record in records} == {10.0}
    assert {record.draft_seconds for record in records} == {0.0, 1.0}
    assert {record.verify_seconds for record in records} == {0.0}


def test_an_end_inside_an_accepted_run_is_not_passed() -> None:
    """Four drafted tokens are what the target would say, but its text ends with the second of them."""
    model, records = ScriptModel([0, 1, 2, 2, 3, 2, 2, 2, 2]), list[Record]()
    words = Tokenizer(["a", "b", "c", "<end>"], [1, 1, 1, 3], [], pre="smollm", end_ids=[3])
    drafter = ModelDrafter(ScriptModel(model.script), model.vocab_size)
    made = Parts(model, Loaded(model, words, None, Path()), {"model": drafter}, FixedGamma("model", 4))
    answer = Engine.of(made, watch=records.append).generate([0, 1], Sampling(max_tokens=20))
    assert (answer.tokens, answer.stats.accepted) == ((2, 2, 3), 2)
    assert [record.drafts for record in records] == [(Drafted(None, 0, 0, 1),), (Drafted("model", 4, 2, 2),)]


def test_without_kept_prefixes_the_second_answer_starts_anew() -> None:
    model = SpyModel()
    engine = Engine.of(parts(model), capacity=Capacity(kept_prefixes=0))
    cached = [engine.generate(PROMPTS[0], Sampling(max_tokens=4)).stats.cached_tokens for _ in range(2)]
    assert cached == [0, 0]
    assert_at_rest(engine, model)
    assert model.open_slots == 0
