"""The engine: the same words whatever is drafted, caches that never slip, and nothing left behind."""

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from soothsay import (
    Capacity,
    Completion,
    ContextFull,
    EmptyPrompt,
    Engine,
    ModelError,
    OptionError,
    Piece,
    PromptError,
    PromptTooLong,
    Sampling,
)
from soothsay.draft.base import Ask, Draft, Outlook, Reader
from soothsay.draft.model import ModelDrafter
from soothsay.draft.ngram import NgramDrafter
from soothsay.load import Loaded
from soothsay.model.base import Feed, Logits
from soothsay.model.table import TableModel
from soothsay.schedule.scheduler import Scheduler
from soothsay.text.template import ChatTemplate
from soothsay.text.tokenizer import Tokenizer
from tests.engines import ScriptModel, SpyDrafter, SpyModel, assert_at_rest, drafters, plain, watch_cache

PROMPTS = [[1, 2, 3, 1, 2, 3, 1, 2], [4], [0, 5, 0, 5, 0, 5, 0, 5, 0, 5, 0, 5, 0], [3, 3], [2, 4, 2, 4, 2]]
CHANCES = [
    Sampling(temperature=0.0),
    Sampling(temperature=0.8),
    Sampling(temperature=1.5),
    Sampling(temperature=1.2, top_k=3),
    Sampling(temperature=1.2, top_p=0.7),
    Sampling(temperature=1.2, min_p=0.3),
]


def with_options(sampling: Sampling, **options: Any) -> Sampling:
    names = ("temperature", "top_k", "top_p", "min_p", "seed", "max_tokens", "stop")
    return Sampling(**{name: getattr(sampling, name) for name in names} | options)


def tokens(answers: Sequence[Completion]) -> list[tuple[int, ...]]:
    return [answer.tokens for answer in answers]


# The same words


@pytest.mark.parametrize("chance", CHANCES, ids=str)
@pytest.mark.parametrize("kind", ["none", "ngram", "alike", "unlike"])
def test_the_same_words_for_a_seed_whatever_is_drafted(kind: str, chance: Sampling) -> None:
    sampling = with_options(chance, seed=11, max_tokens=23)
    wanted = [plain(SpyModel(), prompt, sampling) for prompt in PROMPTS]
    drafted = accepted = 0
    for gamma in (0, 1, 2, 3, 5, 8):
        model = SpyModel()
        engine = Engine(model, draft=drafters(model).get(kind, "none"), gamma=gamma)
        watch_cache(engine, model)
        answers = engine.generate(PROMPTS, sampling)
        assert tokens(answers) == wanted
        assert tokens(engine.generate(PROMPTS[::-1], sampling)) == wanted[::-1]
        assert engine.generate(PROMPTS[0], sampling).tokens == wanted[0]
        drafted += sum(answer.stats.drafted for answer in answers)
        accepted += sum(answer.stats.accepted for answer in answers)
        assert_at_rest(engine, model)
    assert (drafted > 0) == (kind != "none")
    assert accepted > 100 or kind != "alike"
    assert accepted < drafted or kind == "none"


@pytest.mark.parametrize("rule", ["coupled", "block", "token"])
@pytest.mark.parametrize("kind", ["none", "ngram", "alike", "unlike"])
def test_the_likeliest_words_by_every_rule(kind: str, rule: str) -> None:
    sampling = Sampling(max_tokens=23, seed=0)
    for gamma in (0, 1, 4, 7):
        model = SpyModel()
        engine = Engine(model, draft=drafters(model).get(kind, "none"), gamma=gamma, verify=rule)
        assert tokens(engine.generate(PROMPTS, sampling)) == [plain(model, prompt, sampling) for prompt in PROMPTS]


def test_a_seed_that_nobody_gave_is_reported_and_gives_the_answer_again() -> None:
    engine = Engine(SpyModel(), draft="ngram")
    first, second = engine.generate([[1, 2], [1, 2]], Sampling(temperature=1, max_tokens=40))
    assert first.tokens != second.tokens
    assert first.tokens == engine.generate([1, 2], Sampling(temperature=1, max_tokens=40, seed=first.seed)).tokens


