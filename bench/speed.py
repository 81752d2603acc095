"""Does it pay? Plain and speculative decoding in turn, prompt by prompt, in one process.

Usage: python -m bench.speed --prompts FILE.jsonl --model MODEL [--draft ngram|MODEL] [--gamma 4|auto]

The speedup of a prompt is plain seconds over speculative seconds, from the first emitted token to the last, everything
in between included. The figure is the median over the prompts.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.texts import prompts
from soothsay import Completion, Engine, Sampling

WARM_UP = "Write a function that adds two numbers."


@dataclass(frozen=True, slots=True)
class Pair:
    """One prompt, answered both ways."""

    name: str
    plain: Completion
    drafted: Completion

    @property
    def speedup(self) -> float:
        return _seconds(self.plain) / _seconds(self.drafted)

    @property
    def draft_cost(self) -> float:
        """c: a drafted token, the drafter's reading of the prompt included, in plain steps."""
        stats = self.drafted.stats
        return stats.draft_seconds / max(stats.drafted, 1) * _pace(self.plain)

    @property
    def pass_cost(self) -> float:
        """v(gamma + 1): a target pass after the prompt's, in plain steps."""
        stats = self.drafted.stats
        return (stats.target_seconds - stats.first_token_seconds) / (stats.steps - 1) * _pace(self.plain)

    @property
    def identical(self) -> bool:
        return self.plain.tokens == self.drafted.tokens


def main() -> int:
    options = _options()
    pairs = _pairs(options)
    report = _report(pairs) | {"gamma": options.gamma, "temperature": options.temperature}
    print(
        "  ".join(
            f"{name} {value:.3f}" if isinstance(value, float) else f"{name} {value}" for name, value in report.items()
        )
    )
    print(json.dumps({"model": Path(options.model).name, "draft": Path(options.draft).name} | report))
    return 0 if report["identical"] else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=Path, required=True, help="a file of prompts, one JSON object a line")
    parser.add_argument("--category", default="coding", help="which of its prompts")
    parser.add_argument("--count", type=int, default=10, help="how many of them")
    parser.add_argument("--model", default="qwen2.5-coder-1.5b", help="an alias or the path of a .gguf file")
    parser.add_argument("--draft", default="ngram", help="ngram, or a draft model")
    parser.add_argument("--gamma", type=lambda text: text if text == "auto" else int(text), default=4)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--threads", type=int)
    return parser.parse_args()


def _pairs(options: argparse.Namespace) -> list[Pair]:
    plain = Engine(options.model, draft="none", threads=options.threads)
    drafted = Engine(options.model, draft=options.draft, gamma=options.gamma, threads=options.threads)
    sampling = Sampling(temperature=options.temperature, seed=options.seed, max_tokens=options.max_tokens)
    for engine in (plain, drafted):
        engine.generate(WARM_UP, Sampling(max_tokens=8))
    pairs = []
    for prompt in prompts(options.prompts, options.category)[: options.count]:
        pairs.append(Pair(prompt.name, plain.generate(prompt.text, sampling), drafted.generate(prompt.text, sampling)))
        print(_line(pairs[-1]), flush=True)
    return pairs


def _report(pairs: Sequence[Pair]) -> dict[str, float | int | bool]:
    tokens, steps, drafted, accepted = (
        sum(getattr(pair.drafted.stats, name) for pair in pairs) for name in ("tokens", "steps", "drafted", "accepted")
    )
    return {
        "prompts": len(pairs),
        "speedup": median(pair.speedup for pair in pairs),
        "lowest": min(pair.speedup for pair in pairs),
        "highest": max(pair.speedup for pair in pairs),
        "plain_tokens_per_second": median(_pace(pair.plain) for pair in pairs),
        "tokens_per_second": median(_pace(pair.drafted) for pair in pairs),
        "draft_cost": median(pair.draft_cost for pair in pairs),
        "pass_cost": median(pair.pass_cost for pair in pairs),
        "tokens_per_step": tokens / steps,
        "acceptance_rate": accepted / drafted if drafted else 0.0,
        "identical": all(pair.identical for pair in pairs),
    }


def _seconds(answer: Completion) -> float:
    return answer.stats.seconds - answer.stats.first_token_seconds


def _pace(answer: Completion) -> float:
    return (len(answer.tokens) - 1) / _seconds(answer)


def _line(pair: Pair) -> str:
    plain, drafted = pair.plain.stats, pair.drafted.stats
    return (
        f"prompt {pair.name}: {plain.tokens} tokens, {_pace(pair.plain):.1f} tokens/s plain, {_pace(pair.drafted):.1f} "
        f"with drafts, speedup {pair.speedup:.2f}, {drafted.tokens_per_step:.2f} tokens a step, first after "
        f"{plain.first_token_seconds:.2f} and {drafted.first_token_seconds:.2f} s, "
        f"{'identical' if pair.identical else 'DIFFERENT'}"
    )


if __name__ == "__main__":
    sys.exit(main())
