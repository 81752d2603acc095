"""Who runs, what is fed and how far is guessed: plain numbers, no model."""

import pytest

from soothsay.schedule.scheduler import Scheduler
from soothsay.schedule.sequence import Sequence


def sequence(prompt: int, *, emitted: int = 0, max_tokens: int = 100) -> Sequence:
    return Sequence(context=list(range(prompt + emitted)), prompt_tokens=prompt, max_tokens=max_tokens)


def reach_of(running: Sequence, *, max_length: int = 1000) -> int:
    """The longest draft allowed when all but the last token are in the cache."""
    scheduler: Scheduler[Sequence] = Scheduler(max_length=max_length)
    scheduler.add(running)
    (turn,) = scheduler.plan(lambda planned: len(planned.context) - 1)
    assert turn.decoding
    assert turn.pending == running.context[-1:]
    return turn.reach


@pytest.mark.parametrize("left", [1, 2, 4, 60])
def test_a_draft_and_its_bonus_fit_in_max_tokens(left: int) -> None:
    assert reach_of(sequence(5, emitted=3, max_tokens=3 + left)) == left - 1


@pytest.mark.parametrize("room", [1, 2, 4, 60])
def test_a_draft_and_its_bonus_fit_in_the_context(room: int) -> None:
    assert reach_of(sequence(5, emitted=3), max_length=8 + room) == room - 1


def test_long_prompts_go_in_chunks_and_decode_only_when_they_are_read() -> None:
    scheduler: Scheduler[Sequence] = Scheduler(max_length=1000, chunk_tokens=4)
    running = sequence(10)
    scheduler.add(running)
    planned = [scheduler.plan(lambda _, cached=cached: cached)[0] for cached in (0, 4, 8, 9)]  # type: ignore[misc]
    assert [turn.pending for turn in planned] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [9]]
    assert [turn.complete for turn in planned] == [False, False, True, True]
    assert [turn.decoding for turn in planned] == [False, False, False, True]


def test_a_prompt_that_ends_with_its_chunk_is_complete() -> None:
    scheduler: Scheduler[Sequence] = Scheduler(max_length=1000, chunk_tokens=4)
    scheduler.add(sequence(8))
    assert [scheduler.plan(lambda _, cached=cached: cached)[0].complete for cached in (0, 4)] == [False, True]  # type: ignore[misc]


def test_the_batch_is_bounded_and_the_others_wait_in_order() -> None:
    scheduler: Scheduler[Sequence] = Scheduler(max_length=1000, max_batch=2)
    first, second, third, fourth = (sequence(3) for _ in range(4))

    def planned() -> list[Sequence]:
        return [turn.sequence for turn in scheduler.plan(lambda _: 0)]

    for added in (first, second, third, fourth):
        scheduler.add(added)
    assert planned() == [first, second]
    scheduler.remove(third)  # while it waits
    scheduler.remove(first)
    assert planned() == [second, fourth]
    scheduler.remove(second)
    scheduler.remove(fourth)
    assert planned() == []


def test_equal_sequences_are_not_mistaken_for_each_other() -> None:
    scheduler: Scheduler[Sequence] = Scheduler(max_length=1000)
    one, twin = sequence(3), sequence(3)
    scheduler.add(one)
    scheduler.add(twin)
    scheduler.plan(lambda _: 0)
    scheduler.remove(twin)
    (turn,) = scheduler.plan(lambda _: 0)
    assert turn.sequence is one
