"""The whole sampler stack against transformers' own logits processors, on logits of a real model.

transformers puts its processors in order by itself, so the order is under test too. What it does not have, penalties
by frequency and presence (OpenAI's), is written out here.
"""

import random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch", reason="`make check` installs torch and transformers")
pytest.importorskip("transformers", reason="`make check` installs torch and transformers")

import torch
import transformers

from soothsay import Sampling, hub
from soothsay.load import Loader
from soothsay.model.base import Feed
from soothsay.sampling import Adjustment, Laws

TEXT = "The cat sat on the mat. The cat sat on the hat. The"
ANSWER = " cat sat on the bat, and the bat sat"
ENDS = (2, 0)


@pytest.fixture(scope="module")
def rows() -> tuple[list[int], int, NDArray[np.float32]]:
    """Give the tokens of prompt and answer, how many are the prompt's, and the model's logits after each."""
    if hub.cached(hub.MODELS["smollm2-135m"]) is None:
        pytest.skip("smollm2-135m is not in the cache folder")
    loaded = Loader().target("smollm2-135m")
    prompt = loaded.tokenizer.encode(TEXT, special=True)
    tokens = prompt + loaded.tokenizer.encode(ANSWER, special=True)
    return tokens, len(prompt), loaded.model.forward([Feed(loaded.model.open(), tokens, len(tokens))])[0]


class Said(transformers.LogitsProcessor):
    """OpenAI's penalties: c[j] times frequency, and presence once where c[j] is above 0, c counting the answer."""

    def __init__(self, prompt_tokens: int, frequency: float, presence: float) -> None:
        self.prompt_tokens, self.frequency, self.presence = prompt_tokens, frequency, presence

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        counts = torch.bincount(input_ids[0, self.prompt_tokens :], minlength=scores.shape[1])
        return scores - counts * self.frequency - (counts > 0) * self.presence


class Shifted(transformers.LogitsProcessor):
    def __call__(self, input_ids: Any, scores: Any) -> Any:
        return scores + torch.arange(scores.shape[1]) % 5 * 0.1 * len(input_ids[0])


def shifted(history: list[int], logits: NDArray[np.float32]) -> NDArray[np.float32]:
    return logits + np.arange(len(logits)) % 5 * np.float32(0.1) * len(history)


def theirs(tokens: list[int], prompt_tokens: int, row: NDArray[np.float32], sampling: Sampling) -> NDArray[np.float64]:
    config = transformers.GenerationConfig(  # type: ignore[no-untyped-call]
        do_sample=True,
        num_beams=1,
        num_return_sequences=1,
        eos_token_id=list(ENDS),
        pad_token_id=0,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p or None,
        repetition_penalty=sampling.repetition_penalty,
        sequence_bias={(token,): float(bias) for token, bias in sampling.logit_bias.items()} or None,
        suppress_tokens=list(sampling.banned_tokens) or None,
        min_new_tokens=sampling.min_tokens or None,
    )
    shape = transformers.LlamaConfig(
        vocab_size=8, hidden_size=4, intermediate_size=4, num_hidden_layers=1, num_attention_heads=1
    )
    twin: Any = transformers.LlamaForCausalLM(shape)
    twin._prepare_special_tokens(config, device="cpu")
    allowed = sampling.allowed_tokens
    more = [Said(prompt_tokens, sampling.frequency_penalty, sampling.presence_penalty)]
    processors = twin._get_logits_processor(
        config,
        input_ids_seq_length=prompt_tokens,
        prefix_allowed_tokens_fn=None if allowed is None else lambda _, __: list(allowed),
        logits_processor=transformers.LogitsProcessorList([*more, *([Shifted()] if sampling.processors else [])]),
        device="cpu",
    )
    scores = processors(torch.tensor([tokens]), torch.from_numpy(row[None].copy()))
    return np.asarray(torch.softmax(scores[0].double(), 0))


CHOICES: dict[str, list[Any]] = {
    "temperature": [0.5, 1.7],
    "top_k": [1, 40],
    "top_p": [0.3, 0.95],
    "min_p": [0.02, 0.3],
    "repetition_penalty": [1.3, 0.7],
    "frequency_penalty": [0.8, -0.5],
    "presence_penalty": [1.2, -0.4],
    "logit_bias": [{260: 4.0, 2: 8.0, 28: -6.0}, {1085: -3.5, 335: 2.0}],
    "banned_tokens": [(260, 28), (2, 30)],
    "allowed_tokens": [tuple(range(0, 3000, 2)), (2, 28, 30, 260, 335, 1085)],
    "min_tokens": [4, 40],
    "processors": [(shifted,)],
}


def alone() -> list[dict[str, Any]]:
    return [{name: choice} for name, choices in CHOICES.items() for choice in choices]


def combined(count: int = 30) -> list[dict[str, Any]]:
    dice = random.Random(30)
    return [
        {name: dice.choice(choices) for name, choices in CHOICES.items() if dice.random() < 0.5} for _ in range(count)
    ]


@pytest.mark.parametrize("options", [*alone(), *combined()], ids=lambda options: "-".join(options) or "none")
def test_laws_are_those_of_transformers(
    rows: tuple[list[int], int, NDArray[np.float32]], options: dict[str, Any]
) -> None:
    """At three places: the first token of the answer, one in its middle, and behind a guess of the rest."""
    tokens, prompt_tokens, logits = rows
    sampling = Sampling(**({"temperature": 1.0} | options))
    for length in (prompt_tokens, prompt_tokens + 5):
        adjust = Adjustment.of(sampling, tokens[:length], prompt_tokens, logits.shape[1], ENDS)
        laws = Laws(logits[length - 1 :], sampling, adjust, tokens[length:])
        for place in (0, len(laws) - 1):
            found = np.zeros(logits.shape[1])
            found[laws[place].ids] = np.exp(laws[place].log_probabilities)
            wanted = theirs(tokens[: length + place], prompt_tokens, logits[length - 1 + place], sampling)
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)
