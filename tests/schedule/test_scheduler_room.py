"""How a scheduler shares rows and cache: prompts in order, decoding never held up, the latest sent back first."""

from collections.abc import Sequence as Series
from itertools import pairwise

import pytest

from soothsay.schedule.plan import LONGEST
from soothsay.schedule.scheduler import SPARE_TOKENS, Scheduler
from soothsay.schedule.sequence import Sequence
from tests.schedule.test_scheduler import sequence


class Cache:
    """What each sequence has in the cache: all that was planned so far."""

    def __init__(self, scheduler: Scheduler[Sequence]) -> None:
        self.scheduler = scheduler
        self.held: dict[int, int] = {}

    def of(self, one: Sequence) -> int:
        return self.held.get(id(one), 0)

    def step(self, rows: int | None = None) -> list[tuple[Sequence, int]]:
        """Run a step in which everyone who is complete emits one token; give who was fed how much."""
        fed = []
        for turn in self.scheduler.plan(self.of, None if rows is None else lambda decoding: rows):
            self.held[id(turn.sequence)] = self.of(turn.sequence) + len(turn.pending)
            fed.append((turn.sequence, len(turn.pending)))
            if turn.complete:
                turn.sequence.context.append(0)
        return fed


def running(*prompts: int, **options: int) -> tuple[Cache, list[Sequence]]:
    scheduler: Scheduler[Sequence] = Scheduler(max_length=1000, **options)
    sequences = [sequence(prompt) for prompt in prompts]
    for one in sequences:
        scheduler.add(one)
    return Cache(scheduler), sequences


def test_prompts_share_a_chunk_in_the_order_of_arrival() -> None:
    cache, (first, second, third) = running(10, 5, 3, chunk_tokens=8)
    assert cache.step() == [(first, 8)]
    assert cache.step() == [(first, 2), (second, 5), (third, 1)]
    assert cache.step() == [(first, 1), (second, 1), (third, 2)]


def test_prompts_beside_those_who_decode_get_the_rows_that_are_left_to_them() -> None:
    cache, (first, second, third) = running(2, 9, 9, chunk_tokens=100)
    cache.step(rows=4)  # nobody decodes yet, so the chunk is whole
    fourth = sequence(20)
    cache.scheduler.add(fourth)
    assert cache.step(rows=4) == [(first, 1), (second, 1), (third, 1), (fourth, 4)]
    assert cache.step(rows=4)[-1] == (fourth, 4)


def test_everyone_who_decodes_is_in_every_step() -> None:
    cache, sequences = running(3, 3, 40, 40, chunk_tokens=16)
    for _ in range(50):
        decoding = [one for one in sequences if cache.of(one) >= len(one.context) - 1]
        fed = [one for one, _ in cache.step(rows=2)]
        assert all(one in fed for one in decoding)
    assert all(cache.of(one) >= 40 for one in sequences[2:])


def need(tokens: int) -> int:
    return tokens + 1 + LONGEST


def test_nobody_is_let_in_who_does_not_fit() -> None:
    room = need(100) + need(50) + SPARE_TOKENS
    cache, (first, second, third) = running(100, 50, 10, cache_tokens=room)
    assert [one for one, _ in cache.step()] == [first, second]
    assert cache.scheduler.waiting == (third,)
    cache.scheduler.remove(first)
    assert third in [one for one, _ in cache.step()]


def test_the_first_is_let_in_whatever_it_needs() -> None:
    cache, (first,) = running(900, cache_tokens=100)
    assert [one for one, _ in cache.step()] == [first]


@pytest.mark.parametrize("lengths", [(40, 40, 40), (100, 10, 10)])
def test_where_the_cache_grows_full_the_latest_leaves_and_is_the_next_to_come_back(lengths: Series[int]) -> None:
    cache, sequences = running(*lengths, cache_tokens=sum(map(need, lengths)) + SPARE_TOKENS)
    cache.step()
    assert cache.scheduler.running == tuple(sequences)
    others = sequence(5)
    cache.scheduler.add(others)
    left: list[Sequence] = []
    while not left:
        left = cache.scheduler.preempt()
        cache.step()
    assert left == [sequences[-1]]
    assert cache.scheduler.waiting == (sequences[-1], others)
    cache.held.pop(id(sequences[-1]))
    cache.scheduler.remove(sequences[0])
    cache.step()
    assert cache.scheduler.running[:2] == (sequences[1], sequences[2])


def test_the_first_is_never_sent_back() -> None:
    cache, (first, _) = running(30, 30, cache_tokens=need(30) * 2 + SPARE_TOKENS)
    cache.step()
    for _ in range(200):
        cache.scheduler.preempt()
        cache.step()
    assert cache.scheduler.running[0] is first


def test_what_runs_stays_within_the_cache() -> None:
    room = 300
    cache, sequences = running(60, 50, 40, 30, 20, 10, cache_tokens=room)
    for _ in range(400):
        for gone in cache.scheduler.preempt():
            cache.held.pop(id(gone), None)
        cache.step(rows=16)
        assert sum(cache.of(one) for one in cache.scheduler.running) <= room
        for done in [one for one in cache.scheduler.running if one.emitted >= 60]:
            cache.scheduler.remove(done)
    assert all(one.emitted >= 60 for one in sequences[:4])


def test_the_order_of_arrival_is_kept_by_those_who_come_back() -> None:
    cache, sequences = running(*(20,) * 6, cache_tokens=need(20) * 3 + SPARE_TOKENS)
    first_steps: dict[int, int] = {}
    for number in range(400):
        for gone in cache.scheduler.preempt():
            cache.held.pop(id(gone), None)
        for one, _ in cache.step():
            first_steps.setdefault(id(one), number)
        for done in [one for one in cache.scheduler.running if one.emitted >= 30]:
            cache.scheduler.remove(done)
    assert all(a <= b for a, b in pairwise(first_steps[id(one)] for one in sequences))
