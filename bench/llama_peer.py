"""llama.cpp's single passes beside soothsay's (pip: llama-cpp-python)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.peers.process import Peer, PeerFailed


class LlamaPeer(Peer):
    """llama.cpp with its default float16 cache, over one model file; what fails ends the program with its reason."""

    def __init__(self, python: str, model: Path, *, context: int, threads: int) -> None:
        super().__init__(python, "llama_cpp_server", model=str(model), context=context, threads=threads)

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Logits after each token of a text, float32 [tokens, vocab_size], read in one batch."""
        with TemporaryDirectory() as folder:
            path = Path(folder) / "logits.npy"
            self.ask("logits", tokens=list(tokens), path=str(path))
            found: NDArray[np.float32] = np.load(path)
        return found

    def seconds(self, tokens: Sequence[int], start: int, rows: int) -> float:
        """Seconds of a pass that reads `tokens` after the first `start` of its cache, logits after the last `rows`."""
        return float(self.ask("seconds", tokens=list(tokens), start=start, rows=rows)["seconds"])

    def ask(self, verb: str, **fields: Any) -> Mapping[str, Any]:
        try:
            return super().ask(verb, **fields)
        except PeerFailed as error:
            raise SystemExit(f"llama.cpp: {error}") from None
