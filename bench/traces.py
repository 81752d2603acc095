"""What a draft model would have guessed, token by token: recorded once, to try policies on.

Usage: python -m bench.traces --prompts FILE.jsonl [--out tests/fixtures/traces.json]

A draft is right as far as each of its tokens is the answer's own, and then the draft model has read just what it would
have read in the answer. So one pass over an answer tells how far a draft from any of its positions would have gone.
Beyond the first wrong token a draft is on its own, and its confidence there is recorded by drafting on.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import exp
from pathlib import Path

from bench.texts import prompts
from soothsay import Engine, Sampling
from soothsay.draft.base import Ask
from soothsay.draft.model import ModelDrafter
from soothsay.draft.ngram import NgramDrafter
from soothsay.load import Loader
from soothsay.model.base import Feed, Logits, Model, Slot
from soothsay.prompt import Encoder
from soothsay.sampling import Law, law
from soothsay.verify.noise import Noise
from soothsay.verify.rules import Rule, verifier

SEED, TOKENS, BEYOND = 7, 128, 7
WINDOWS = (8, 16, 32, 64, 4096)
PLAN = (
    ("coding", 0.0, 10),
    ("math_reasoning", 0.0, 10),
    ("coding", 0.8, 5),
    ("math_reasoning", 0.8, 5),
    ("writing", 0.0, 6),
    ("writing", 1.5, 6),
    ("summarization", 0.0, 3),
)


@dataclass(frozen=True, slots=True)
class Trace:
    """One answer. Lists go by position in it; `right` and `confidence` (the highest probability, in percent) by window.

    `beyond`: the confidences of a draft after its wrong token, by that token's position, from the whole prompt.
    `ngram`: match length (0: no guess) and how many of its guesses would have been right.
    """

    name: str
    category: str
    temperature: float
    prompt_tokens: int
    tokens: int
    right: dict[int, str]
    confidence: dict[int, list[int]]
    beyond: dict[int, list[int]]
    ngram: list[tuple[int, int]]


def main() -> None:
    options = _options()
    loader = Loader()
    target = loader.target(options.model)
    draft = loader.draft_model(options.draft, target)
    engine = Engine(options.model, draft=ModelDrafter(draft, target.model.vocab_size), gamma=4)
    encode = Encoder(target, target.model.vocab_size, target.model.max_length).encode
    traces = []
    for category, temperature, count in PLAN:
        for prompt in prompts(options.prompts, category)[:count]:
            context = encode(prompt.text, raw=False, system=None)
            sampling = Sampling(temperature=temperature, seed=SEED, max_tokens=TOKENS)
            answer = engine.generate(context, sampling).tokens
            recorder = Recorder(draft, target.model.vocab_size, context, answer, sampling)
            traces.append(recorder.trace(prompt.name, category))
            share = traces[-1].right[WINDOWS[-1]].count("1") / max(1, len(answer))
            print(f"{category} {prompt.name} at {temperature}: {len(answer)} tokens, {share:.2f} right", flush=True)
    lines = ",\n".join(json.dumps(asdict(trace), separators=(",", ":")) for trace in traces)
    options.out.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--draft", default="qwen2.5-coder-0.5b")
    parser.add_argument("--out", type=Path, default=Path("tests/fixtures/traces.json"))
    return parser.parse_args()


class Recorder:
    """Drafts at each position of an answer that is already there."""

    def __init__(
        self, model: Model, vocab_size: int, context: Sequence[int], answer: Sequence[int], sampling: Sampling
    ) -> None:
        self._model, self._vocab_size = model, min(model.vocab_size, vocab_size)
        self._context, self._answer, self._sampling = list(context), list(answer), sampling
        self._draw: Callable[[Law, int], int] = verifier(Rule.COUPLED, Noise(SEED)).drafting(len(context))
        self._shown = replace(sampling, temperature=sampling.temperature or 1.0)

    def trace(self, name: str, category: str) -> Trace:
        right, confidence = {}, {}
        for window in WINDOWS:
            guesses, confidences = zip(*self._followed(window), strict=True)
            confidence[window] = list(confidences)
            right[window] = "".join(
                str(int(guess == token)) for guess, token in zip(guesses, self._answer, strict=True)
            )
        slot = self._model.open()
        beyond = {
            place: list(self._beyond(slot, place, guess))
            for place, guess in enumerate(guesses)
            if guess != self._answer[place]
        }
        self._model.close(slot)
        prompt_tokens, tokens = len(self._context), len(self._answer)
        ngram = list(self._ngram())
        return Trace(
            name, category, self._sampling.temperature, prompt_tokens, tokens, right, confidence, beyond, ngram
        )

    def _followed(self, window: int) -> Iterator[tuple[int, int]]:
        """Guess each token of the answer after the right ones before it, from a window of the prompt."""
        slot = self._model.open()
        tokens = self._context[-window:] + self._answer[:-1]
        first = len(tokens) - len(self._answer)
        self._model.forward([Feed(slot, tokens[:first], rows=0)])
        (logits,) = self._model.forward([Feed(slot, tokens[first:], rows=len(self._answer))])
        for place in range(len(self._answer)):
            yield self._guess(logits, place, len(self._context) + place)
        self._model.close(slot)

    def _beyond(self, slot: Slot, place: int, guess: int) -> Iterator[int]:
        """Draft on after a wrong guess; the slot holds what is shared by all of these drafts."""
        tokens = self._context + self._answer[:place] + [guess]
        for step in range(BEYOND):
            (logits,) = self._model.forward([Feed(slot, tokens[self._model.length(slot) :], rows=1)])
            token, confidence = self._guess(logits, 0, len(self._context) + place + 1 + step)
            tokens.append(token)
            yield confidence
        self._model.truncate(slot, len(self._context) + place)

    def _guess(self, logits: Logits, row: int, position: int) -> tuple[int, int]:
        """Give the guess and the draft model's confidence in percent, that of temperature 1 where it is 0."""
        row_logits = logits[row, : self._vocab_size]
        shown = law(row_logits, self._shown, limit=32)
        token = shown.likeliest() if self._sampling.temperature == 0 else self._draw(shown, position)
        return token, min(99, int(100 * exp(shown.log_probabilities.max())))

    def _ngram(self) -> Iterator[tuple[int, int]]:
        drafter = NgramDrafter()
        reader = drafter.open()
        for place in range(len(self._answer)):
            context = self._context + self._answer[:place]
            outlook = drafter.outlook(reader, context)
            ask = Ask(reader, context, 16, self._sampling, self._draw)
            (draft,) = drafter.propose([ask])
            pairs = zip(draft.tokens, self._answer[place:], strict=False)
            kept = next((depth for depth, (one, other) in enumerate(pairs) if one != other), None)
            wanted = min(len(draft.tokens), len(self._answer) - place)
            yield (outlook.match, wanted if kept is None else kept) if outlook else (0, 0)


if __name__ == "__main__":
    main()
