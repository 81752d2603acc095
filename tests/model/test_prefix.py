"""Kept prefixes: a slot starts with what an earlier sequence shares with the prompt, and the shelf is bounded."""

import random

from soothsay.model.base import Feed, Slot
from soothsay.model.prefix import PrefixCache
from soothsay.model.table import TableModel


class CountedModel(TableModel):
    """A table model that knows what its slots hold."""

    def holds(self, slot: Slot) -> list[int]:
        return list(self._tokens(slot))

    @property
    def slots(self) -> int:
        return len(self._held)


def finished(model: CountedModel, cache: PrefixCache, context: list[int]) -> None:
    """Run a sequence as the engine does: all but its last token go through the cache."""
    slot = cache.open(context)
    if unread := context[model.length(slot) : -1]:
        model.forward([Feed(slot, unread, 0)])
    cache.keep(slot, context)


def opened(context: list[int], *earlier: list[int]) -> list[int]:
    """What a new slot for `context` holds after the earlier sequences."""
    model = CountedModel(8, seed=1)
    cache = PrefixCache(model)
    for past in earlier:
        finished(model, cache, past)
    return model.holds(cache.open(context))


def test_the_longest_shared_prefix_is_re_used() -> None:
    assert opened([1, 2, 3, 4, 5], [1, 2, 7, 7, 7], [1, 2, 3, 4, 7, 7], [1, 7]) == [1, 2, 3, 4]
    assert opened([1, 2, 3], [4, 5, 6]) == []
    assert opened([1, 2, 3]) == []


def test_the_last_token_of_a_prompt_is_left_to_be_fed() -> None:
    """A slot that held the whole prompt could give no logits for what follows it."""
    assert opened([1, 2, 3], [1, 2, 3, 4, 5]) == [1, 2]
    assert opened([1], [1, 2, 3]) == []


def test_a_kept_prefix_serves_two_prompts_at_once_and_stays_as_it_is() -> None:
    model = CountedModel(8, seed=1)
    cache = PrefixCache(model)
    finished(model, cache, [1, 2, 3, 4, 0])
    one, other = cache.open([1, 2, 3, 4, 5]), cache.open([1, 2, 6])
    model.forward([Feed(one, [5], 1), Feed(other, [6], 1)])
    assert (model.holds(one), model.holds(other)) == ([1, 2, 3, 4, 5], [1, 2, 6])
    assert model.holds(cache.open([1, 2, 3, 4, 7])) == [1, 2, 3, 4]


def test_the_least_recently_used_is_forgotten() -> None:
    model = CountedModel(8, seed=1)
    cache = PrefixCache(model, capacity=2)
    finished(model, cache, [1, 1, 1, 0])
    finished(model, cache, [2, 2, 2, 0])
    model.close(cache.open([1, 1, 1, 5]))
    finished(model, cache, [3, 3, 3, 0])
    assert model.slots == 2
    assert [model.length(cache.open([token] * 3 + [7])) for token in (1, 2, 3)] == [3, 0, 3]


def test_a_continued_sequence_takes_the_place_of_its_beginning() -> None:
    model = CountedModel(8, seed=1)
    cache = PrefixCache(model)
    for turns in range(1, 6):
        finished(model, cache, [1, 2, 3] * turns + [0])
    assert model.slots == 1


def test_what_is_kept_already_takes_no_place() -> None:
    """An abandoned request that read nothing, or the same prompt again, must not push others out."""
    model = CountedModel(8, seed=1)
    cache = PrefixCache(model, capacity=2)
    finished(model, cache, [1, 1, 1, 0])
    finished(model, cache, [2, 2, 2, 0])
    for _ in range(3):
        cache.keep(model.open(), [5, 5, 5])
        finished(model, cache, [2, 2, 0])
    assert model.slots == 2
    assert model.length(cache.open([1, 1, 1, 5])) == 3


def test_many_sequences_against_the_definition() -> None:
    """The new slot holds the longest prefix shared with any kept sequence, and never more slots than the bound."""
    rng, model = random.Random(4), CountedModel(2, seed=1)
    cache = PrefixCache(model, capacity=3)
    for _ in range(300):
        context = [rng.randrange(2) for _ in range(rng.randint(1, 6))]
        kept = [model.holds(slot) for slot in list(model._held)]
        slot = cache.open(context)
        prefixes = [context[:end] for end in range(len(context))]
        assert model.holds(slot) == max(p for p in prefixes if not p or any(held[: len(p)] == p for held in kept))
        model.forward([Feed(slot, context[model.length(slot) :], 1)])
        cache.keep(slot, context)
        assert model.slots <= 3
