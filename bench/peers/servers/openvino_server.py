"""OpenVINO GenAI, which reads the file itself and chooses its own precision for what it computes."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import openvino
import openvino_genai
from answers import Ask, Emitted

NGRAM = 3
"""The longest match, as in its own sample of prompt lookup."""


class Server:
    def __init__(self, model: str, context: int, threads: int, draft: str | None = None) -> None:
        """`context` is as long as it grows."""
        self.version = openvino_genai.__version__
        self._model, self._draft_model = model, draft
        self._options = {"INFERENCE_NUM_THREADS": threads}

    @cached_property
    def _plain(self) -> openvino_genai.LLMPipeline:
        return openvino_genai.LLMPipeline(self._model, "CPU", **self._options)

    @cached_property
    def _lookup(self) -> openvino_genai.LLMPipeline:
        return openvino_genai.LLMPipeline(self._model, "CPU", prompt_lookup=True, **self._options)

    @cached_property
    def _assisted(self) -> openvino_genai.LLMPipeline:
        draft = openvino_genai.draft_model(self._draft_model, "CPU", **self._options)
        return openvino_genai.LLMPipeline(self._model, "CPU", draft_model=draft, **self._options)

    def generate(self, ask: Ask) -> dict[str, Any]:
        pipeline = {"none": "_plain", "ngram": "_lookup", "model": "_assisted"}[ask.drafter]
        streamer = _Streamer(Emitted(ask))
        prompt = openvino.Tensor(np.array([ask.tokens], np.int64))
        getattr(self, pipeline).generate(prompt, _configuration(ask), streamer)
        return streamer.emitted.answer()


def _configuration(ask: Ask) -> openvino_genai.GenerationConfig:
    found = openvino_genai.GenerationConfig()
    found.max_new_tokens, found.stop_token_ids, found.eos_token_id = ask.max_tokens, set(ask.end), ask.end[0]
    found.do_sample = ask.temperature > 0
    if found.do_sample:
        found.temperature, found.rng_seed = ask.temperature, ask.seed
    if ask.drafter != "none":
        found.num_assistant_tokens = ask.gamma
    if ask.drafter == "ngram":
        found.max_ngram_size = NGRAM
    return found


class _Streamer(openvino_genai.StreamerBase):
    def __init__(self, emitted: Emitted) -> None:
        super().__init__()
        self.emitted = emitted

    def write(self, token: int | Sequence[int]) -> openvino_genai.StreamingStatus:
        ended = self.emitted.add([token] if isinstance(token, int) else token)
        return openvino_genai.StreamingStatus.STOP if ended else openvino_genai.StreamingStatus.RUNNING

    def end(self) -> None:
        pass
