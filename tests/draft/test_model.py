"""A model as drafter: the same drafts as a rollout from scratch, whatever was rejected, batched or cut before."""

import random
from collections.abc import Callable, Sequence
from itertools import product
from math import prod

import numpy as np
import pytest

import soothsay.draft.model as module
from soothsay.draft.base import Ask, Draft, Outlook, Reader
from soothsay.draft.model import ModelDrafter
from soothsay.errors import OptionError
from soothsay.model.base import Feed, Logits, Slot
from soothsay.model.table import TableModel
from soothsay.patience import ENDLESS, PARTS, Patience, part
from soothsay.sampling import Law, Sampling
from soothsay.verify.coupled import draw_coupled
from soothsay.verify.noise import Noise

SAMPLING = Sampling(temperature=0.9)


class WatchedModel(TableModel):
    """A table model that writes down the rows of every pass."""

    def __init__(self, vocab_size: int = 6, seed: int = 1, *, max_length: int = 4096) -> None:
        super().__init__(vocab_size, seed, max_length=max_length)
        self.passes: list[list[int]] = []

    def forward(self, feeds: Sequence[Feed]) -> list[Logits]:
        self.passes.append([len(feed.tokens) for feed in feeds])
        return super().forward(feeds)


def noisy_draw(seed: int) -> Callable[[Law, int], int]:
    return lambda law, position: draw_coupled(law, Noise(seed), position)


def ask(
    reader: Reader,
    context: Sequence[int],
    gamma: int,
    sampling: Sampling = SAMPLING,
    seed: int = 0,
    window: int | None = None,
    patience: Patience = ENDLESS,
) -> Ask:
    return Ask(reader, context, gamma, sampling, noisy_draw(seed), window, patience)


def expected_probabilities(row: np.ndarray, temperature: float, top_k: int) -> dict[int, float]:
    """Softmax of the `top_k` highest logits, written down anew."""
    best = sorted(range(len(row)), key=lambda token: (-row[token], token))[:top_k]
    weights = {token: np.exp(float(row[token]) / temperature) for token in best}
    return {token: weight / sum(weights.values()) for token, weight in weights.items()}


def rollout(model: TableModel, asked: Ask, vocab_size: int, top_k: int, start: int = 0) -> tuple[int, ...]:
    """Draft one token after the other, each from the whole prefix (from `start` on), with no cache to get wrong."""
    tokens = list(asked.context)
    for _ in range(asked.gamma):
        p = expected_probabilities(model.logits(tokens[start:])[:vocab_size], asked.sampling.temperature, top_k)
        ids = np.array(sorted(p), np.int64)
        tokens.append(asked.draw(Law(ids, np.log([p[int(token)] for token in ids])), len(tokens)))
    return tuple(tokens[len(asked.context) :])


@pytest.mark.parametrize("seed", range(4))
def test_drafts_equal_a_rollout_whatever_is_rejected(seed: int) -> None:
    """Rows left over from rejected drafts, or one row missing after full acceptance, would change the next draft."""
    rng, model = random.Random(seed), WatchedModel()
    drafter = ModelDrafter(model, model.vocab_size, top_k=4)
    reader, context = drafter.open(), [1, 2, 3]
    for _ in range(25):
        asked = ask(reader, tuple(context), rng.randint(1, 6), seed=seed)
        (draft,) = drafter.propose([asked])
        assert draft.tokens == rollout(model, asked, model.vocab_size, top_k=4)
        accepted = rng.randint(0, len(draft.tokens))
        context += [*draft.tokens[:accepted], rng.randrange(model.vocab_size)]


@pytest.mark.parametrize("accepted", [0, 2, 4])
def test_only_what_is_new_is_read(accepted: int) -> None:
    """Accepted drafts stay in the cache: one token is read after a rejection, two after full acceptance."""
    model = WatchedModel()
    drafter = ModelDrafter(model, model.vocab_size)
    reader, context = drafter.open(), [1, 2, 3]
    (draft,) = drafter.propose([ask(reader, context, 4)])
    other = next(token for token in range(6) if accepted == 4 or token != draft.tokens[accepted])
    model.passes.clear()
    drafter.propose([ask(reader, [*context, *draft.tokens[:accepted], other], 2)])
    assert model.passes == [[2 if accepted == 4 else 1], [1]]


