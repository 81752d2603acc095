"""Are the words the same with and without drafts, alone and in a batch? Token ids are compared with ==.

Usage: python -m bench.identity --prompts FILE.jsonl [--model MODEL] [--draft MODEL] [--count 20]

Prompts come from all categories in turn. Each is answered at temperature 0, and at 0.8 with a seed, by every drafter,
first alone and then all in one batch. The reference is the plain answer alone. The status is 1 on a difference.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.texts import spread
from soothsay import Completion, Engine, Sampling
from soothsay.bench.prompts import Prompt, read

TEMPERATURES = (0.0, 0.8)
NGRAM_GAMMAS = (3, 8)
MODEL_GAMMAS = (2, 5)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to the same words."""

    draft: str
    gamma: int

    def __str__(self) -> str:
        return "none" if self.draft == "none" else f"{Path(self.draft).name} gamma {self.gamma}"


@dataclass(frozen=True, slots=True)
class Row:
    """What one way said at one temperature; `difference` names the first token that is not the reference's."""

    way: str
    temperature: float
    batched: bool
    tokens: int
    tokens_per_step: float
    acceptance_rate: float | None
    difference: str | None


def main() -> int:
    options = _options()
    asked = spread(read(options.prompts), options.count)
    rows = []
    for row in _rows(asked, options):
        rows.append(row)
        print(_line(row), flush=True)
    differences = [row.difference for row in rows if row.difference]
    print(f"{len(asked)} prompts, {len(rows)} runs: {len(differences) or 'no'} differences")
    report = {"model": Path(options.model).name, "prompts": len(asked), "differences": differences}
    print(json.dumps(report | {"tokens": sum(row.tokens for row in rows), "runs": len(rows)}))
    return 1 if differences else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=Path, required=True, help="a file of prompts, one JSON object a line")
    parser.add_argument("--model", default="smollm2-135m", help="an alias or the path of a .gguf file")
    parser.add_argument("--draft", help="a draft model, beside the n-gram drafter")
    parser.add_argument("--count", type=int, default=20, help="how many prompts")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--seed", type=int, default=7, help="of the answers at temperature 0.8")
    parser.add_argument("--threads", type=int)
    return parser.parse_args()


def _rows(asked: Sequence[Prompt], options: argparse.Namespace) -> Iterator[Row]:
    reference: dict[float, list[Completion]] = {}
    for way in _ways(options.draft):
        engine = Engine(options.model, draft=way.draft, gamma=way.gamma, threads=options.threads)
        for temperature in TEMPERATURES:
            sampling = Sampling(temperature=temperature, seed=options.seed, max_tokens=options.max_tokens)
            alone = [engine.generate(prompt.text, sampling) for prompt in asked]
            batch = engine.generate([prompt.text for prompt in asked], sampling)
            expected = reference.setdefault(temperature, alone)
            yield _row(way, temperature, False, asked, alone, expected)
            yield _row(way, temperature, True, asked, batch, expected)


def _ways(draft: str | None) -> list[Way]:
    models = [Way(draft, gamma) for gamma in MODEL_GAMMAS] if draft else []
    return [Way("none", 0), *(Way("ngram", gamma) for gamma in NGRAM_GAMMAS), *models]


def _row(
    way: Way,
    temperature: float,
    batched: bool,
    asked: Sequence[Prompt],
    answers: Sequence[Completion],
    expected: Sequence[Completion],
) -> Row:
    drafted, accepted, steps, tokens = (
        sum(getattr(answer.stats, name) for answer in answers) for name in ("drafted", "accepted", "steps", "tokens")
    )
    compared = zip(asked, answers, expected, strict=True)
    differences = (_difference(prompt, answer.tokens, plain.tokens) for prompt, answer, plain in compared)
    return Row(
        way=str(way),
        temperature=temperature,
        batched=batched,
        tokens=tokens,
        tokens_per_step=tokens / steps,
        acceptance_rate=accepted / drafted if drafted else None,
        difference=next(filter(None, differences), None),
    )


def _difference(prompt: Prompt, found: Sequence[int], plain: Sequence[int]) -> str | None:
    if found == plain:
        return None
    shared = next((i for i, (a, b) in enumerate(zip(found, plain, strict=False)) if a != b), None)
    if shared is None:
        return f"prompt {prompt.name}: {len(found)} tokens, {len(plain)} without a draft"
    return f"prompt {prompt.name}, position {shared}: {found[shared]}, {plain[shared]} without a draft"


def _line(row: Row) -> str:
    rate = "-" if row.acceptance_rate is None else f"{row.acceptance_rate:.3f}"
    where = "one batch" if row.batched else "alone"
    return (
        f"{row.way:30} temperature {row.temperature}  {where:9}  {row.tokens} tokens  "
        f"{row.tokens_per_step:.2f} a step  accepted {rate:5}  {row.difference or 'equal'}"
    )


if __name__ == "__main__":
    sys.exit(main())
