"""Is anybody kept waiting? Time to the first token and the longest gap between later ones, with and without drafts.

Usage: python -m bench.gaps --model MODEL --draft DRAFT [--prompt-tokens 1000] [--repetitions 5]

The same prompt of so many tokens is answered in turn by both, over the same weights. Gaps are given in plain steps: the
median gap of plain decoding in the same run.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from statistics import median

from bench.texts import prose, windows
from soothsay import Sampling
from soothsay.assemble import DRAFT_TOP_K, assemble
from soothsay.core import Capacity
from soothsay.engine import Engine
from soothsay.schedule.policy import FixedGamma


def main() -> int:
    options = _options()
    drafted = assemble(
        options.model,
        options.draft,
        "auto",
        threads=options.threads,
        top_k=DRAFT_TOP_K,
        requantise=True,
        clock=time.perf_counter,
    )
    plain = replace(drafted, drafters={}, policy=FixedGamma(None, 0))
    engines = {
        name: Engine.of(parts, capacity=Capacity(kept_prefixes=0))
        for name, parts in (("plain", plain), ("drafted", drafted))
    }
    assert drafted.loaded is not None
    encode = partial(drafted.loaded.tokenizer.encode, special=False)
    (prompt,) = windows(encode, prose(None), options.prompt_tokens, 1)
    first: dict[str, list[float]] = {name: [] for name in engines}
    gaps: dict[str, list[list[float]]] = {name: [] for name in engines}
    for turn in range(options.repetitions + 1):
        for name, engine in engines.items():
            waited = _waits(engine, prompt, options.max_tokens)
            if turn > 0:  # the first round only warms up
                first[name].append(waited[0])
                gaps[name].append(waited[1:])
    step = median(gap for answer in gaps["plain"] for gap in answer)
    report = {
        "prompt_tokens": options.prompt_tokens,
        "first_token_ratio": median(first["drafted"]) / median(first["plain"]),
        "longest_gap_steps": median(max(answer) for answer in gaps["drafted"]) / step,
        "longest_plain_gap_steps": median(max(answer) for answer in gaps["plain"]) / step,
    }
    print(json.dumps(report))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="an alias or the path of a .gguf file")
    parser.add_argument("--draft", required=True, help="a draft model")
    parser.add_argument("--prompt-tokens", type=int, default=1000)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--threads", type=int)
    return parser.parse_args()


def _waits(engine: Engine, prompt: Sequence[int], max_tokens: int) -> list[float]:
    """Seconds to the first token, then between neighbours; tokens of one step have no gap between them."""
    pieces = engine.stream(list(prompt), Sampling(max_tokens=max_tokens))
    times = [time.perf_counter(), *(time.perf_counter() for _ in pieces)]
    return [after - before for before, after in pairwise(times)]


if __name__ == "__main__":
    sys.exit(main())
