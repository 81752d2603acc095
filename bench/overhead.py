"""What does the engine cost where nobody guesses? Its pace without a drafter over that of a bare loop.

Usage: python -m bench.overhead [--model MODEL] [--max-tokens 128] [--repetitions 20]

The loop feeds the model the likeliest token and does nothing else: no text, no options. Both answer the same prompt
over the same weights in turn, and give the same tokens.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from functools import partial

from bench.texts import prose, windows
from soothsay import Sampling
from soothsay.assemble import DRAFT_TOP_K, assemble
from soothsay.bench.statistics import interval, median
from soothsay.core import Capacity
from soothsay.engine import Engine
from soothsay.model.base import Feed, Model

Answer = tuple[list[int], float]
"""Tokens, and seconds from the first to the last."""


def main() -> int:
    options = _options()
    parts = assemble(
        options.model,
        "none",
        "auto",
        threads=options.threads,
        top_k=DRAFT_TOP_K,
        requantise=True,
        clock=time.perf_counter,
    )
    assert parts.loaded is not None
    (prompt,) = windows(partial(parts.loaded.tokenizer.encode, special=False), prose(None), options.prompt_tokens, 1)
    engine = Engine.of(parts, capacity=Capacity(kept_prefixes=0))
    ratios: list[float] = []
    for turn in range(options.repetitions + 1):
        tokens, seconds = _answered(engine, prompt, options.max_tokens)
        bare_tokens, bare_seconds = _looped(parts.model, prompt, len(tokens))
        assert tokens == bare_tokens
        if turn > 0:  # the first round only warms up
            ratios.append(bare_seconds / seconds)
    print(json.dumps({"model": options.model, "pace_ratio": median(ratios), "interval": interval(ratios)}))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="an alias or the path of a .gguf file")
    parser.add_argument("--prompt-tokens", type=int, default=100)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--threads", type=int)
    return parser.parse_args()


def _answered(engine: Engine, prompt: Sequence[int], max_tokens: int) -> Answer:
    answer = engine.generate(list(prompt), Sampling(max_tokens=max_tokens))
    return list(answer.tokens), answer.stats.seconds - answer.stats.first_token_seconds


def _looped(model: Model, prompt: Sequence[int], count: int) -> Answer:
    slot = model.open()
    try:
        tokens = [int(model.forward([Feed(slot, list(prompt), rows=1)])[0][0].argmax())]
        begun = time.perf_counter()
        while len(tokens) < count:
            tokens.append(int(model.forward([Feed(slot, tokens[-1:], rows=1)])[0][0].argmax()))
        return tokens, time.perf_counter() - begun
    finally:
        model.close(slot)


if __name__ == "__main__":
    sys.exit(main())