def test_a_seed_may_be_any_kind_of_integer() -> None:
    """NumPy's integers overflow where Python's do not, and the noise multiplies them by 64-bit constants."""
    seeds: list[Any] = [5, np.int64(5), np.uint8(5)]
    answers = [Engine(SpyModel()).generate([1], Sampling(temperature=1, seed=seed)) for seed in seeds]
    assert len(set(tokens(answers))) == 1
    assert [type(answer.seed) for answer in answers] == [int] * 3


# What the caches hold


@pytest.mark.parametrize("kind", ["ngram", "alike", "unlike"])
def test_each_token_is_fed_once_and_full_acceptance_is_no_special_case(kind: str) -> None:
    model = SpyModel()
    engine = Engine(model, draft=drafters(model).get(kind, "none"), gamma=3)
    watch_cache(engine, model)
    answers = engine.generate(PROMPTS, Sampling(temperature=0.7, seed=4, max_tokens=40))
    stats = [answer.stats for answer in answers]
    once = sum(spent.prompt_tokens + spent.steps - 1 + spent.drafted for spent in stats)
    assert sum(model.fed) == once
    first, *others = model.passes
    assert [(len(feed.tokens), feed.rows) for feed in first if len(feed.tokens) > 4] == [(8, 1), (13, 1), (5, 1)]
    assert all(len(feed.tokens) == feed.rows <= 4 for feeds in others for feed in feeds)


def test_full_acceptance_feeds_the_bonus_alone() -> None:
    model = ScriptModel([1, 2, 3] * 20)
    engine = Engine(model, draft=ModelDrafter(ScriptModel([1, 2, 3] * 20), 16), gamma=3)
    answer = engine.generate([1], Sampling(max_tokens=12))
    assert answer.tokens == (2, 3, 1) * 4
    assert (answer.stats.steps, answer.stats.drafted, answer.stats.accepted) == (3, 9, 9)
    assert model.fed == [4, 4, 4]


def test_a_cache_that_forgets_one_token_too_few_does_not_go_unnoticed() -> None:
    """The checks above are worth something: leave one rejected token in the cache and they fail."""

    class Careless(SpyModel):
        def truncate(self, slot: Any, length: int) -> None:
            super().truncate(slot, min(length + 1, self.length(slot)))

    model = Careless()
    engine = Engine(model, draft=drafters(model)["unlike"], gamma=3)
    watch_cache(engine, model)
    with pytest.raises(AssertionError):
        engine.generate(PROMPTS, Sampling(max_tokens=20))


# What goes wrong


class Broken(Exception):
    pass


def fail_at(times: int, error: BaseException) -> Callable[[], None]:
    """Raise at the given call and at no other."""
    left = iter(range(times - 1))

    def run() -> None:
        if next(left, None) is None and not raised:
            raised.append(error)
            raise error

    raised: list[BaseException] = []
    return run


@pytest.mark.parametrize("error", [Broken(), KeyboardInterrupt()], ids=["error", "interrupt"])
@pytest.mark.parametrize("where", ["before the pass", "after the pass", "in the drafter"])
def test_a_step_that_fails_leaves_nothing_behind_and_hurts_nobody_else(where: str, error: BaseException) -> None:
    """After the pass, the caches hold drafts that nobody judged: all of them must be rolled back, not just one."""
    model = SpyModel()
    drafter = SpyDrafter(drafters(model)["alike"])
    engine = Engine(model, draft=drafter, gamma=3)
    sampling = Sampling(max_tokens=30, temperature=0.8, seed=2)
    bystander = engine.stream([5, 4, 5, 4], sampling)
    heard = [next(bystander)]
    places = {
        "before the pass": (model, "before"),
        "after the pass": (model, "after"),
        "in the drafter": (drafter, "before"),
    }
    setattr(*places[where], fail_at(4, error))
    with pytest.raises(type(error)):
        engine.generate(PROMPTS, sampling)
    heard += bystander
    assert tuple(piece.token for piece in heard) == plain(model, [5, 4, 5, 4], sampling)
    assert engine.generate(PROMPTS[0], sampling).tokens == plain(model, PROMPTS[0], sampling)
    assert_at_rest(engine, model, drafter)


