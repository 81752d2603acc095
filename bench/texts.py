"""The words that the benchmarks read: prompts of all kinds, prose and code that every Python installation has."""

import inspect
import pydoc_data.topics
from argparse import HelpFormatter
from ast import NodeVisitor
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from fractions import Fraction
from itertools import chain, islice, zip_longest
from logging import Formatter
from pathlib import Path
from random import Random
from shlex import shlex
from textwrap import TextWrapper
from zipfile import ZipFile

from soothsay.bench.prompts import read

CHAPTERS = ("execmodel", "naming", "imaginary", "strings", "assignment", "class", "function", "try", "typesobjects")
CLASSES = (
    TextWrapper,
    SequenceMatcher,
    Fraction,
    HelpFormatter,
    shlex,
    OrderedDict,
    Random,
    ZipFile,
    Formatter,
    NodeVisitor,
)


def prose(path: Path | None) -> Iterator[str]:
    """Alternate chapters of Python's language reference with the long prompts of a file, when there is one."""
    chapters = [pydoc_data.topics.topics[name] for name in CHAPTERS if name in pydoc_data.topics.topics]
    long = sorted(read(path), key=lambda prompt: -len(prompt.text)) if path else []
    texts = chain.from_iterable(zip_longest(chapters, (prompt.text for prompt in long)))
    return (text for text in texts if text is not None)


def code() -> Iterator[str]:
    """Classes of Python's standard library."""
    return (inspect.getsource(found) for found in CLASSES)


def windows(
    encode: Callable[[str], Sequence[int]], texts: Iterable[str], tokens: int, count: int
) -> list[Sequence[int]]:
    """Give the first `tokens` tokens of the first `count` texts that are long enough."""
    encoded = (encode(text) for text in texts)
    found = list(islice((ids[:tokens] for ids in encoded if len(ids) >= tokens), count))
    if len(found) < count:
        raise SystemExit(f"only {len(found)} texts have {tokens} tokens; {count} are needed: ask for a longer window")
    return found
