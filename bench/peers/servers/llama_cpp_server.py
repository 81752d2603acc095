"""llama.cpp, through llama-cpp-python, with its default float16 cache."""

import time
from collections.abc import Sequence
from functools import cached_property, partial
from itertools import islice
from typing import Any

import llama_cpp
import numpy as np
from answers import Ask, Emitted
from llama_cpp.llama_speculative import LlamaDraftModel, LlamaPromptLookupDecoding
from numpy.typing import NDArray

LAW_AS_IT_IS = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "repeat_penalty": 1.0}


class DraftModel(LlamaDraftModel):
    """A second model that drafts `gamma` tokens greedily; its cache keeps what is still so since the last call."""

    def __init__(self, llama: llama_cpp.Llama, gamma: int) -> None:
        self._llama, self._gamma = llama, gamma

    def __call__(self, input_ids: NDArray[np.intc], /, **_: Any) -> NDArray[np.intc]:
        guessed = self._llama.generate(input_ids.tolist(), temp=0.0, **LAW_AS_IT_IS)
        return np.fromiter(islice(guessed, self._gamma), dtype=np.intc)


class Server:
    def __init__(self, model: str, context: int, threads: int, draft: str | None = None) -> None:
        self.version = llama_cpp.__version__
        sizes = {"n_ctx": context, "n_threads": threads, "n_threads_batch": threads}
        self._load = partial(llama_cpp.Llama, **sizes, verbose=False)
        self._model, self._draft_model, self._context = model, draft, context

    @cached_property
    def _plain(self) -> llama_cpp.Llama:
        return self._load(self._model)

    @cached_property
    def _speculating(self) -> llama_cpp.Llama:
        return self._load(self._model, logits_all=True)

    @cached_property
    def _guessing(self) -> llama_cpp.Llama:
        return self._load(self._draft_model)

    @cached_property
    def _whole(self) -> "Passes":
        """One batch as large as the context."""
        return Passes(self._load(self._model, n_batch=self._context, n_ubatch=self._context), self._context)

    def generate(self, ask: Ask) -> dict[str, Any]:
        llama = self._with(ask)
        llama.reset()
        llama.set_seed(ask.seed)
        emitted = Emitted(ask)
        for token in llama.generate(ask.tokens, temp=ask.temperature, **LAW_AS_IT_IS):
            if emitted.add([token]):
                break
        return emitted.answer()

    def _with(self, ask: Ask) -> llama_cpp.Llama:
        if ask.drafter == "none":
            return self._plain
        if ask.drafter == "model":
            self._guessing.reset()
            self._speculating.draft_model = DraftModel(self._guessing, ask.gamma)
        else:
            self._speculating.draft_model = LlamaPromptLookupDecoding(num_pred_tokens=ask.gamma)
        return self._speculating

    def logits(self, tokens: Sequence[int], path: str) -> dict[str, Any]:
        """Logits after each token of a text, float32 [tokens, vocab_size], as a .npy file."""
        self._whole.run(tokens, 0, len(tokens))
        np.save(path, self._whole.logits(len(tokens)))
        return {}

    def seconds(self, tokens: Sequence[int], start: int, rows: int) -> dict[str, float]:
        """Of a pass that reads `tokens` after the first `start` of the cache, logits after the last `rows`."""
        passes = self._whole
        begun = time.perf_counter()
        passes.run(tokens, start, rows)
        return {"seconds": time.perf_counter() - begun}


class Passes:
    """Single passes over one sequence, by llama.cpp's own functions."""

    def __init__(self, llama: llama_cpp.Llama, context: int) -> None:
        self._llama = llama
        self._batch = llama_cpp.llama_batch_init(context, 0, 1)

    def run(self, tokens: Sequence[int], start: int, rows: int) -> None:
        context, batch = self._llama.ctx, self._batch
        llama_cpp.llama_memory_seq_rm(llama_cpp.llama_get_memory(context), -1, start, -1)
        batch.n_tokens = len(tokens)
        for place, token in enumerate(tokens):
            batch.token[place], batch.pos[place] = token, start + place
            batch.logits[place] = place >= len(tokens) - rows
            batch.n_seq_id[place], batch.seq_id[place][0] = 1, 0
        if status := llama_cpp.llama_decode(context, batch):
            raise RuntimeError(f"llama_decode gave status {status}")
        llama_cpp.llama_synchronize(context)

    def logits(self, rows: int) -> NDArray[np.float32]:
        pointer = llama_cpp.llama_get_logits(self._llama.ctx)
        return np.ctypeslib.as_array(pointer, shape=(rows, self._llama.n_vocab()))
