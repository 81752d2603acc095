"""llama.cpp beside soothsay, in a process of its own: it may live in another environment (pip: llama-cpp-python).

Both sides are here. `LlamaPeer` starts this file with the other interpreter, writes one JSON request a line to it and
reads one JSON answer a line; arrays travel as .npy files.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray


class LlamaPeer:
    """llama.cpp with its default float16 cache, over one model file."""

    def __init__(self, python: str, model: Path, *, context: int, threads: int) -> None:
        command = [python, __file__, str(model), str(context), str(threads)]
        self._folder = TemporaryDirectory()
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.version: str = self._read()["version"]

    def __enter__(self) -> "LlamaPeer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()  # the end of its input ends it
        self._folder.cleanup()

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Logits after each token of a text, float32 [tokens, vocab_size], read in one batch."""
        path = Path(self._folder.name) / "logits.npy"
        self._ask({"verb": "logits", "tokens": list(tokens), "path": str(path)})
        found: NDArray[np.float32] = np.load(path)
        path.unlink()
        return found

    def seconds(self, tokens: Sequence[int], start: int, rows: int) -> float:
        """Seconds of a pass that reads `tokens` after the first `start` of its cache, logits after the last `rows`."""
        request = {"verb": "seconds", "tokens": list(tokens), "start": start, "rows": rows}
        return float(self._ask(request)["seconds"])

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("llama.cpp's process ended; the reason is above")
        answer: dict[str, Any] = json.loads(line)
        return answer


class _Server:
    def __init__(self, model: str, context: int, threads: int) -> None:
        import llama_cpp

        self._api = llama_cpp
        sizes = {"n_ctx": context, "n_batch": context, "n_ubatch": context}
        self._llama = llama_cpp.Llama(model, **sizes, n_threads=threads, n_threads_batch=threads, verbose=False)
        self._batch = llama_cpp.llama_batch_init(context, 0, 1)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["verb"] == "logits":
            self._pass(request["tokens"], 0, len(request["tokens"]))
            np.save(request["path"], self._logits(len(request["tokens"])))
            return {}
        started = time.perf_counter()
        self._pass(request["tokens"], request["start"], request["rows"])
        return {"seconds": time.perf_counter() - started}

    def _pass(self, tokens: Sequence[int], start: int, rows: int) -> None:
        context, batch = self._llama.ctx, self._batch
        self._api.llama_memory_seq_rm(self._api.llama_get_memory(context), -1, start, -1)
        batch.n_tokens = len(tokens)
        for place, token in enumerate(tokens):
            batch.token[place], batch.pos[place] = token, start + place
            batch.logits[place] = place >= len(tokens) - rows
            batch.n_seq_id[place], batch.seq_id[place][0] = 1, 0
        if status := self._api.llama_decode(context, batch):
            raise SystemExit(f"llama_decode gave status {status}")
        self._api.llama_synchronize(context)

    def _logits(self, rows: int) -> NDArray[np.float32]:
        pointer = self._api.llama_get_logits(self._llama.ctx)
        return np.ctypeslib.as_array(pointer, shape=(rows, self._llama.n_vocab()))


def _serve(model: str, context: str, threads: str) -> None:
    server = _Server(model, int(context), int(threads))
    print(json.dumps({"version": server._api.__version__}), flush=True)
    for line in sys.stdin:
        print(json.dumps(server.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