def test_the_same_context_twice_gives_the_same_draft() -> None:
    model = WatchedModel()
    drafter = ModelDrafter(model, model.vocab_size)
    reader = drafter.open()
    once, again = (drafter.propose([ask(reader, [1, 2, 3], 4)])[0] for _ in range(2))
    assert_same(once, again)


def test_a_ragged_batch_drafts_as_each_alone() -> None:
    rng, model = random.Random(5), WatchedModel()
    together, alone = ModelDrafter(model, model.vocab_size), ModelDrafter(model, model.vocab_size)
    contexts = [[rng.randrange(6) for _ in range(length)] for length in (1, 9, 4, 2)]
    readers = [(together.open(), alone.open()) for _ in contexts]
    for _ in range(8):
        gammas = [rng.randint(0, 5) for _ in contexts]
        asks = [ask(both[0], context, gamma) for both, context, gamma in zip(readers, contexts, gammas, strict=True)]
        model.passes.clear()
        drafts = together.propose(asks)
        assert len(model.passes) == max(gammas)
        for (_, reader), context, gamma, draft in zip(readers, contexts, gammas, drafts, strict=True):
            assert_same(draft, alone.propose([ask(reader, context, gamma)])[0])
            context += [*draft.tokens[: rng.randint(0, len(draft.tokens))], rng.randrange(6)]


def assert_same(one: Draft, other: Draft) -> None:
    assert one.tokens == other.tokens
    assert one.laws is not None
    assert other.laws is not None
    for law, law_again in zip(one.laws, other.laws, strict=True):
        assert (law.ids == law_again.ids).all()
        assert (law.log_probabilities == law_again.log_probabilities).all()


def test_long_prompts_are_read_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_TOKENS", 4)
    model = WatchedModel()
    drafter = ModelDrafter(model, model.vocab_size, top_k=6)
    asks = [ask(drafter.open(), [1] * 10, 3), ask(drafter.open(), [2] * 3, 2)]
    drafts = drafter.propose(asks)
    assert model.passes == [[4, 3], [4, 1], [2], [1], [1]]
    assert [draft.tokens for draft in drafts] == [rollout(model, asked, 6, top_k=6) for asked in asks]


@pytest.mark.parametrize("top_k", [2, None])
def test_each_recorded_law_is_the_one_drawn_from(top_k: int | None) -> None:
    """Enumerate every path that the draws can take: laws recorded before the cut, or of a neighbour, would show."""
    model = TableModel(3, seed=4)
    for path in product(range(top_k or 3), repeat=3):
        drawn: list[Law] = []

        def draw(law: Law, position: int, path: tuple[int, ...] = path, drawn: list[Law] = drawn) -> int:
            assert position == 2 + len(drawn)
            drawn.append(law)
            return int(law.ids[path[len(drawn) - 1]])

        drafter = ModelDrafter(model, 3, top_k=top_k)
        (draft,) = drafter.propose([Ask(drafter.open(), [0, 2], 3, SAMPLING, draw)])
        assert draft.laws == tuple(drawn)
        for place, law in enumerate(drawn):
            row = model.logits([0, 2, *draft.tokens[:place]])
            expected = expected_probabilities(row, 0.9, top_k or 3)
            assert dict(zip(law.ids, np.exp(law.log_probabilities), strict=True)) == pytest.approx(expected, rel=1e-12)


def test_temperature_zero_drafts_the_likeliest_and_records_no_law() -> None:
    model = TableModel(6, seed=2)
    drafter = ModelDrafter(model, 6)
    (draft,) = drafter.propose([ask(drafter.open(), [3, 1], 3, Sampling())])
    tokens = [3, 1]
    for _ in range(3):
        tokens.append(int(model.logits(tokens).argmax()))
    assert draft == Draft(tuple(tokens[2:]), None)


def test_a_wider_draft_vocabulary_never_shows() -> None:
    """Ids that the target does not have carry real mass here; one of them in a draft would crash the target."""
    model = TableModel(8, seed=3)
    drafter = ModelDrafter(model, target_vocab_size=3, top_k=8)
    for seed in range(30):
        asked = ask(drafter.open(), [0, 1], 4, seed=seed)
        (draft,) = drafter.propose([asked])
        assert draft.tokens == rollout(model, asked, 3, top_k=8)
        assert draft.laws is not None
        assert all(law.ids.max() < 3 for law in draft.laws)


