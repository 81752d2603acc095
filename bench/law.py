"""Is the law of the output the target's own? Chi-square of the joint law of a few tokens, through the whole engine.

Usage: python -m bench.law [--runs 200000]                                     (needs scipy)

The target is a table: a few tokens, and logits that depend on the whole prefix, so the joint law is known exactly. Each
run has its own seed, so the outcome is the same every time. Rules and drafters are tested together, after Holm, at a
familywise level of 0.01. The status is 1 when one fails.

The power: a law at total variation d from the target's has a chi-square distance of at least 4 d^2, whatever its shape.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product

import numpy as np
from scipy.optimize import brentq
from scipy.stats import chi2, ncx2

from soothsay import Engine, Sampling
from soothsay.draft.base import Drafter
from soothsay.draft.model import ModelDrafter
from soothsay.model.table import TableModel

LEVEL = 0.01
POWER = 0.99
VOCABULARY = 4
TOKENS = 3
TEMPERATURE = 0.8
PROMPT = (0, 1, 2, 3, 0, 1)
RULES = ("coupled", "block", "token")
DRAFTERS = ("ngram", "model")
CASES = tuple(product(RULES, DRAFTERS))
SMALLEST_EXPECTED = 5

Cell = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One rule with one drafter; `acceptance_rate` shows that drafts were both kept and refused."""

    rule: str
    drafter: str
    runs: int
    statistic: float
    p_value: float
    acceptance_rate: float


def main() -> int:
    options = _options()
    outcomes = []
    with ProcessPoolExecutor(options.processes) as pool:
        for outcome in pool.map(_outcome, *zip(*CASES, strict=True), [options.runs] * len(CASES)):
            outcomes.append(outcome)
            print(_line(outcome), flush=True)
    caught, failed = smallest_caught(options.runs), list(_failed(outcomes))
    print(f"{VOCABULARY**TOKENS} cells, {options.runs} runs: a total variation of {caught:.4f} is caught with {POWER}")
    print(f"failed: {', '.join(failed)}" if failed else f"all pass at {LEVEL}, after Holm")
    print(json.dumps({"outcomes": [asdict(outcome) for outcome in outcomes], "caught": caught, "failed": failed}))
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200_000, help="for each rule and drafter")
    parser.add_argument("--processes", type=int, help="how many cases at once (default: one a core)")
    return parser.parse_args()


def _line(outcome: Outcome) -> str:
    return (
        f"{outcome.rule:8} {outcome.drafter:6} chi-square {outcome.statistic:6.1f}  p {outcome.p_value:.4f}  "
        f"accepted {outcome.acceptance_rate:.3f}"
    )


def _outcome(rule: str, drafter: str, runs: int) -> Outcome:
    target = _target()
    engine = Engine(target, draft=_drafter(drafter, target), gamma=TOKENS - 1, verify=rule)
    counts: Counter[Cell] = Counter()
    drafted = accepted = 0
    for seed in range(runs):
        answer = engine.generate(PROMPT, Sampling(temperature=TEMPERATURE, seed=seed, max_tokens=TOKENS))
        counts[answer.tokens] += 1
        drafted += answer.stats.drafted
        accepted += answer.stats.accepted
    statistic = _chi_square(counts, dict(_joint(target)))
    return Outcome(rule, drafter, runs, statistic, float(chi2.sf(statistic, _freedom())), accepted / drafted)


def _target() -> TableModel:
    return TableModel(VOCABULARY, seed=5, sharpness=0.8)


def _drafter(name: str, target: TableModel) -> str | Drafter:
    """The draft model is half the target and half another, and never says its least likely token."""
    if name == "ngram":
        return name
    return ModelDrafter(target.blend(TableModel(VOCABULARY, seed=6), 0.5), VOCABULARY, top_k=VOCABULARY - 1)


def _joint(target: TableModel, prefix: Cell = (), probability: float = 1.0) -> Iterator[tuple[Cell, float]]:
    """Each sequence of TOKENS tokens and its probability, straight from the table."""
    if len(prefix) == TOKENS:
        yield prefix, probability
        return
    scores = target.logits(PROMPT + prefix).astype(np.float64) / TEMPERATURE
    for token, weight in enumerate(np.exp(scores) / np.exp(scores).sum()):
        yield from _joint(target, (*prefix, token), probability * float(weight))


def _chi_square(counts: Counter[Cell], joint: dict[Cell, float]) -> float:
    expected = {cell: counts.total() * probability for cell, probability in joint.items()}
    assert counts.keys() <= expected.keys()
    if min(expected.values()) < SMALLEST_EXPECTED:
        raise SystemExit(
            f"a cell expects {min(expected.values()):.1f} runs; {SMALLEST_EXPECTED} are needed: ask for more runs"
        )
    return sum((counts[cell] - mean) ** 2 / mean for cell, mean in expected.items())


def _freedom() -> int:
    return int(VOCABULARY**TOKENS - 1)


def smallest_caught(runs: int) -> float:
    """The smallest total variation that fails with probability POWER, even at the strictest level Holm can ask for."""
    threshold = chi2.isf(LEVEL / len(CASES), _freedom())
    return float(brentq(lambda d: ncx2.sf(threshold, _freedom(), 4 * runs * d**2) - POWER, 1e-6, 1))


def _failed(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Holm (1979): the smallest p-value against LEVEL / n, the next against LEVEL / (n - 1), until one is large."""
    ranked = sorted(outcomes, key=lambda outcome: outcome.p_value)
    for place, outcome in enumerate(ranked):
        if outcome.p_value > LEVEL / (len(ranked) - place):
            return
        yield f"{outcome.rule} with {outcome.drafter}"


if __name__ == "__main__":
    sys.exit(main())
