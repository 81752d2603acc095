"""The audit finds nothing in a right engine, and each of six planted defects, at the stage where it was planted.

The defects are planted in the real engine, its drafters and its cache, by test doubles; only the models are small.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from soothsay.audit.fit import LEVEL
from soothsay.audit.law import Tree
from soothsay.audit.oracle import Oracle
from soothsay.audit.run import Plan, Report, audit, units
from soothsay.audit.subject import Subject
from soothsay.audit.witness import Witness
from soothsay.draft.base import Ask, Draft
from soothsay.draft.model import ModelDrafter
from soothsay.draft.ngram import NgramDrafter
from soothsay.engine import Engine
from soothsay.errors import OptionError
from soothsay.model.base import Feed, Logits, Slot
from soothsay.model.table import TableModel
from soothsay.request import Request
from soothsay.sampling import Adjustment, Law, Sampling, law
from soothsay.verify import rejection
from soothsay.verify.noise import Noise

VOCABULARY = 6
PROMPTS = ((0, 1, 2, 0, 1, 2, 0, 1), (3, 4, 3, 4, 3), (5, 1, 1, 2))
PLAN = Plan(temperatures=(0.0, 0.8), samples=1500, max_tokens=16)


def subject(model: TableModel | None = None, drafter: type[ModelDrafter] = ModelDrafter) -> Subject:
    target = model or TableModel(VOCABULARY, seed=5, sharpness=1.5)
    draft = TableModel(VOCABULARY, seed=5, sharpness=1.5).blend(TableModel(VOCABULARY, seed=6, sharpness=1.5), 0.4)
    return Subject(
        name="table",
        model=Witness(target),
        loaded=None,
        drafters={"ngram": NgramDrafter(), "model": drafter(draft, VOCABULARY, top_k=VOCABULARY - 1)},
        prompts=PROMPTS,
        contexts=PROMPTS,
    )


def said(report: Report) -> str:
    return "\n".join(f"{defect.stage}: {defect.what}" for defect in report.defects)


@pytest.fixture(scope="module")
def right() -> Report:
    return audit(subject(), PLAN)


def test_a_right_engine_passes(right: Report) -> None:
    assert (right.stage, right.ties) == (None, 0), said(right)
    assert {(one.rule, one.drafter) for one in right.laws} == {
        (rule, drafter) for rule in PLAN.rules for drafter in ("ngram", "model")
    }
    assert all(one.answers == len(PROMPTS) for one in right.equalities)
    assert sum(one.drafted for one in right.equalities) > 500
    assert all(0 < one.accepted < one.drafted for one in right.laws)
    assert all(one.fit.caught < 0.16 for one in right.laws)
    assert all(one.drafts is not None for one in right.laws if one.drafter == "model")
    assert all(one.fit.runs == PLAN.samples for one in right.laws)


def test_progress_is_told_to_the_end() -> None:
    ticks: list[str] = []
    plan = Plan(temperatures=(0.5,), rules=("block",), samples=200, max_tokens=4)
    audit(subject(), plan, ticks.append)
    assert len(ticks) == units(subject(), plan)


def whole_law(p: Law, q: Law, survival: float) -> NDArray[np.float64]:
    return np.exp(p.log_probabilities)


class OtherTemperature(ModelDrafter):
    """Says that its tokens come from a colder law than the one that they were drawn from."""

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [
            replace(draft, laws=tuple(map(_colder, draft.laws)) if draft.laws is not None else None)
            for draft in super().propose(asks)
        ]


def _colder(drawn_from: Law) -> Law:
    scores = 1.4 * drawn_from.log_probabilities
    return Law(drawn_from.ids, scores - np.log(np.exp(scores).sum()))


class DropsUnsure(ModelDrafter):
    """Leaves out a drawn token that it was not sure of: what stays in the draft is no longer drawn from its law."""

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [_sure(draft) for draft in super().propose(asks)]


def _sure(draft: Draft) -> Draft:
    for place, token in enumerate(draft.tokens):
        if draft.laws is not None and draft.laws[place].log_probability(token) < np.log(0.3):
            return Draft(draft.tokens[:place], draft.laws[:place])
    return draft


def one_too_many(self: Engine, request: Request) -> None:
    """The engine's own rollback, but that a rejected token stays in the cache in the place of the one that was kept."""
    model, wanted = self._model, len(request.context) - 1
    if (held := model.length(request.slot)) > wanted and wanted > request.prompt_tokens:
        kept = model.text(request.slot)[wanted]  # type: ignore[attr-defined]  # it is the audit's own witness
        model.truncate(request.slot, wanted - 1)
        model.forward([Feed(request.slot, [kept], 0)])
        held = wanted
    model.truncate(request.slot, min(held, wanted))
    if request.ended:
        self._retire(request)


class StaleCache(TableModel):
    """A cache that says that it forgot, and kept one token too many."""

    def __init__(self) -> None:
        super().__init__(VOCABULARY, seed=5, sharpness=1.5)
        self._stale: dict[Slot, list[int]] = {}

    def truncate(self, slot: Slot, length: int) -> None:
        forgotten = self._held[slot][length:]
        super().truncate(slot, length)
        if forgotten and length > 0:
            self._stale[slot] = [*self._held[slot][:-1], forgotten[0]]

    def forward(self, feeds: Sequence[Feed]) -> list[Logits]:
        for feed in feeds:
            if (stale := self._stale.pop(feed.slot, None)) is not None:
                self._held[feed.slot] = stale
        return super().forward(feeds)