def test_a_model_that_answers_nonsense_to_one_hurts_nobody_else() -> None:
    class Nonsense(SpyModel):
        def logits(self, prefix: Sequence[int]) -> Any:
            return super().logits(prefix) * np.float32(np.nan if prefix[0] == 3 and len(prefix) > 5 else 1)

    model = Nonsense()
    drafter = SpyDrafter(drafters(SpyModel())["alike"])
    engine = Engine(model, draft=drafter, gamma=3)
    sampling = Sampling(max_tokens=20, seed=0)
    bystander = engine.stream([5, 4, 5, 4], sampling)
    heard = [next(bystander)]
    with pytest.raises(ModelError, match="no finite maximum"):
        engine.generate([[3, 1], [1, 2]], sampling)
    heard += bystander
    assert tuple(piece.token for piece in heard) == plain(model, [5, 4, 5, 4], sampling)
    assert_at_rest(engine, model, drafter)


def test_a_request_that_cannot_start_takes_the_others_with_it() -> None:
    model = SpyModel()
    drafter = SpyDrafter(NgramDrafter())
    engine = Engine(model, draft=drafter)
    drafter.opened = fail_at(3, Broken())
    with pytest.raises(Broken):
        engine.generate(PROMPTS, Sampling(max_tokens=5))
    assert_at_rest(engine, model, drafter)


def test_streams_that_nobody_finishes_give_everything_back() -> None:
    model = SpyModel()
    drafter = SpyDrafter(drafters(model)["alike"])
    engine = Engine(model, draft=drafter, gamma=3)
    engine.stream([1, 2, 3])  # never started
    closed = engine.stream([1, 2, 3])
    next(closed)
    closed.close()  # type: ignore[attr-defined]  # a generator
    for piece in engine.stream([4, 5, 4, 5], Sampling(max_tokens=9)):
        if piece.source == "draft":
            break
    del piece
    assert_at_rest(engine, model, drafter)
    sampling = Sampling(max_tokens=9)
    assert engine.generate([1, 2, 3], sampling).tokens == plain(model, [1, 2, 3], with_options(sampling, seed=0))


@pytest.mark.parametrize("where", ["in the drafter", "before the pass", "as another starts"])
def test_a_stream_that_the_garbage_collector_ends_amid_other_work(where: str) -> None:
    """It runs whenever it likes, in whatever thread: what a step is about to use must not go away under it."""
    model = SpyModel()
    drafter = SpyDrafter(drafters(model)["alike"])
    engine = Engine(model, draft=drafter, gamma=3)
    sampling = Sampling(max_tokens=12, temperature=0.8, seed=2)
    engine.generate(PROMPTS, sampling)  # the shelf of prefixes is full
    cycle: list[Any] = [engine.stream([0, 1, 0, 1], sampling)]
    next(cycle[0])
    cycle.append(cycle)
    del cycle
    gc.disable()
    try:
        place = model if where == "before the pass" else drafter
        setattr(place, "opened" if where == "as another starts" else "before", gc.collect)
        assert tokens(engine.generate(PROMPTS, sampling)) == [plain(model, prompt, sampling) for prompt in PROMPTS]
    finally:
        gc.enable()
    assert_at_rest(engine, model, drafter)


# Limits


@pytest.mark.parametrize("kind", ["ngram", "alike"])
def test_max_tokens_is_exact_and_no_draft_reaches_past_it(kind: str) -> None:
    for gamma, most in product((1, 4), range(1, 12)):
        model = SpyModel()
        drafter = SpyDrafter(drafters(model)[kind])
        engine = Engine(model, draft=drafter, gamma=gamma)
        prompt = [1, 2, 1, 2, 1, 2]
        answer = engine.generate(prompt, Sampling(max_tokens=most))
        assert (len(answer.tokens), answer.finish_reason) == (most, "length")
        assert all(length + asked + 1 <= len(prompt) + most and 0 < asked <= gamma for length, asked in drafter.asked)
        assert answer.stats.drafted == drafter.drafted


