"""Each known way to get verification wrong, planted, and seen by the exact joint law.

The mutants are those that papers and public code really contained. The sound rules stay below 1e-12 in the same
enumeration, see `test_exact_law`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pytest

import soothsay.verify.block
import soothsay.verify.token
from soothsay.sampling import Law
from soothsay.verify import Noise, Rule, verifier
from soothsay.verify.noise import Stream
from soothsay.verify.rejection import Uniform, draw, draw_residual, log_ratio
from tests.verify.toys import Tokens, as_law, dense, distance, emitted, toy

GAMMA = 3
TARGET, DRAFTER = toy(3, 1, dense), toy(3, 2, dense)
VISIBLE = 1e-3


def spoiled(rule: Rule, length: int = GAMMA + 1) -> float:
    """Give the distance of one step's law from the target's, over the first `length` tokens."""
    return distance(lambda noise: emitted(rule, noise, TARGET, DRAFTER, GAMMA), TARGET, length)


@pytest.mark.parametrize("rule", [Rule.TOKEN, Rule.BLOCK])
def test_without_a_mutant_there_is_nothing_to_see(rule: Rule) -> None:
    assert spoiled(rule) < 1e-12


def test_correction_drawn_from_the_target_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soothsay.verify.token, "draw_residual", lambda p, q, survival, unit: draw(p, unit))
    assert spoiled(Rule.TOKEN) > VISIBLE


def test_token_residual_under_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soothsay.verify.block, "draw_residual", lambda p, q, _, unit: draw_residual(p, q, 1.0, unit))
    assert spoiled(Rule.BLOCK) > VISIBLE
    assert spoiled(Rule.BLOCK, length=1) < 1e-12  # a test of the first token alone is blind to it


def test_block_scan_that_stops_at_the_first_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def impatient(ps: Sequence[Law], qs: Sequence[Law], survivals: Sequence[float], uniform: Uniform) -> int:
        for length in range(1, len(ps)):
            chance = soothsay.verify.block._chance(ps[length], qs[length], survivals[length])
            if not uniform(length - 1, Stream.ACCEPT) < chance:
                return length - 1
        return len(ps) if uniform(len(ps) - 1, Stream.ACCEPT) < survivals[-1] else len(ps) - 1

    monkeypatch.setattr(soothsay.verify.block, "_longest", impatient)
    assert spoiled(Rule.BLOCK) > VISIBLE


def test_last_position_judged_by_the_unclamped_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the released code of hierarchical speculative decoding (arXiv 2601.05724) does."""
    clamped = soothsay.verify.block._survivals

    def unclamped(ps: Sequence[Law], qs: Sequence[Law], tokens: Sequence[int]) -> list[float]:
        whole = sum(log_ratio(p, q, token) for p, q, token in zip(ps, qs, tokens, strict=True))
        return [*clamped(ps, qs, tokens)[:-1], math.exp(min(0.0, whole))]

    monkeypatch.setattr(soothsay.verify.block, "_survivals", unclamped)
    assert spoiled(Rule.BLOCK) > VISIBLE
    assert spoiled(Rule.BLOCK, length=1) < 1e-12


Handed = tuple[Sequence[Law], Sequence[int], Sequence[Law]]


def tampered(rule: Rule, tamper: Callable[[Sequence[Law], Sequence[int], Sequence[Law]], Handed]) -> float:
    """Give the distance when what reaches the rule is not what happened."""

    def run(noise: Noise) -> Tokens:
        judge, qs = verifier(rule, noise), list[Law]()
        tokens: Tokens = ()
        for position in range(GAMMA):
            qs.append(DRAFTER(tokens))
            tokens = (*tokens, judge.drafting(0)(qs[-1], position))
        laws = [TARGET(tokens[:index]) for index in range(GAMMA + 1)]
        return judge.verify(*tamper(laws, tokens, qs), 0).tokens

    return distance(run, TARGET, GAMMA + 1)


def cooled(law: Law) -> Law:
    """Give the same law at temperature 0.7."""
    return Law(law.ids, as_law(np.exp(law.log_probabilities / 0.7)).log_probabilities)


