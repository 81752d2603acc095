"""What does a trace cost? The seconds of answers with one over those without, in turn, over the same weights.

Usage: python -m bench.tracing [--model MODEL] [--draft DRAFT] [--max-tokens 128] [--rounds 20]

Beside that, the time spent inside of the trace itself over the time of the answers, which is steadier.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from soothsay import Completion, Sampling, Tracer
from soothsay.assemble import DRAFT_TOP_K, assemble
from soothsay.bench.statistics import interval, median
from soothsay.core import Capacity
from soothsay.engine import Engine
from soothsay.record import Record

PROMPT = "Write a Python class for a bank account with methods to deposit, withdraw and show the balance."


class Timed:
    """A trace that knows how long it took."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer, self.seconds = tracer, 0.0

    def __call__(self, record: Record) -> None:
        begun = time.perf_counter()
        self._tracer(record)
        self.seconds += time.perf_counter() - begun


def main() -> int:
    options = _options()
    clock = time.perf_counter
    parts = assemble(
        options.model, options.draft, "auto", threads=None, top_k=DRAFT_TOP_K, requantise=True, clock=clock
    )
    sampling = Sampling(temperature=options.temperature, seed=3, max_tokens=options.max_tokens)
    ratios, shares = [], []
    with tempfile.TemporaryDirectory() as folder, Tracer(Path(folder) / "trace.jsonl") as tracer:
        timed = Timed(tracer)
        with_trace = Engine.of(parts, capacity=Capacity(kept_prefixes=0), watch=timed, details=True)
        without = Engine.of(parts, capacity=Capacity(kept_prefixes=0))
        for turn in range(options.rounds + 1):
            seconds: dict[Engine, float] = {}
            timed.seconds = 0.0
            for engine in (with_trace, without) if turn % 2 else (without, with_trace):
                answer: Completion = engine.generate(PROMPT, sampling)
                seconds[engine] = answer.stats.seconds
            if turn > 0:  # the first round only warms up
                ratios.append(seconds[with_trace] / seconds[without])
                shares.append(timed.seconds / seconds[with_trace])
    figures = {"ratio": median(ratios), "interval": interval(ratios), "share": median(shares)}
    print(json.dumps({"model": options.model, "draft": options.draft} | figures))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="an alias or the path of a .gguf file")
    parser.add_argument("--draft", default="auto", help="who guesses")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
