"""Is the law of the output the target's own? Chi-square of the joint law of a few tokens, through the whole engine.

Usage: python -m bench.law [--runs 200000]

The target is a table: a few tokens, and logits that depend on the whole prefix, so the joint law is known exactly. Each
run has its own seed, so the outcome is the same every time. Rules and drafters are tested together, by the statistics
of the audit. The status is 1 when one fails.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product

import numpy as np

from soothsay import Engine, Sampling
from soothsay.audit.fit import FEWEST, LEVEL, POWER, Fit, failed, fit
from soothsay.draft.base import Drafter
from soothsay.draft.model import ModelDrafter
from soothsay.model.table import TableModel

VOCABULARY = 4
TOKENS = 3
TEMPERATURE = 0.8
PROMPT = (0, 1, 2, 3, 0, 1)
RULES = ("coupled", "block", "token")
DRAFTERS = ("ngram", "model")
CASES = tuple(product(RULES, DRAFTERS))

Cell = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One rule with one drafter; `acceptance_rate` shows that drafts were both kept and refused."""

    rule: str
    drafter: str
    fit: Fit
    acceptance_rate: float


def main() -> int:
    options = _options()
    outcomes = []
    with ProcessPoolExecutor(options.processes) as pool:
        for outcome in pool.map(_outcome, *zip(*CASES, strict=True), [options.runs] * len(CASES)):
            outcomes.append(outcome)
            print(_line(outcome), flush=True)
    fails = failed([outcome.fit.p_value for outcome in outcomes])
    wrong = [f"{one.rule} with {one.drafter}" for one, fails in zip(outcomes, fails, strict=True) if fails]
    caught = max(outcome.fit.caught for outcome in outcomes)
    print(f"{VOCABULARY**TOKENS} cells, {options.runs} runs: a total variation of {caught:.4f} is caught with {POWER}")
    print(f"failed: {', '.join(wrong)}" if wrong else f"all pass at {LEVEL}, after Holm")
    print(json.dumps({"outcomes": [asdict(outcome) for outcome in outcomes], "caught": caught, "failed": wrong}))
    return 1 if wrong else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200_000, help="for each rule and drafter")
    parser.add_argument("--processes", type=int, help="how many cases at once (default: one a core)")
    return parser.parse_args()


def _line(outcome: Outcome) -> str:
    return (
        f"{outcome.rule:8} {outcome.drafter:6} chi-square {outcome.fit.statistic:6.1f}  p {outcome.fit.p_value:.4f}  "
        f"accepted {outcome.acceptance_rate:.3f}"
    )


def _outcome(rule: str, drafter: str, runs: int) -> Outcome:
    target = TableModel(VOCABULARY, seed=5, sharpness=0.8)
    engine = Engine(target, draft=_drafter(drafter, target), gamma=TOKENS - 1, verify=rule)
    joint = dict(_joint(target))
    if runs * min(joint.values()) < FEWEST:
        raise SystemExit(
            f"a cell expects {runs * min(joint.values()):.1f} runs; {FEWEST:g} are needed: ask for more runs"
        )
    counts: Counter[Cell] = Counter()
    drafted = accepted = 0
    for seed in range(runs):
        answer = engine.generate(PROMPT, Sampling(temperature=TEMPERATURE, seed=seed, max_tokens=TOKENS))
        counts[answer.tokens] += 1
        drafted += answer.stats.drafted
        accepted += answer.stats.accepted
    return Outcome(rule, drafter, fit(counts, joint, len(CASES)), accepted / drafted)


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


if __name__ == "__main__":
    sys.exit(main())
