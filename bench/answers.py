"""Do drafts change greedy answers? llama.cpp's with and without its draft model, and ours, on the same prompts.

Usage: python -m bench.answers --llama-python PYTHON [--model MODEL] [--draft DRAFT] [--prompts FILE.jsonl] [--count 20]

Each engine is compared with itself alone: what it says plainly is the reference, and an answer differs from the first
token that is another. The margin is by how much the logit of the plain token is above that of the other one there, by
llama.cpp's own logits, read in one batch: where it is small, rounding decided. The last line printed is one JSON
object; the status is 1 when one of our answers differs.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median

from bench.llama_peer import LlamaPeer
from bench.peers.contest import Answer, Contender, Question, Results, Team, run
from bench.peers.process import Peer
from soothsay import hub
from soothsay.bench.prompts import Prompt, read, spread
from soothsay.model.gguf import GGUFFile
from soothsay.text.template import ChatTemplate
from soothsay.text.tokenizer import Tokenizer

OURS, THEIRS = "soothsay", "llama.cpp"
GAMMAS = (2, 3, 5)
CONTENDERS = (
    Contender(OURS, "none"),
    Contender(OURS, "model", "auto"),
    Contender(OURS, "ngram", "auto"),
    Contender(THEIRS, "none"),
    *(Contender(THEIRS, "model", gamma) for gamma in GAMMAS),
)
SERVERS = {OURS: "soothsay_server", THEIRS: "llama_cpp_server"}
WARM_UP = Prompt("warm-up", "", "Write a function that adds two numbers.")
MARGIN_TOKENS = 32
"""Room in the context for drafts beyond the last token."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where an answer leaves the plain one of its engine."""

    engine: str
    setting: str
    prompt: str
    place: int
    token: int | None
    plain: int | None
    margin: float | None


def main() -> int:
    options = _options()
    model, draft = Path(hub.resolve(options.model)), Path(hub.resolve(options.draft))
    file = GGUFFile.open(model)
    tokenizer = Tokenizer.from_metadata(file.metadata)
    questions = _questions(file, tokenizer, [WARM_UP, *spread(read(options.prompts), options.count)])
    context = max(len(question.tokens) for question in questions) + options.max_tokens + MARGIN_TOKENS
    names = {"model": str(model), "draft": str(draft), "context": context, "threads": options.threads}
    pythons = {OURS: sys.executable, THEIRS: options.llama_python}
    law = {"end": sorted(tokenizer.end_ids), "max_tokens": options.max_tokens, "temperature": 0.0, "seed": 0}
    with closing(Team(pythons, partial(_open, names))) as team:
        *_, results = _told(run(team, CONTENDERS, questions[0], questions[1:], law), len(questions) - 1)
    with LlamaPeer(options.llama_python, model, context=context, threads=options.threads) as judge:
        differences = list(_differences(results, questions[1:], judge))
    _print(results, differences)
    return 1 if any(difference.engine == OURS for difference in differences) or results.failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-python", required=True, help="an interpreter that has llama-cpp-python")
    parser.add_argument("--model", default="qwen2.5-coder-1.5b", help="an alias or the path of a .gguf file")
    parser.add_argument("--draft", default="qwen2.5-coder-0.5b", help="a draft model")
    parser.add_argument("--prompts", type=Path, help="a file of prompts; without one, our own")
    parser.add_argument("--count", type=int, default=20, help="how many prompts, from all categories in turn")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def _questions(file: GGUFFile, tokenizer: Tokenizer, prompts: Sequence[Prompt]) -> list[Question]:
    """The prompts, each the user's message of a chat."""
    template = ChatTemplate.from_metadata(file.metadata)
    texts = [template.render([{"role": "user", "content": prompt.text}]) for prompt in prompts]
    return [
        Question(prompt.name, prompt.category, tokenizer.encode(text, special=True))
        for prompt, text in zip(prompts, texts, strict=True)
    ]


def _told(progress: Iterator[Results], prompts: int) -> Iterator[Results]:
    for number, results in enumerate(progress, start=1):
        print(f"prompt {number} of {prompts}", file=sys.stderr, flush=True)
        yield results


def _open(names: dict[str, object], engine: str, python: str) -> Peer:
    return Peer(python, SERVERS[engine], **names)


def _differences(results: Results, questions: Sequence[Question], judge: LlamaPeer) -> Iterator[Difference]:
    for question in questions:
        mine = [answer for answer in results.answers if answer.prompt == question.name]
        plain = {answer.contender.engine: answer for answer in mine if answer.contender.drafter == "none"}
        for answer in mine:
            reference = plain.get(answer.contender.engine)
            if reference is not None and answer.tokens != reference.tokens:
                yield _difference(question, answer, reference.tokens, judge)


def _difference(question: Question, answer: Answer, plain: Sequence[int], judge: LlamaPeer) -> Difference:
    pairs = zip(answer.tokens, plain, strict=False)
    place = next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(answer.tokens), len(plain)))
    token, other = (tokens[place] if place < len(tokens) else None for tokens in (answer.tokens, plain))
    margin = None
    if token is not None and other is not None:
        row = judge.logits([*question.tokens, *plain[:place]])[-1]
        margin = float(row[other] - row[token])
    return Difference(answer.contender.engine, answer.contender.setting, question.name, place, token, other, margin)


def _print(results: Results, differences: Sequence[Difference]) -> None:
    print(f"{'':36} {'answers':>8} {'differ':>8}   margins at the first difference")
    for contender in CONTENDERS:
        if contender.drafter == "none":
            continue
        answers = sum(answer.contender == contender for answer in results.answers)
        mine = [one for one in differences if (one.engine, one.setting) == (contender.engine, contender.setting)]
        margins = sorted(one.margin for one in mine if one.margin is not None)
        shown = f"{margins[0]:.3f} to {margins[-1]:.3f}, median {median(margins):.3f}" if margins else "-"
        print(f"{contender.engine + ', ' + contender.setting:36} {answers:8} {len(mine):8}   {shown}")
    for contender, reason in results.failures.items():
        print(f"{contender.engine}, {contender.setting}: {reason}")
    found = {"versions": results.versions, "differences": [asdict(difference) for difference in differences]}
    print(json.dumps(found))


if __name__ == "__main__":
    sys.exit(main())
