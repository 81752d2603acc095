"""Options that arrive as text and are more than that."""

import math
from collections.abc import Iterable
from typing import Literal

from soothsay.errors import OptionError


def gamma_of(text: str) -> int | Literal["auto"]:
    """Read `--gamma`; OptionError for anything but auto or a whole number."""
    if text == "auto":
        return "auto"
    if not _is_whole(text):
        raise OptionError(f"gamma is {text!r}; it must be auto, or an integer, 0 (no drafts) or more")
    return int(text)


def integers(text: str, option: str) -> list[int]:
    """Read whole numbers between commas; OptionError, naming the option, for anything else."""
    parts = [part.strip() for part in text.split(",")]
    if wrong := [part for part in parts if not _is_whole(part)]:
        raise OptionError(f"{option} has {wrong[0]!r}; it must be whole numbers with commas between them, as 1,2,4")
    return [int(part) for part in parts]


def numbers(texts: Iterable[str], option: str) -> list[float]:
    """Read numbers between commas, 0 or more, of one text or several; OptionError, naming the option, for else."""
    try:
        found = [float(part) for text in texts for part in text.split(",")]
        if all(0 <= number < math.inf for number in found):
            return found
    except ValueError:
        pass
    given = ",".join(texts)
    raise OptionError(f"{option} is {given!r}; it must be numbers from 0 up with commas between them, as 0,0.7,1")


def words(text: str | None, option: str) -> list[str]:
    """Read words between commas, none of them empty; no text has none."""
    parts = [part.strip() for part in text.split(",")] if text is not None else []
    if "" in parts:
        raise OptionError(f"{option} is {text!r}; it must be words with commas between them, as coding,writing")
    return parts


def biases(texts: Iterable[str]) -> dict[int, float]:
    """Read `--logit-bias`, each a token id and what is added to its logit, as 42=-1.5; OptionError for else."""
    found: dict[int, float] = {}
    for text in texts:
        token, _, bias = text.partition("=")
        try:
            found[int(token)] = float(bias)
        except ValueError:
            raise OptionError(f"logit-bias is {text!r}; it must be a token id and a number, as 42=-1.5") from None
    return found


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit()