@pytest.mark.parametrize("kind", ["none", "ngram", "alike"])
def test_a_full_context_ends_the_answer_and_says_so(kind: str) -> None:
    model = SpyModel(max_length=20)
    drafter = SpyDrafter(drafters(model)[kind]) if kind != "none" else None
    engine = Engine(model, draft=drafter or "none", gamma=5)
    watch_cache(engine, model)
    sampling = Sampling(max_tokens=14, seed=0)
    prompts = [[1, 2, 1, 2, 1, 2, 1], [0, 1], [3] * 19]
    with pytest.raises(ContextFull, match="context of 20 tokens") as caught:
        engine.generate(prompts, sampling)
    first, second, third = caught.value.completions
    assert [answer.finish_reason for answer in (first, second, third)] == ["context", "length", "context"]
    assert first.tokens == plain(model, prompts[0], sampling)[:13]
    assert second.tokens == plain(model, prompts[1], sampling)
    assert len(third.tokens) == 1
    assert drafter is None or all(length + asked + 1 <= 20 for length, asked in drafter.asked)
    assert_at_rest(engine, model, drafter)


def test_a_stream_gives_its_last_piece_before_it_says_that_the_context_is_full() -> None:
    heard: list[Piece] = []
    with pytest.raises(ContextFull) as caught:
        heard.extend(Engine(SpyModel(max_length=8)).stream([1, 2, 3]))
    assert heard[-1].completion == caught.value.completions[0]
    assert len(heard) == 5


def test_max_tokens_that_end_with_the_context_are_no_failure() -> None:
    answer = Engine(SpyModel(max_length=8)).generate([1, 2, 3], Sampling(max_tokens=5))
    assert (answer.finish_reason, len(answer.tokens)) == ("length", 5)


