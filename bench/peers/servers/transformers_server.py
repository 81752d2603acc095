"""transformers in bfloat16: the file's weights are dequantised once, when it is opened."""

from pathlib import Path
from typing import Any

import torch
import transformers
from answers import Ask, Emitted
from transformers.generation.streamers import BaseStreamer


class Server:
    def __init__(self, model: str, context: int, threads: int, draft: str | None = None) -> None:
        """`context` is as long as it grows."""
        self.version = f"{transformers.__version__}, torch {torch.__version__}"
        torch.set_num_threads(threads)
        self._model = _load(model)
        self._assistant = _load(draft) if draft else None

    def generate(self, ask: Ask) -> dict[str, Any]:
        torch.manual_seed(ask.seed)
        prompt = torch.tensor([ask.tokens])
        law = {"do_sample": True, "temperature": ask.temperature, "top_k": 0, "top_p": 1.0} if ask.temperature else {}
        streamer = _Streamer(Emitted(ask))
        self._model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=ask.max_tokens,
            eos_token_id=ask.end,
            pad_token_id=ask.end[0],
            streamer=streamer,
            **({"do_sample": False} | law | self._with(ask)),
        )
        return streamer.emitted.answer()

    def _with(self, ask: Ask) -> dict[str, Any]:
        """The assistant's own heuristics choose how far it guesses."""
        if ask.drafter == "model":
            return {"assistant_model": self._assistant}
        return {"prompt_lookup_num_tokens": ask.gamma} if ask.drafter == "ngram" else {}


class _Streamer(BaseStreamer):
    """Hears the prompt first, then what each step emits."""

    def __init__(self, emitted: Emitted) -> None:
        self.emitted, self._prompt_heard = emitted, False

    def put(self, value: torch.Tensor) -> None:
        if self._prompt_heard:
            self.emitted.add(value.flatten().tolist())
        self._prompt_heard = True

    def end(self) -> None:
        pass


def _load(path: str) -> transformers.PreTrainedModel:
    file = Path(path)
    return transformers.AutoModelForCausalLM.from_pretrained(
        file.parent,
        gguf_file=file.name,
        dtype=torch.bfloat16,
        quantization_config=transformers.GgufConfig(dequantize=True),
    )
