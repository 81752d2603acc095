"""The far end of a peer: answers JSON requests, one a line, in the interpreter that has the peer's packages.

Usage: PYTHON serve.py SERVER

SERVER names the module beside this file whose class `Server` does the work. The first request is {"verb": "open"} with
what its constructor takes, and is answered by the peer's version; each later verb is one of its methods, "generate"
with the fields of an `Ask`. What fails is answered by {"error": one line}. This file needs nothing but Python, so that
it runs wherever the peer does.
"""

import importlib
import json
import os
import sys
from typing import Any, TextIO

from answers import Ask


def main(name: str) -> None:
    """Answer until the input ends."""
    channel, desk = _claimed_output(), _Desk(name)
    for line in sys.stdin:
        try:
            answer = desk.answer(**json.loads(line))
        except Exception as error:
            answer = {"error": _one_line(error)}
        print(json.dumps(answer), file=channel, flush=True)


class _Desk:
    def __init__(self, name: str) -> None:
        self._name = name
        self._server: Any = None

    def answer(self, verb: str, **request: Any) -> dict[str, Any]:
        if verb == "open":
            self._server = importlib.import_module(self._name).Server(**request)
            return {"version": self._server.version}
        if verb == "generate":
            return self._server.generate(Ask(**request))
        return getattr(self._server, verb)(**request)


def _claimed_output() -> TextIO:
    """Keep the way out for answers alone: what a library prints goes to the error output."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return channel


def _one_line(error: Exception) -> str:
    """What went wrong; libraries that give a trace first say it last."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__


if __name__ == "__main__":
    main(sys.argv[1])