def test_a_token_beyond_the_draft_vocabulary_ends_the_drafts() -> None:
    model = WatchedModel(vocab_size=3)
    drafter = ModelDrafter(model, target_vocab_size=8)
    foreign, plain = drafter.open(), drafter.open()
    assert drafter.propose([ask(foreign, [0, 5, 1], 2)]) == [Draft((), ())]
    mixed = drafter.propose([ask(foreign, [0, 5, 1, 2], 2), ask(plain, [0, 1], 2)])
    assert [len(draft.tokens) for draft in mixed] == [0, 2]
    assert all(len(rows) == 1 for rows in model.passes)


@pytest.mark.parametrize(("length", "expected"), [(6, 4), (8, 3), (10, 1), (11, 0), (15, 0)])
def test_drafts_end_with_the_draft_models_own_context(length: int, expected: int) -> None:
    """The last drafted token is never read, so a full context still drafts one more."""
    drafter = ModelDrafter(WatchedModel(max_length=10), 6)
    (draft,) = drafter.propose([ask(drafter.open(), [1] * length, 4)])
    assert len(draft.tokens) == expected


def test_gamma_zero_runs_no_pass() -> None:
    model = WatchedModel()
    drafter = ModelDrafter(model, 6)
    assert drafter.propose([ask(drafter.open(), [1, 2], 0)]) == [Draft((), ())]
    assert model.passes == []


def test_close_gives_the_slot_back() -> None:
    model = TableModel(6, seed=1)
    drafter = ModelDrafter(model, 6)
    reader = drafter.open()
    drafter.close(reader)
    with pytest.raises(ValueError, match="not open"):
        model.length(Slot(0))


def test_top_k_below_one_is_refused() -> None:
    with pytest.raises(OptionError, match="top_k is 0"):
        ModelDrafter(TableModel(6, seed=1), 6, top_k=0)


# A window


TEXT = random.Random(8).choices(range(6), k=20)


class Windowed:
    """One reader of a drafter that is asked with a window."""

    def __init__(self, max_length: int = 4096) -> None:
        self.model = WatchedModel(max_length=max_length)
        self.drafter = ModelDrafter(self.model, 6, top_k=4)
        self.reader = self.drafter.open()

    def check(self, context: Sequence[int], window: int, start: int) -> Draft:
        """Check a draft against one by a model that saw the context from `start` on."""
        asked = ask(self.reader, context, 3, window=window)
        (draft,) = self.drafter.propose([asked])
        assert draft.tokens == rollout(self.model, asked, 6, top_k=4, start=start)
        return draft


def test_no_more_is_read_than_the_window_and_the_last_token() -> None:
    windowed, context = Windowed(), list(TEXT)
    windowed.check(context, window=3, start=16)
    assert windowed.model.passes == [[4], [1], [1]]
    for token in (1, 5, 0):
        context.append(token)
        windowed.check(context, window=3, start=16)
    assert max(windowed.model.passes[3:]) < [3]


def test_a_lag_within_the_window_is_read_whole() -> None:
    windowed = Windowed()
    for length in (4, 8, 15):
        outlook = windowed.drafter.outlook(windowed.reader, TEXT[:length])
        assert outlook is not None
        windowed.check(TEXT[:length], window=outlook.lag_tokens, start=0)


@pytest.mark.parametrize("window", [0, 2])
def test_after_a_long_stretch_by_others_it_starts_anew(window: int) -> None:
    windowed = Windowed()
    windowed.check(TEXT, window=99, start=0)
    longer = TEXT + TEXT[::-1]
    windowed.check(longer, window=window, start=39 - window)
    windowed.check([*longer, 1], window=99, start=39 - window)


def test_close_gives_the_slot_of_a_window_back() -> None:
    windowed = Windowed()
    windowed.check(TEXT, window=5, start=14)
    windowed.drafter.close(windowed.reader)
    assert windowed.model._held == {}


def test_a_foreign_token_before_the_window_does_not_hinder_it() -> None:
    windowed = Windowed()
    windowed.check([1, 2, 6, *TEXT], window=3, start=19)


def test_nothing_is_read_for_a_context_that_is_too_long() -> None:
    windowed = Windowed(max_length=20)
    windowed.check(TEXT[:17], window=3, start=13)
    windowed.model.passes.clear()
    assert windowed.drafter.propose([ask(windowed.reader, TEXT * 2, 3, window=3)]) == [Draft((), ())]
    assert windowed.model.passes == []


