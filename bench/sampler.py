"""What does the sampler cost, with every option at once? Its seconds over those of a whole step.

Usage: python -m bench.sampler [--model MODEL] [--draft DRAFT] [--max-tokens 128] [--rounds 5]

Answers of the same length with temperature alone and with every option on, in turn, with no drafts and with drafts. A
step is what the engine does between two batches of tokens: drafting, the target's pass, the sampler and its verdict.
"""

import argparse
import json
import sys
import time
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from soothsay import Sampling
from soothsay.assemble import DRAFT_TOP_K, assemble
from soothsay.engine import Engine
from soothsay.record import Record

PROMPT = "Write a Python class for a bank account with methods to deposit, withdraw and show the balance."


class Cost(NamedTuple):
    """The sampler's share of the steps of an answer, and its seconds a step."""

    share: float
    seconds: float


def no_repeats(history: list[int], logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Ban the token that was said last: a user's own processor."""
    logits[history[-1]] = -np.inf
    return logits


def everything(vocab_size: int, sampling: Sampling) -> Sampling:
    """Give all options at once: a thousand biases, a thousand bans, and everything that looks back."""
    ids = np.random.default_rng(0).permutation(vocab_size)[:3000].tolist()
    return Sampling(
        temperature=sampling.temperature,
        seed=sampling.seed,
        max_tokens=sampling.max_tokens,
        top_k=100,
        top_p=0.95,
        min_p=0.01,
        ignore_eos=True,
        min_tokens=sampling.max_tokens,
        stop=("a text that never comes",),
        stop_ids=tuple(ids[:2]),
        repetition_penalty=1.1,
        frequency_penalty=0.2,
        presence_penalty=0.1,
        logit_bias=dict.fromkeys(ids[2:1000], 0.5),
        banned_tokens=tuple(ids[1000:2000]),
        allowed_tokens=tuple(token for token in range(vocab_size) if token % 50),
        processors=(no_repeats,),
        logprobs=5,
    )


def main() -> int:
    options = _options()
    found: dict[str, float] = {}
    for draft in ("none", options.draft):
        steps: list[Record] = []
        parts = assemble(
            options.model, draft, "auto", threads=None, top_k=DRAFT_TOP_K, requantise=True, clock=time.perf_counter
        )
        engine = Engine.of(parts, watch=steps.append)
        bare = Sampling(temperature=0.8, seed=3, max_tokens=options.max_tokens, ignore_eos=True)
        kinds = {"temperature": bare, "everything": everything(parts.model.vocab_size, bare)}
        costs: dict[str, list[Cost]] = {name: [] for name in kinds}
        for turn in range(options.rounds + 1):
            for name, sampling in kinds.items():
                steps.clear()
                engine.generate(PROMPT, sampling)
                if turn > 0:  # the first round only warms up
                    costs[name].append(_cost(steps))
        for name, many in costs.items():
            share, seconds = median(one.share for one in many), median(one.seconds for one in many)
            print(f"{draft:24} {name:12} {1e3 * seconds:7.3f} ms a step, {share:.4f} of it")
            found[f"{name}, draft {draft}"] = share
    print(json.dumps({"model": options.model, "shares": found}))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen2.5-coder-1.5b", help="an alias or the path of a .gguf file")
    parser.add_argument("--draft", default="auto", help="who guesses in the second half")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def _cost(steps: list[Record]) -> Cost:
    later = [step for step in steps if step.drafts][1:]
    spent = sum(step.verify_seconds for step in later)
    whole = sum(step.draft_seconds + step.target_seconds + step.verify_seconds for step in later)
    return Cost(spent / whole, spent / len(later))


if __name__ == "__main__":
    sys.exit(main())