def without_doubtful_end(laws: Sequence[Law], tokens: Sequence[int], qs: Sequence[Law]) -> Handed:
    """Cut the draft before its first token that the drafter gave less than 0.3."""
    sure = [q.log_probability(token) > math.log(0.3) for q, token in zip(qs, tokens, strict=True)]
    kept = sure.index(False) if False in sure else len(sure)
    return laws[: kept + 1], tokens[:kept], qs[:kept]


@pytest.mark.parametrize("rule", [Rule.TOKEN, Rule.BLOCK])
class TestWhatReachesTheRule:
    def test_untampered(self, rule: Rule) -> None:
        assert tampered(rule, lambda laws, tokens, qs: (laws, tokens, qs)) < 1e-12

    def test_draft_law_at_the_wrong_temperature(self, rule: Rule) -> None:
        assert tampered(rule, lambda laws, tokens, qs: (laws, tokens, [cooled(q) for q in qs])) > VISIBLE

    def test_low_confidence_token_dropped(self, rule: Rule) -> None:
        assert tampered(rule, without_doubtful_end) > VISIBLE

    def test_bonus_from_the_position_before(self, rule: Rule) -> None:
        assert tampered(rule, lambda laws, tokens, qs: ([*laws[:-1], laws[-2]], tokens, qs)) > VISIBLE


Key = tuple[int, int, Stream]


@dataclass(frozen=True)
class Rekeyed:
    """Noise that answers for another key than the one asked for."""

    noise: Noise
    rekey: Callable[[int, int, Stream], Key]

    def uniform(self, start: int, index: int, stream: Stream) -> float:
        return self.noise.uniform(*self.rekey(start, index, stream))


def rekeyed(rule: Rule, rekey: Callable[[int, int, Stream], Key], steps: int = 1) -> float:
    def run(noise: Noise) -> Tokens:
        return emitted(rule, cast(Noise, Rekeyed(noise, rekey)), TARGET, DRAFTER, 2, steps)

    return distance(run, TARGET, 3 * steps)


@pytest.mark.parametrize("rule", [Rule.TOKEN, Rule.BLOCK])
class TestOneUniformReused:
    def test_rightly_keyed(self, rule: Rule) -> None:
        assert rekeyed(rule, lambda start, index, stream: (start, index, stream), steps=2) < 1e-12

    def test_for_drafting_and_accepting(self, rule: Rule) -> None:
        assert rekeyed(rule, lambda start, index, stream: (start, index, Stream.DRAFT)) > VISIBLE

    def test_for_every_position(self, rule: Rule) -> None:
        assert rekeyed(rule, lambda start, index, stream: (start, 0, stream)) > VISIBLE

    def test_for_accepting_and_correcting(self, rule: Rule) -> None:
        ahead = 0 if rule is Rule.TOKEN else -1  # the number that decided this rejection, or the acceptance before it

        def shared(start: int, index: int, stream: Stream) -> Key:
            return (
                (start, max(0, index + ahead), Stream.ACCEPT) if stream is Stream.RESIDUAL else (start, index, stream)
            )

        assert rekeyed(rule, shared) > VISIBLE

    def test_for_every_step(self, rule: Rule) -> None:
        assert rekeyed(rule, lambda start, index, stream: (0, index, stream), steps=2) > VISIBLE


def test_discarded_drafts_drawn_again_with_the_same_numbers_under_block() -> None:
    """Why the start of the step is in the key: an absolute position alone is not enough."""
    assert rekeyed(Rule.BLOCK, lambda start, index, stream: (0, start + index, stream), steps=2) > VISIBLE
    assert rekeyed(Rule.BLOCK, lambda start, index, stream: (0, start + index, stream), steps=1) < 1e-12


def test_only_the_draft_keyed_by_position_under_block() -> None:
    def by_position(start: int, index: int, stream: Stream) -> Key:
        return (0, start + index, stream) if stream is Stream.DRAFT else (start, index, stream)

    assert rekeyed(Rule.BLOCK, by_position, steps=2) > VISIBLE