def test_the_outlook_is_what_the_first_pass_reads_beyond_one_token() -> None:
    rng, model, context, lags = random.Random(3), WatchedModel(), list(TEXT), list[int]()
    drafter = ModelDrafter(model, 6)
    reader = drafter.open()
    for _ in range(60):
        outlook, window = drafter.outlook(reader, context), rng.randint(2, 12)
        assert outlook is not None
        model.passes.clear()
        (draft,) = drafter.propose([ask(reader, context, rng.randint(1, 4), window=window)])
        assert model.passes[0] == [min(outlook.lag_tokens, window) + 1]
        lags.append(outlook.lag_tokens)
        accepted = draft.tokens[: rng.randint(0, len(draft.tokens))]
        context += [*accepted, *rng.choices(range(6), k=rng.choice((1, 1, 2, 9)))]
    assert lags[0] == 19
    assert {0, 1} < set(lags)


def test_there_is_no_outlook_where_there_will_be_no_draft() -> None:
    drafter = ModelDrafter(WatchedModel(vocab_size=3, max_length=5), 8)
    long, foreign = drafter.open(), drafter.open()
    assert drafter.outlook(long, [1] * 5) == Outlook(lag_tokens=4)
    assert drafter.outlook(long, [1] * 6) is None
    drafter.propose([ask(foreign, [0, 5, 1], 2)])
    assert drafter.outlook(foreign, [0, 5, 1, 2]) is None


# Patience


def confidences(model: TableModel, context: Sequence[int], tokens: Sequence[int], temperature: float) -> list[float]:
    """The highest probability of the law at each drafted position, cut to four tokens."""
    rows = [model.logits([*context, *tokens[:place]]) for place in range(len(tokens))]
    return [max(expected_probabilities(row, temperature, 4).values()) for row in rows]


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("least", [0.2, 0.5, 0.9])
def test_a_draft_ends_with_the_first_token_that_makes_it_too_unlikely(least: float, temperature: float) -> None:
    """That token is kept: under block and token verification, dropping it would change the law of the output."""
    model, chances, lengths = TableModel(6, seed=1), tuple(0.5 + place / 20 for place in range(PARTS)), set[int]()
    drafter = ModelDrafter(model, 6, top_k=4)
    for seed in range(20):
        context, sampling = [seed % 6, seed % 5, 2], Sampling(temperature=temperature)
        whole, asked = (
            ask(drafter.open(), context, 6, sampling, seed, patience=patience)
            for patience in (ENDLESS, Patience(least, chances))
        )
        endless, draft = drafter.propose([whole, asked])
        shown = confidences(model, context, endless.tokens, temperature or 1.0)
        survival = [prod(chances[part(one)] for one in shown[:place]) for place in range(7)]
        expected = next((place for place, chance in enumerate(survival) if chance < least), 6)
        assert draft.tokens == endless.tokens[:expected]
        assert draft.confidences == pytest.approx(shown[:expected])
        assert endless.confidences == ()
        lengths.add(expected)
    assert len(lengths) > 1 or least == 0.9
    assert min(lengths) > 0


def test_each_draft_of_a_batch_ends_by_itself() -> None:
    model = WatchedModel()
    drafter = ModelDrafter(model, 6)
    asks = [ask(drafter.open(), [1, 2], 4, patience=patience) for patience in (Patience(1.0, (0.9,) * PARTS), ENDLESS)]
    assert [len(draft.tokens) for draft in drafter.propose(asks)] == [1, 4]
    assert [len(rows) for rows in model.passes] == [2, 1, 1, 1]


def test_guesses_are_common_tokens_until_the_text_has_many_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a language that the common tokens do not cover, every draft would fail; without a cut, nothing is cut."""
    monkeypatch.setattr(module, "COMMON_TOKENS", 2)
    monkeypatch.setattr(module, "RARE_TOKENS", 3)
    for top_k, rare, common in ((3, 3, True), (3, 4, False), (None, 3, False)):
        drafter = ModelDrafter(TableModel(6, seed=1), 6, top_k)
        asks = [ask(drafter.open(), [0, 1] + [5] * rare, 8, seed=seed) for seed in range(20)]
        drafted = {token for draft in drafter.propose(asks) for token in draft.tokens}
        assert (drafted <= {0, 1}) == common, (top_k, rare)