def shorter_history(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, row, drafted=(): right(self, row, drafted[:-1])


def one_sample(self: Noise, words: Any) -> int:
    return RIGHT_HASH(replace(self, sample=0), words)


RIGHT_HASH = Noise._hash


def test_a_residual_from_p_is_found_in_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejection, "residual", whole_law)
    report = audit(subject(), replace(PLAN, rules=("token", "block")))
    assert report.stage == "verify", said(report)
    assert "law by token with model" in said(report)


@pytest.mark.parametrize("rule", ["token", "block"])
def test_a_draft_law_at_another_temperature_is_found_in_the_draft(rule: str) -> None:
    report = audit(subject(drafter=OtherTemperature), replace(PLAN, rules=(rule,), temperatures=(0.8,)))
    assert report.stage == "draft", said(report)


def test_an_unsure_token_left_out_under_block_is_found_in_the_draft() -> None:
    report = audit(subject(drafter=DropsUnsure), replace(PLAN, rules=("block",), temperatures=(0.8,)))
    assert report.stage == "draft", said(report)
    assert "law by block with model" in said(report)


def test_an_engine_that_rolls_back_one_token_too_few_is_found_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "_settle", one_too_many)
    report = audit(subject(), replace(PLAN, rules=("coupled",), samples=200))
    assert report.stage == "cache", said(report)


def test_a_cache_that_forgets_one_token_too_few_is_found_in_the_cache() -> None:
    report = audit(subject(StaleCache()), replace(PLAN, rules=("coupled",), samples=200))
    assert report.stage == "cache", said(report)


def test_a_history_off_by_one_is_found_in_the_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Adjustment, "__call__", shorter_history(Adjustment.__call__))
    report = audit(subject(), replace(PLAN, samples=200))
    assert report.stage == "sampler", said(report)


def test_noise_without_the_sample_is_found_in_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Noise, "_hash", one_sample)
    report = audit(subject(), replace(PLAN, samples=200))
    assert report.stage == "noise", said(report)
    assert any(one.stopped or one.fit.p_value < LEVEL for one in report.laws)


class Moody(TableModel):
    """Rows of a wide pass come out a little different, as in engines whose products depend on the batch."""

    def __init__(self, by: float) -> None:
        super().__init__(VOCABULARY, seed=5, sharpness=1.5)
        self.by = by

    def forward(self, feeds: Sequence[Feed]) -> list[Logits]:
        by = np.float32(self.by if sum(len(feed.tokens) for feed in feeds) > 1 else 0)
        logits = super().forward(feeds)
        return [
            (rows + by * self._waves(rows, feed)).astype(np.float32) for feed, rows in zip(feeds, logits, strict=True)
        ]

    def _waves(self, rows: Logits, feed: Feed) -> NDArray[np.float64]:
        waves: NDArray[np.float64] = np.sin(7 * rows + np.arange(self.vocab_size) + len(feed.tokens))
        return waves


def test_rows_that_depend_on_the_pass_are_told_from_a_cache() -> None:
    report = audit(subject(Moody(0.5)), replace(PLAN, temperatures=(0.0,), rules=("coupled",)))
    assert report.stage == "forward", said(report)


def test_a_numeric_tie_is_no_defect() -> None:
    """With two equal logits the slightest rounding decides; the report says so, and that it is no defect."""

    class Tied(Moody):
        def logits(self, prefix: Sequence[int]) -> NDArray[np.float32]:
            row = np.round(super().logits(prefix))
            return row.astype(np.float32)

    report = audit(subject(Tied(1e-4)), replace(PLAN, temperatures=(0.0,), rules=("coupled",)))
    assert report.ties > 0
    assert report.stage is None, said(report)


def test_the_tree_has_all_of_the_law() -> None:
    """Its cells are the joint law, straight from the table: each exact, and together 1."""
    target, context, sampling = TableModel(VOCABULARY, seed=5), [1, 2], Sampling(temperature=0.8)
    tree = Tree(Oracle(target, frozenset({4})), context, sampling, 400)
    assert sum(tree.cells.values()) == pytest.approx(1)
    for cell, mass in tree.cells.items():
        if None not in cell:
            expected = 1.0
            for place, token in enumerate(cell):
                assert token is not None
                before = [*context, *(said for said in cell[:place] if said is not None)]
                expected *= np.exp(law(target.logits(before), sampling).log_probability(token))
            assert mass == pytest.approx(expected)
            assert tree.cell(tuple(token for token in cell if token is not None)) == cell
            assert len(cell) == 3 or cell[-1] == 4
    assert tree.cell((4, 4, 4))[:1] in ((4,), (None,))


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Plan(samples=10), "samples is 10"),
        (Plan(max_tokens=0), "max_tokens is 0"),
        (Plan(max_tokens=5000), "from 1 to"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(plan: Plan, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        audit(subject(), plan)
