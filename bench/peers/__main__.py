"""Beside the others: the same file, prompts, lengths and temperature, one prompt after another, engine after engine.

Usage: python -m bench.peers --model MODEL --draft DRAFT --prompts FILE.jsonl --output FOLDER [--passes]
           [--llama-python PYTHON] [--transformers-python PYTHON] [--openvino-python PYTHON]

Each engine runs in a process of its own, stopped while it is not its turn; all get the same token ids. A peer that is
not there or fails stands in the table with its reason. After each prompt the folder has all so far: `peers.json`,
`peers.md` and the figure `peers.svg`. The last line printed is one JSON object.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from bench.passes import measure
from bench.peers.contest import Contender, Question, Results, Team, as_json, run
from bench.peers.figure import draw
from bench.peers.machine import machine
from bench.peers.process import Peer
from bench.peers.report import Row, passes_table, rows, table
from soothsay import hub
from soothsay.bench.prompts import Prompt, read
from soothsay.errors import SoothsayError
from soothsay.model.gguf import GGUFFile
from soothsay.text.template import ChatTemplate
from soothsay.text.tokenizer import Tokenizer

OURS = "soothsay"
PLAIN = tuple(Contender(engine, "none") for engine in (OURS, "llama.cpp", "transformers", "OpenVINO GenAI"))
WITHOUT_DRAFT_MODEL = (
    Contender(OURS, "ngram", "auto"),
    Contender("llama.cpp", "ngram", 2),  # what its wrapper advises where there is no GPU
    Contender("llama.cpp", "ngram", 10),  # and its default
    Contender("transformers", "ngram", 10),
    Contender("OpenVINO GenAI", "ngram", 5),
)
WITH_DRAFT_MODEL = (
    Contender(OURS, "model", "auto"),
    *(Contender("llama.cpp", "model", gamma) for gamma in (2, 3, 5)),
    Contender("transformers", "model"),
    Contender("OpenVINO GenAI", "model", 5),
)
SERVERS = {
    OURS: "soothsay_server",
    "llama.cpp": "llama_cpp_server",
    "transformers": "transformers_server",
    "OpenVINO GenAI": "openvino_server",
}
TITLE = "Tokens a second, and how much drafts speed each engine up"
WARM_UP = "Write a function that adds two numbers."
MARGIN_TOKENS = 32
"""Room in the context for drafts beyond the last token."""

PASSES = {"context": 128, "prompt_tokens": 512}


def main() -> int:
    options = _options()
    try:
        return _compare(options)
    except SoothsayError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen2.5-coder-1.5b", help="an alias or the path of a .gguf file")
    parser.add_argument("--draft", help="a draft model; without one only n-grams draft")
    parser.add_argument("--prompts", type=Path, help="a file of prompts; without one, our own")
    parser.add_argument("--categories", default="", help="which of its prompts, separated by commas; all when empty")
    parser.add_argument("--count", type=int, help="how many of each category")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--llama-python", help="an interpreter that has llama-cpp-python")
    parser.add_argument("--transformers-python", help="an interpreter that has transformers and torch")
    parser.add_argument("--openvino-python", help="an interpreter that has openvino-genai")
    parser.add_argument("--passes", action="store_true", help="also time passes of 1 to 64 rows beside llama.cpp's")
    parser.add_argument("--output", type=Path, required=True, help="a folder for the results")
    return parser.parse_args()


def _compare(options: argparse.Namespace) -> int:
    model = Path(hub.resolve(options.model))
    draft = Path(hub.resolve(options.draft)) if options.draft else None
    file = GGUFFile.open(model)
    tokenizer = Tokenizer.from_metadata(file.metadata)
    warm_up, *questions = _questions(file, tokenizer, options)
    contenders = contenders_with(draft is not None)
    publish = partial(_publish, options.output, contenders, options.temperature == 0, _head(model, draft, options))
    law = _law(tokenizer, options)
    options.output.mkdir(parents=True, exist_ok=True)
    context = max(len(question.tokens) for question in [warm_up, *questions]) + options.max_tokens + MARGIN_TOKENS
    with closing(Team(_pythons(options), partial(_open, model, draft, context, options.threads))) as team:
        results = Results()
        for number, results in enumerate(run(team, contenders, warm_up, questions, law), start=1):
            figures = publish(results)
            print(f"prompt {number} of {len(questions)}", flush=True)
    print((options.output / "peers.md").read_text(encoding="utf-8"))
    print(json.dumps(figures))
    return 1 if any(contender.engine == OURS for contender in results.failures) else 0


def contenders_with(draft_model: bool) -> list[Contender]:
    """Give all contenders, each engine's settings together; the plain one leads."""
    every = [*PLAIN, *(WITH_DRAFT_MODEL if draft_model else ()), *WITHOUT_DRAFT_MODEL]
    return sorted(every, key=lambda contender: list(SERVERS).index(contender.engine))


