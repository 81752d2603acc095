"""A vocabulary small enough to read: the 256 bytes, a few merges, and one token of each special kind."""

from typing import Any

import pytest
from tokenizers.pre_tokenizers import ByteLevel

MERGES = [
    "S h",
    "h e",
    "l l",
    "he ll",
    "hell o",
    "Ġ w",
    "o r",
    "Ġw or",
    "Ġ Ġ",
    "ĠĠ ĠĠ",
    "1 2",
    "Ċ Ċ",
    "' s",
    "Ã ©",
    "ð Ł",
]
SPECIAL = [("<|im_end|>", 3), ("<|endoftext|>", 3), ("<tool>", 4), ("[PAD0]", 5), ("[PAD1]", 5)]


@pytest.fixture
def metadata() -> dict[str, Any]:
    plain = [*sorted(ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in MERGES)]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": plain + [token for token, _ in SPECIAL],
        "tokenizer.ggml.token_type": [1] * len(plain) + [kind for _, kind in SPECIAL],
        "tokenizer.ggml.merges": list(MERGES),
        "tokenizer.ggml.eos_token_id": len(plain),
        "tokenizer.ggml.bos_token_id": len(plain) + 1,
    }
