"""What the benchmarks ask: a few prompts of our own, or those of a file."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice, zip_longest
from pathlib import Path
from typing import Any

from soothsay.errors import OptionError, PromptError

BUILT_IN = Path(__file__).with_name("prompts.jsonl")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One line of a file of prompts: the first turn of a conversation."""

    name: str
    category: str
    text: str


def read(path: Path | None = None, categories: Sequence[str] = (), count: int | None = None) -> list[Prompt]:
    """Read prompts, category by category: the first `count` of each of `categories` (none named: of all).

    A file has one JSON object a line: `question_id`, `category` and `turns`, a list of texts of which the first is
    asked (the form of Spec-Bench, arXiv 2401.07851). None reads the built-in ones. Raises OptionError for a file that
    is not there, a category that it does not have, or a count below 1; PromptError for a line of another form.
    """
    if count is not None:
        _check_count(count)
    found = list(_lines(path or BUILT_IN))
    known = list(dict.fromkeys(prompt.category for prompt in found))
    if strange := [name for name in categories if name not in known]:
        raise OptionError(f"no prompt has category {strange[0]!r}; legal are {', '.join(known)}")
    wanted = [prompt for name in known if name in (categories or known) for prompt in _of(found, name)[:count]]
    if not wanted:
        raise PromptError(f"{path} has no prompts; it must have one at least")
    return wanted


def spread(found: Sequence[Prompt], count: int) -> list[Prompt]:
    """Take `count` prompts from all categories in turn, the first of each, then the second of each.

    Raises OptionError for a count below 1.
    """
    _check_count(count)
    by_category: dict[str, list[Prompt]] = {}
    for prompt in found:
        by_category.setdefault(prompt.category, []).append(prompt)
    rounds = chain.from_iterable(zip_longest(*by_category.values()))
    return list(islice((prompt for prompt in rounds if prompt is not None), count))


def batches(prompts: Sequence[Prompt], size: int) -> list[tuple[Prompt, ...]]:
    """Cut prompts into batches of up to `size`, none of which mixes categories; OptionError for a size below 1."""
    if size < 1:
        raise OptionError(f"batch is {size}; it must be at least 1")
    cut: list[tuple[Prompt, ...]] = []
    for _, group in groupby(prompts, key=lambda prompt: prompt.category):
        alike = tuple(group)
        cut += [alike[start : start + size] for start in range(0, len(alike), size)]
    return cut


def _check_count(count: int) -> None:
    if count < 1:
        raise OptionError(f"count is {count}; it must be at least 1")


def _of(prompts: Sequence[Prompt], category: str) -> list[Prompt]:
    return [prompt for prompt in prompts if prompt.category == category]


def _lines(path: Path) -> Iterator[Prompt]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise OptionError(
            f"prompts cannot be read from {str(path)!r}: {reason}; a file of JSON lines is legal"
        ) from None
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _prompt(line, f"line {number} of {path}")


def _prompt(line: str, where: str) -> Prompt:
    try:
        fields: Any = json.loads(line)
        name, category, turns = fields["question_id"], fields["category"], fields["turns"]
    except (ValueError, LookupError, TypeError):
        name = category = turns = None
    if not (isinstance(category, str) and isinstance(turns, list) and turns and isinstance(turns[0], str)):
        raise PromptError(f'{where} is no prompt; {{"question_id": 1, "category": "coding", "turns": ["..."]}} is one')
    return Prompt(str(name), category, turns[0])