def _questions(file: GGUFFile, tokenizer: Tokenizer, options: argparse.Namespace) -> list[Question]:
    """The warm-up and the prompts, each the user's message of a chat."""
    template = ChatTemplate.from_metadata(file.metadata)
    categories = [name for name in options.categories.split(",") if name]
    prompts = [Prompt("warm-up", "", WARM_UP), *read(options.prompts, categories, options.count)]
    texts = (template.render([{"role": "user", "content": prompt.text}]) for prompt in prompts)
    return [
        Question(prompt.name, prompt.category, tokenizer.encode(text, special=True))
        for prompt, text in zip(prompts, texts, strict=True)
    ]


def _law(tokenizer: Tokenizer, options: argparse.Namespace) -> dict[str, Any]:
    return {
        "end": sorted(tokenizer.end_ids),
        "max_tokens": options.max_tokens,
        "temperature": options.temperature,
        "seed": options.seed,
    }


def _pythons(options: argparse.Namespace) -> dict[str, str | None]:
    return {
        OURS: sys.executable,
        "llama.cpp": options.llama_python,
        "transformers": options.transformers_python,
        "OpenVINO GenAI": options.openvino_python,
    }


def _open(model: Path, draft: Path | None, context: int, threads: int, engine: str, python: str) -> Peer:
    names = {"model": str(model), "draft": str(draft) if draft else None}
    return Peer(python, SERVERS[engine], context=context, threads=threads, **names)


def _head(model: Path, draft: Path | None, options: argparse.Namespace) -> dict[str, Any]:
    """What was measured, on what; passes are timed here, before any peer is there."""
    head: dict[str, Any] = {"model": model.stem, "draft": draft.stem if draft else None, "machine": machine()}
    head |= {name: getattr(options, name) for name in ("temperature", "max_tokens", "seed", "threads")}
    if options.passes:
        python = options.llama_python
        head["passes"] = measure(model, **PASSES, repetitions=7, threads=options.threads, llama_python=python)
    return head


def _publish(
    folder: Path, contenders: Sequence[Contender], greedy: bool, head: dict[str, Any], results: Results
) -> dict[str, Any]:
    """Write the files, and give what the last line says."""
    reference = next(contender for contender in contenders if contender.engine == OURS and contender.drafter != "none")
    found = rows(contenders, results, reference, greedy=greedy)
    task, place = _task(head, found), f"{head['machine']}, {head['threads']} threads"
    versions = ", ".join(f"{engine} {version}" for engine, version in results.versions.items())
    lines = [f"{task}; {place}; {versions}", "", table(found, reference)]
    if "passes" in head:
        lines += ["", passes_table(head["passes"], PASSES["prompt_tokens"])]
    figures = head | {"rows": [asdict(row) for row in found], "versions": results.versions}
    _write(folder / "peers.md", "\n".join(lines) + "\n")
    _write(folder / "peers.json", json.dumps(as_json(results) | figures, indent=1) + "\n")
    _write(folder / "peers.svg", draw(found, TITLE, (task, place), OURS))
    return figures


def _task(head: dict[str, Any], found: Sequence[Row]) -> str:
    models = f"{head['model']} with {head['draft']}" if head["draft"] else head["model"]
    prompts = max(row.prompts for row in found)
    return f"{models}; prompts: {prompts}, tokens: {head['max_tokens']}, temperature: {head['temperature']:g}"


def _write(path: Path, text: str) -> None:
    """All or nothing: an interrupted run leaves the results so far."""
    whole = path.with_suffix(f"{path.suffix}.new")
    whole.write_text(text, encoding="utf-8")
    whole.replace(path)


if __name__ == "__main__":
    sys.exit(main())
