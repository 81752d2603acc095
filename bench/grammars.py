"""Structured answers by the thousand: do all parse and validate, and are they those without drafts?

Usage: python -m bench.grammars [--model MODEL] [--draft DRAFT] [--count 1000]            (needs jsonschema)

Forty schemas, made of everything that people put into one; prompts, temperatures from 0 to 1.5 and seeds in turn. Each
answer is given twice, in batches: with drafts, and with neither drafts nor tokens that the grammar forces. The status
is 1 when an answer is no JSON, does not validate, or is another without drafts.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jsonschema

from soothsay import Completion, Engine, Grammar, Sampling
from soothsay.schedule.wish import Wish

TEMPERATURES = (0.0, 0.5, 1.0, 1.5)
PROMPTS = (
    "Describe a person you know.",
    "Give the data of an order in a shop.",
    "Report the weather of a day.",
    "Write down a recipe in short.",
    "List what is in the room.",
)
MOST_TOKENS = 400
BATCH = 20

WORD: dict[str, Any] = {"type": "string", "maxLength": 12}
SIMPLE: dict[str, dict[str, Any]] = {
    "word": WORD,
    "sentence": {"type": "string", "minLength": 5, "maxLength": 40},
    "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
    "day": {"type": "string", "format": "date"},
    "whole": {"type": "integer", "minimum": -20, "maximum": 4000},
    "share": {"type": "number", "minimum": 0, "maximum": 1},
    "flag": {"type": "boolean"},
    "colour": {"enum": ["red", "green", "blue", "no colour at all"]},
    "fixed": {"const": {"version": 1, "kind": "fixed"}},
    "nothing": {"type": "null"},
}


def closed(properties: dict[str, Any], *optional: str) -> dict[str, Any]:
    """An object with these properties and no others."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def schemas() -> Iterator[dict[str, Any]]:
    """Forty of them."""
    names = list(SIMPLE)
    for name in names:
        yield closed({name: SIMPLE[name]})
    for name, other in zip(names, names[3:] + names[:3], strict=True):
        yield closed({"first": SIMPLE[name], "second": SIMPLE[other], "third": WORD}, "second")
    for name in names:
        yield closed({"items": {"type": "array", "items": SIMPLE[name], "minItems": 1, "maxItems": 3}})
    for name, other in zip(names[:5], names[5:], strict=True):
        yield closed({"value": {"anyOf": [SIMPLE[name], SIMPLE[other]]}, "label": WORD})
    yield closed({"outer": closed({"inner": closed({"deep": WORD})})})
    yield {
        "$defs": {"leaf": closed({"w": WORD})},
        **closed({"a": {"$ref": "#/$defs/leaf"}, "b": {"$ref": "#/$defs/leaf"}}),
    }
    yield {"type": "array", "items": closed({"k": SIMPLE["code"], "v": SIMPLE["whole"]}), "minItems": 1, "maxItems": 2}
    yield {"type": "object", "additionalProperties": SIMPLE["flag"], "maxProperties": 2, "minProperties": 1}
    yield {"oneOf": [closed({"cat": SIMPLE["flag"]}), closed({"dog": SIMPLE["whole"]})]}


def main() -> int:
    options = _options()
    made = list(schemas())
    engine = Engine(options.model, draft=options.draft)
    faults: Counter[str] = Counter()
    answered = drafted = accepted = tokens = steps = 0
    for batch in _batches(options.count, len(made)):
        drafts = _answers(engine, made, batch, Wish())
        plain = _answers(engine, made, batch, Wish(gamma=0))
        for (schema, *_), with_drafts, without in zip(batch, drafts, plain, strict=True):
            faults.update(_faults(made[schema], with_drafts, without))
            answered, drafted, accepted = (
                answered + 1,
                drafted + with_drafts.stats.drafted,
                accepted + with_drafts.stats.accepted,
            )
            tokens, steps = tokens + len(with_drafts.tokens), steps + with_drafts.stats.steps
        print(f"{answered} answers, {dict(faults) or 'no faults'}", file=sys.stderr, flush=True)
    figures = {
        "answers": answered,
        "schemas": len(made),
        "faults": dict(faults),
        "drafted": drafted,
        "accepted": accepted,
    }
    print(json.dumps(figures | {"tokens_per_step": tokens / steps}))
    return 1 if faults else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="an alias or the path of a .gguf file")
    parser.add_argument("--draft", default="auto", help="who guesses")
    parser.add_argument("--count", type=int, default=1000, help="how many answers")
    return parser.parse_args()


def _batches(count: int, schemas: int) -> Iterator[list[tuple[int, str, Sampling]]]:
    asked = [
        (number % schemas, PROMPTS[number % len(PROMPTS)], Sampling(TEMPERATURES[number // schemas % 4], seed=number))
        for number in range(count)
    ]
    for start in range(0, count, BATCH):
        yield asked[start : start + BATCH]


def _answers(
    engine: Engine, made: list[dict[str, Any]], batch: list[tuple[int, str, Sampling]], wish: Wish
) -> list[Completion]:
    requests = []
    for schema, prompt, sampling in batch:
        asked = Sampling(
            sampling.temperature, seed=sampling.seed, max_tokens=MOST_TOKENS, grammar=Grammar.json_schema(made[schema])
        )
        requests.append(engine.submit(engine.encode(f"{prompt} Answer in JSON."), asked, wish=wish))
    while not all(request.ended for request in requests):
        engine.step()
    return [request.completion for request in requests if request.completion is not None]


def _faults(schema: dict[str, Any], answer: Completion, plain: Completion) -> Iterator[str]:
    if answer.tokens != plain.tokens:
        yield "another answer without drafts"
    if answer.finish_reason != "end":
        yield f"ended by {answer.finish_reason}"
        return
    try:
        jsonschema.validate(json.loads(answer.text), schema, format_checker=jsonschema.FormatChecker())
    except ValueError:
        yield "no JSON"
    except jsonschema.ValidationError:
        yield "does not validate"


if __name__ == "__main__":
    sys.exit(main())
