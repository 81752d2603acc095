"""A target that drafts for itself: from its own cache, of which it leaves nothing behind and changes nothing."""

from collections.abc import Sequence

import pytest

from soothsay.draft.base import Ask, Outlook
from soothsay.draft.own import SelfDrafter
from soothsay.model.base import Feed, Logits, Slot
from soothsay.sampling import Law, Sampling, law
from soothsay.verify.coupled import draw_coupled
from soothsay.verify.noise import Noise
from tests.engines import SpyModel

SAMPLING = Sampling(temperature=0.9)
NOISE = Noise(5)


def draw(drawn_from: Law, position: int) -> int:
    return draw_coupled(drawn_from, NOISE, position)


def held(model: SpyModel, context: Sequence[int]) -> Slot:
    """A slot with all of a context but its last token, as a target has it when it decodes."""
    slot = model.open()
    model.forward([Feed(slot, context[:-1], 0)])
    model.passes.clear()
    return slot


def ask(drafter: SelfDrafter, model: SpyModel, context: Sequence[int], gamma: int) -> Ask:
    return Ask(drafter.open(), context, gamma, SAMPLING, draw, slot=held(model, context))


def continued(model: SpyModel, context: Sequence[int], count: int) -> tuple[int, ...]:
    """What the model says by itself, one token after another."""
    tokens, slot = list(context), model.open()
    for _ in range(count):
        (logits,) = model.forward([Feed(slot, tokens[model.length(slot) :], 1)])
        tokens.append(draw(law(logits[0], SAMPLING), len(tokens)))
    model.close(slot)
    return tuple(tokens[len(context) :])


def test_it_goes_on_from_what_the_target_has_read() -> None:
    """The bug: reading the prompt anew, which costs a light model's pass over all of it."""
    model = SpyModel()
    drafter, context = SelfDrafter(model, model.vocab_size), [1, 2, 0, 2, 1, 1, 0]
    (draft,) = drafter.propose([ask(drafter, model, context, 4)])
    assert [len(feed.tokens) for passed in model.passes for feed in passed] == [1] * 4
    assert draft.tokens == continued(model, context, 4)


def test_the_targets_slot_is_as_it_was_and_the_fork_is_gone() -> None:
    model = SpyModel()
    drafter = SelfDrafter(model, model.vocab_size)
    asks = [ask(drafter, model, context, gamma) for context, gamma in (([1, 2, 0], 3), ([2, 1, 0, 1, 1], 5))]
    before = model.open_slots
    drafter.propose(asks)
    assert model.open_slots == before
    assert [model.length(one.slot) for one in asks if one.slot is not None] == [2, 4]


def test_a_draft_that_is_interrupted_leaves_no_fork_behind() -> None:
    class Interrupted(SpyModel):
        def forward(self, feeds: Sequence[Feed]) -> list[Logits]:
            if len(self.passes) == 2:
                raise KeyboardInterrupt
            return super().forward(feeds)

    model = Interrupted()
    drafter = SelfDrafter(model, model.vocab_size)
    asked = ask(drafter, model, [1, 2, 0], 4)
    with pytest.raises(KeyboardInterrupt):
        drafter.propose([asked])
    assert model.open_slots == 1


def test_it_has_read_whatever_there_is_and_stops_where_the_context_ends() -> None:
    model = SpyModel(max_length=8)
    drafter, context = SelfDrafter(model, model.vocab_size), [1, 2, 0, 2, 1, 1]
    assert drafter.outlook(drafter.open(), context) == Outlook()
    (draft,) = drafter.propose([ask(drafter, model, context, 9)])
    assert len(draft.tokens) == 3  # the last of them is never fed