def test_prompts_that_cannot_be_answered() -> None:
    engine = Engine(model := SpyModel(max_length=8))
    with pytest.raises(PromptTooLong, match=r"8 tokens.*context of 8"):
        engine.stream([1] * 8)
    with pytest.raises(EmptyPrompt):
        engine.generate([[1], []])
    with pytest.raises(PromptError, match="holds 6; token ids go from 0 to 5"):
        engine.generate([1, 6])
    with pytest.raises(PromptError, match="no tokenizer"):
        engine.generate("hello")
    nothing: list[list[int]] = []
    assert engine.generate(nothing) == []
    assert_at_rest(engine, model)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"verify": "psychic"}, "verify is 'psychic'; it must be one of coupled, block, token"),
        ({"verify": None}, "verify is None"),
        ({"gamma": -1}, "gamma is -1"),
        ({"gamma": 2.0}, "gamma is 2.0"),
        ({"gamma": True}, "gamma is True"),
        ({"gamma": None}, "gamma is None"),
        ({"gamma": "4"}, r"gamma is '4'; it must be auto, or an integer, 0 \(no drafts\) or more"),
        ({"threads": 2}, "threads is an option of models that are loaded by name"),
        ({"draft": "smollm2-135m"}, "for a model object it must be auto, none, ngram or a drafter object"),
        ({"draft": None}, "draft is None; it must be auto, none, ngram, self, a path"),
        ({"draft": "self"}, "draft is 'self'; for a model object"),
        ({"draft_top_k": 5, "draft": "auto"}, "draft_top_k and draft_requantise are options of draft models"),
        ({"draft_top_k": 5}, "draft_top_k and draft_requantise are options of draft models"),
        ({"draft_requantise": False, "draft": "none"}, "draft_top_k and draft_requantise are options"),
    ],
    ids=str,
)
def test_options_are_checked_and_never_ignored(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Engine(SpyModel(), **options)


# Text


TOY = Tokenizer(
    ["a", "b", "c", "d", "e", "ab", "<|im_end|>", "Ġ", "f", "g", "h", "i", "j", "k", "l", "m"],
    [1, 1, 1, 1, 1, 1, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1],
    ["a b"],
    pre="smollm",
)
A, B, C, D, E, AB, END = range(7)


class FakeLoader:
    """Loads a model and a drafter that are already there."""

    model: SpyModel
    draft: SpyModel

    def __init__(self, threads: int | None) -> None:
        pass

    def target(self, name: str) -> Loaded:
        chat = "{% for message in messages %}{{ message.content }}{% endfor %}"
        return Loaded(self.model, TOY, ChatTemplate(chat), Path(name))

    def draft_model(self, name: str, target: Loaded, *, requantise: bool) -> SpyModel:
        return self.draft


def scripted(
    monkeypatch: pytest.MonkeyPatch, script: Sequence[int], gamma: int = 4, max_length: int = 4096
) -> tuple[Engine, SpyModel]:
    """An engine that says the script, every draft of which is right."""
    monkeypatch.setattr("soothsay.assemble.Loader", FakeLoader)
    monkeypatch.setattr(FakeLoader, "model", model := ScriptModel(script, max_length=max_length), raising=False)
    monkeypatch.setattr(FakeLoader, "draft", ScriptModel(script), raising=False)
    engine = Engine("target", draft="draft", gamma=gamma)
    watch_cache(engine, model)
    return engine, model


@pytest.mark.parametrize("place", range(2, 8))
def test_an_end_inside_an_accepted_run_cuts_everything_at_the_same_place(
    monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    script = [A, B, *[C] * (place - 2), END, D, D, D, D, D, D, D]
    engine, model = scripted(monkeypatch, script)
    answer = engine.generate([A, B])
    assert answer.tokens == (*[C] * (place - 2), END)
    assert (answer.text, answer.finish_reason) == ("c" * (place - 2), "end")
    assert (
        answer.stats.tokens
        == len(answer.tokens)
        == answer.stats.accepted + answer.stats.steps - (place in (3, 4, 5, 6))
    )
    assert_at_rest(engine, model)
    assert all(held == tuple(script[: len(held)]) and len(held) <= place for held in engine._prefixes._kept.values())


def test_a_stop_string_across_tokens_inside_an_accepted_run(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, model = scripted(monkeypatch, [A, B, C, D, AB, E, C, C, C, C])
    answer = engine.generate([A, B], Sampling(stop=("be", "x")))
    assert (answer.text, answer.tokens, answer.finish_reason) == ("cda", (C, D, AB, E), "stop")
    assert (answer.stats.tokens, answer.stats.steps, answer.stats.accepted) == (4, 2, 3)
    assert_at_rest(engine, model)


def test_what_a_stop_string_held_back_comes_when_the_context_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = scripted(monkeypatch, [A, B, C, D, AB, E], max_length=5)
    with pytest.raises(ContextFull) as caught:
        engine.generate([A, B], Sampling(stop=("dabe",)))
    (answer,) = caught.value.completions
    assert (answer.text, answer.tokens, answer.finish_reason) == ("cdab", (C, D, AB), "context")


def test_the_pieces_are_the_text_and_say_whose_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = scripted(monkeypatch, [A, B, C, D, AB, E, C, A, B, END], gamma=3)
    pieces = list(engine.stream([A, B], Sampling(stop=("ax",))))
    answer = pieces[-1].completion
    assert answer is not None
    assert "".join(piece.text for piece in pieces) == answer.text == "cdabecab"
    assert tuple(piece.token for piece in pieces) == answer.tokens
    assert [piece.source for piece in pieces] == ["model", *["draft"] * 3, "model", *["draft"] * 3]
    assert [piece.completion for piece in pieces[:-1]] == [None] * (len(pieces) - 1)


def test_a_draft_that_is_wrong_is_not_called_a_draft() -> None:
    model = SpyModel()
    engine = Engine(model, draft=drafters(model)["unlike"], gamma=4)
    pieces = list(engine.stream([1, 2, 3], Sampling(max_tokens=60)))
    stats = pieces[-1].completion.stats if pieces[-1].completion else None
    assert stats is not None
    assert [piece.source for piece in pieces].count("draft") == stats.accepted < stats.drafted
    assert [piece.source for piece in pieces].count("model") == stats.steps


def test_texts_chats_and_system_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, model = scripted(monkeypatch, [A, B, C, END] + [END] * 8)
    one = engine.generate("ab")
    assert (one.text, one.stats.prompt_tokens) == ("bc", 1)
    first, second = engine.generate(["ab c", [{"role": "user", "content": "d"}]])
    assert (first.stats.prompt_tokens, second.stats.prompt_tokens) == (3, 1)
    assert engine.generate("b", system="a").stats.prompt_tokens == 1  # "ab"
    assert engine.generate("ab", raw=True).tokens == one.tokens
    assert_at_rest(engine, model)


# Prefixes


def test_the_next_turn_of_a_chat_reads_only_what_is_new() -> None:
    model, sampling = SpyModel(), Sampling(max_tokens=12, temperature=0.9, seed=3)
    engine = Engine(model, draft=drafters(model)["alike"], gamma=3)
    watch_cache(engine, model)
    first = engine.generate([1, 2, 3, 4], sampling)
    chat = [1, 2, 3, 4, *first.tokens, 5, 5, 0]
    model.passes.clear()
    second = engine.generate(chat, sampling)
    assert model.fed[0] == 4  # the last token said, which nobody had to read, and three new ones
    assert second.stats.cached_tokens == len(chat) - 4
    assert second.tokens == plain(model, chat, sampling)
    again = engine.generate(chat, sampling)
    assert (again.stats.cached_tokens, again.tokens) == (len(chat) - 1, second.tokens)


def test_two_requests_continue_one_prefix_at_once() -> None:
    model, sampling = SpyModel(), Sampling(max_tokens=9, temperature=0.9, seed=3)
    engine = Engine(model, draft=drafters(model)["alike"])
    engine.generate([1, 2, 3, 4, 5], sampling)
    prompts = [[1, 2, 3, 4, 0], [1, 2, 3, 4, 0], [1, 2, 3, 3]]
    answers = engine.generate(prompts, sampling)
    assert [answer.stats.cached_tokens for answer in answers] == [4, 4, 3]
    assert tokens(answers) == [plain(model, prompt, sampling) for prompt in prompts]


def test_many_chats_keep_a_bounded_number_of_prefixes() -> None:
    model = SpyModel()
    engine = Engine(model)
    engine.generate([[token, other] for token, other in product(range(6), repeat=2)], Sampling(max_tokens=3))
    assert_at_rest(engine, model)
    assert model.open_slots == 4


# Batches


@pytest.mark.parametrize("kind", ["none", "ngram", "alike"])
def test_long_prompts_in_chunks_beside_others_that_decode(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("soothsay.core.Scheduler", partial(Scheduler, chunk_tokens=4))
    prompts = [[1, 2] * length for length in (1, 20, 2, 9, 1, 14, 3)]
    model, sampling = SpyModel(), Sampling(max_tokens=8, temperature=0.6, seed=9)
    engine = Engine(model, draft=drafters(model).get(kind, "none"), gamma=3, capacity=Capacity(max_batch=3))
    watch_cache(engine, model)
    answers = engine.generate(prompts, sampling)
    assert tokens(answers) == [plain(model, prompt, sampling) for prompt in prompts]
    assert max(len(feeds) for feeds in model.passes) == 3
    assert max(len(feed.tokens) for feeds in model.passes for feed in feeds) == 4
    assert any({feed.rows for feed in feeds} >= {0, 1} for feeds in model.passes)
    assert [answer.stats.steps <= 8 for answer in answers] == [True] * 7  # chunks that emit nothing do not count
    assert_at_rest(engine, model)


# Streams and threads


def test_a_stream_starts_when_it_is_read_but_is_checked_at_once() -> None:
    engine = Engine(model := SpyModel())
    stream = engine.stream([1, 2])
    assert (model.open_slots, model.passes) == (0, [])
    with pytest.raises(EmptyPrompt):
        engine.stream([])
    next(stream)
    assert len(model.passes) == 1


def test_two_streams_take_turns() -> None:
    model, sampling = SpyModel(), Sampling(max_tokens=15, temperature=0.9, seed=3)
    engine = Engine(model, draft=drafters(model)["alike"], gamma=3)
    streams = [engine.stream(prompt, sampling) for prompt in ([1, 2, 3], [4])]
    heard: list[list[int]] = [[], []]
    for _ in range(15):
        for stream, said in zip(streams, heard, strict=True):
            said.append(next(stream).token)
    assert [next(stream, None) for stream in streams] == [None, None]
    assert [tuple(said) for said in heard] == [plain(model, prompt, sampling) for prompt in ([1, 2, 3], [4])]
    assert_at_rest(engine, model)


def test_threads_share_one_engine() -> None:
    model, sampling = SpyModel(), Sampling(max_tokens=40, temperature=0.9, seed=3)
    drafter = SpyDrafter(drafters(model)["alike"])
    engine = Engine(model, draft=drafter, gamma=3)
    prompts = [[token, 1, token] for token in range(6)]
    answers: dict[int, tuple[int, ...]] = {}

    def ask(place: int) -> None:
        if place % 2:
            answers[place] = engine.generate(prompts[place], sampling).tokens
        else:
            answers[place] = tuple(piece.token for piece in engine.stream(prompts[place], sampling))

    threads = [threading.Thread(target=ask, args=(place,), daemon=True) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert [answers.get(place) for place in range(6)] == [plain(model, prompt, sampling) for prompt in prompts]
    assert_at_rest(engine, model, drafter)


def test_a_reader_who_is_quick_never_misses_the_last_piece() -> None:
    """Another thread may end the answer while this one takes its pieces; the completion comes with the last of them."""
    engine = Engine(SpyModel(), draft="none")
    stream = engine.stream([1, 2], Sampling(max_tokens=3))
    next(stream)
    (request,) = engine._scheduler._running

    class Quick(type(request.pieces)):  # type: ignore[misc]
        def append(self, piece: Piece) -> None:
            taken.append(piece)

    taken: list[Piece] = []
    request.pieces = Quick()
    engine.step()
    engine.step()
    assert [piece.completion is not None for piece in taken] == [False, True]
    assert list(stream) == []


# Figures


def test_figures_by_their_definitions() -> None:
    """A clock that moves by 3 in a pass of the target and by 0.5 in a call of the drafter."""
    now = [100.0]

    class Slow(ScriptModel):
        def forward(self, feeds: Sequence[Feed]) -> list[Logits]:
            now[0] += 3
            return super().forward(feeds)

    class Guess:
        """Right twice, then wrong."""

        def open(self) -> Reader:
            return Reader(0)

        def outlook(self, reader: Reader, context: Sequence[int]) -> Outlook:
            return Outlook()

        def propose(self, asks: Sequence[Ask]) -> list[Draft]:
            now[0] += 0.5
            return [Draft((2, 2, 1)[: ask.gamma]) for ask in asks]

        def close(self, reader: Reader) -> None:
            pass

    engine = Engine(Slow([2] * 30), draft=Guess(), gamma=3, clock=lambda: now[0])
    stats = engine.generate([0, 0, 0], Sampling(max_tokens=8)).stats
    assert (stats.prompt_tokens, stats.cached_tokens, stats.tokens) == (3, 0, 8)
    assert stats.steps == 4  # the prompt gives 1, then 3, 3 and, with no room for a draft, 1
    assert (stats.drafted, stats.accepted) == (6, 4)
    assert stats.tokens_per_step == 2
    assert stats.acceptance_rate == pytest.approx(2 / 3)
    assert (stats.target_seconds, stats.draft_seconds, stats.verify_seconds) == (12, 1, 0)
    assert (stats.first_token_seconds, stats.seconds) == (3, 13)
    assert stats.tokens_per_second == pytest.approx(7 / 10)


def test_what_is_not_known_is_none() -> None:
    stats = Engine(SpyModel(), draft="none").generate([1], Sampling(max_tokens=1)).stats
    assert (stats.acceptance_rate, stats.tokens_per_second) == (None, None)


def test_first_words_of_a_stream_come_before_the_last_are_computed() -> None:
    model = SpyModel()
    stream: Iterator[Piece] = Engine(model, draft="none").stream([1, 2], Sampling(max_tokens=5))
    assert [len(model.passes) for _ in stream] == [1, 2, 3, 4, 5]


def test_a_table_model_is_all_that_an_engine_needs() -> None:
    assert len(Engine(TableModel(4, seed=1)).generate([1], Sampling(max_tokens=5)).tokens) == 5
