"""From pairs of answers to the figures that are reported."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from soothsay.bench.prompts import Prompt
from soothsay.bench.run import Pair
from soothsay.bench.statistics import interval, median
from soothsay.record import Drafted, by_position


@dataclass(frozen=True, slots=True)
class Summary:
    """What drafts saved on some prompts; None where there was nothing to measure, or to compare.

    `speedup` is the median over the batches, each the median of its rounds (a batch of one is a prompt), and
    `speedup_interval` its bootstrap interval of 95 %. `bound_share` is the median share of the bound that was reached.
    `acceptance_by_position` has, for each position of a draft, the kept ones of those that were drafted.
    """

    prompts: int
    identical: bool | None
    speedup: float | None
    speedup_interval: tuple[float, float] | None
    bound_share: float | None
    plain_tokens_per_second: float | None
    tokens_per_second: float | None
    tokens_per_step: float
    acceptance_rate: float | None
    acceptance_by_position: tuple[float, ...]


def summarise(pairs: Sequence[Pair]) -> Summary:
    """Give the figures of one round or more of some batches."""
    stats = [answer.stats for pair in pairs for answer in pair.drafted.answers]
    drafted = sum(one.drafted for one in stats)
    same = [pair.identical for pair in pairs]
    speedups = _by_batch(pairs, lambda pair: pair.speedup)
    return Summary(
        prompts=len({prompt for pair in pairs for prompt in pair.batch}),
        identical=None if any(one is None for one in same) else all(same),
        speedup=median(speedups),
        speedup_interval=interval(speedups),
        bound_share=median(_by_batch(pairs, lambda pair: pair.bound_share)),
        plain_tokens_per_second=median(_by_batch(pairs, lambda pair: pair.plain.tokens_per_second)),
        tokens_per_second=median(_by_batch(pairs, lambda pair: pair.drafted.tokens_per_second)),
        tokens_per_step=sum(one.tokens for one in stats) / sum(one.steps for one in stats),
        acceptance_rate=sum(one.accepted for one in stats) / drafted if drafted else None,
        acceptance_by_position=by_position(_drafts(pairs)),
    )


def by_category(pairs: Sequence[Pair]) -> dict[str, Summary]:
    """Give the figures of each category, in the order of the prompts."""
    names = dict.fromkeys(pair.category for pair in pairs)
    return {name: summarise([pair for pair in pairs if pair.category == name]) for name in names}


def time_share(pairs: Sequence[Pair]) -> dict[str, float | None]:
    """Split the speculative seconds from the first token to the last: drafters, target passes, verdicts, the rest.

    Shares of 1; None where the first token was all.
    """
    steps = [step for pair in pairs for step in pair.drafted.steps]
    total = sum(pair.drafted.seconds for pair in pairs)
    spent = {
        "draft": sum(step.draft_seconds for step in steps),
        "verify": sum(step.target_seconds for step in steps),
        "sample": sum(step.verify_seconds for step in steps),
    }
    spent["rest"] = max(0.0, total - sum(spent.values()))
    return {name: seconds / total if total > 0 else None for name, seconds in spent.items()}


def _drafts(pairs: Sequence[Pair]) -> Iterator[Drafted]:
    return (draft for pair in pairs for step in pair.drafted.steps for draft in step.drafts)


def _by_batch(pairs: Sequence[Pair], value: Callable[[Pair], float | None]) -> list[float]:
    """Give each batch's median over its rounds, where there is one."""
    found: dict[tuple[Prompt, ...], list[float]] = {}
    for pair in pairs:
        if (one := value(pair)) is not None:
            found.setdefault(pair.batch, []).append(one)
    return [statistics.median(values) for values in found.values()]
