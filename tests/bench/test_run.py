"""Two ways to the same words, in turn, over one model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from soothsay import OptionError, Sampling
from soothsay.bench.prompts import Prompt
from soothsay.bench.run import Contest, Pair, Side, contest
from soothsay.completion import Completion
from soothsay.model.base import Model
from tests.checkpoints import Kind, Recipe, Words, write_checkpoint

TARGET = Recipe("llama", Kind.Q8_0, vocab_size=264, max_length=96)
DRAFT = Recipe("qwen2", Kind.Q8_0, seed=3, vocab_size=264, layers=1, max_length=96)
BATCHES = [(Prompt(str(n), "echo", "ab" * n),) for n in range(3, 6)]
SAMPLING = Sampling(max_tokens=16, temperature=0.8, seed=6)
GREEDY = Sampling(max_tokens=16)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOOTHSAY_CACHE", str(tmp_path))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("run")
    recipes = {"target": TARGET, "draft": DRAFT}
    return {name: write_checkpoint(folder / f"{name}.gguf", recipe, Words()) for name, recipe in recipes.items()}


def ways(files: dict[str, Path], draft: str = "ngram", gamma: Any = 3) -> Contest:
    return contest(files["target"], files.get(draft, draft), gamma, threads=1)


@pytest.mark.parametrize("draft", ["ngram", "draft"])
@pytest.mark.parametrize("size", [1, 3])
def test_the_same_words_both_ways(files: dict[str, Path], draft: str, size: int) -> None:
    batches = BATCHES if size == 1 else [tuple(prompt for (prompt,) in BATCHES)]
    pairs = [*ways(files, draft).pairs(batches, SAMPLING), *ways(files, draft).pairs(batches, GREEDY)]
    assert [pair.batch for pair in pairs] == 2 * batches
    for pair in pairs:
        assert pair.identical
        assert [len(answer.tokens) for answer in pair.plain.answers] == [16] * size
        assert {answer.stats.drafted for answer in pair.plain.answers} == {0}
        assert min(pair.speedup or 0.0, pair.bound or 0.0) > 0
    assert sum(answer.stats.drafted for pair in pairs for answer in pair.drafted.answers) > 0
    assert any(pair.draft_seconds > 0 for pair in pairs) == (draft == "draft")


def test_the_steps_are_those_after_the_first_token(files: dict[str, Path]) -> None:
    (pair,) = ways(files).pairs(BATCHES[:1], SAMPLING)
    for side in (pair.plain, pair.drafted):
        assert sum(draft.emitted for step in side.steps for draft in step.drafts) == 15
    assert [step.rows for step in pair.plain.steps] == [1] * 15
    assert len(pair.drafted.steps) == pair.drafted.answers[0].stats.steps - 1


def test_who_goes_first_changes_and_nothing_is_remembered(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were a prefix kept, the second round would draft before the first token, outside of what is timed."""
    order: list[str] = []
    made = ways(files)
    for name, way in (("plain", made._plain), ("drafted", made._drafted)):
        answer = way.answer

        def noted(texts: Sequence[str], sampling: Sampling, name: str = name, answer: Any = answer) -> Side:
            order.append(name)
            found: Side = answer(texts, sampling)
            return found

        monkeypatch.setattr(way, "answer", noted)
    pairs = list(made.pairs(BATCHES[:3], SAMPLING, rounds=2))
    assert order == ["plain", "drafted", "drafted", "plain"] * 3
    stats = [answer.stats for pair in pairs for side in (pair.plain, pair.drafted) for answer in side.answers]
    assert {one.cached_tokens for one in stats} == {0}


def test_both_ways_share_one_model(files: dict[str, Path]) -> None:
    """Two copies of the weights would lie on other pages, and one of them could be the faster one."""
    made = ways(files)
    models: list[Model] = [way._engine._model for way in (made._plain, made._drafted)]
    assert models[0] is models[1]


def test_an_answer_that_fills_the_context_counts(files: dict[str, Path]) -> None:
    (pair,) = ways(files).pairs(BATCHES[:1], Sampling(max_tokens=500, seed=1))
    assert {answer.finish_reason for answer in (*pair.plain.answers, *pair.drafted.answers)} <= {"context", "end"}
    assert pair.identical


def test_another_token_is_seen(files: dict[str, Path]) -> None:
    (pair,) = ways(files).pairs(BATCHES[:1], SAMPLING)
    (answer,) = pair.plain.answers
    other = Completion(answer.text, (*answer.tokens[:-1], 0), answer.finish_reason, answer.seed, answer.stats)
    assert not Pair(pair.batch, pair.plain, Side((other,), pair.drafted.steps), 0.0).identical


def test_options_that_compare_nothing(files: dict[str, Path]) -> None:
    with pytest.raises(OptionError, match="draft must not be none"):
        ways(files, "none", "auto")
    with pytest.raises(OptionError, match="rounds is 0; it must be at least 1"):
        next(ways(files).pairs(BATCHES, SAMPLING, rounds=0))
