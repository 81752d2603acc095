"""`--trace FILE`, for every verb that has it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from soothsay import Tracer


@contextmanager
def tracing(path: Path | None, options: Mapping[str, object]) -> Iterator["Tracer | None"]:
    """Give what writes the trace, or None where none was asked for; errors as of `Tracer`."""
    if path is None:
        yield None
        return
    from soothsay import Tracer

    with Tracer(path, {name: str(value) for name, value in options.items()}) as tracer:
        yield tracer
