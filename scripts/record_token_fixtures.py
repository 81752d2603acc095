#!/usr/bin/env python3
"""Record what transformers answers, so that the tests need neither torch nor transformers.

Writes tests/fixtures/text/: `strings.json` (500 varied strings), `<tokenizer>.json` (their ids, and rendered chats).
Usage: python scripts/record_token_fixtures.py, with the three models in the cache folder and transformers installed.

The oracle is a transformers tokenizer around the vocabulary and merges of the model file, and the published pipeline:
- Qwen2.5: transformers' own Qwen2Tokenizer, which brings its normaliser (NFC) and its split with it.
- SmolLM2: transformers' generic fast tokenizer with the pipeline of the published tokenizer.json (no normaliser, single
  digits, GPT-2's byte-level split). transformers 5 opens that file with GPT2Tokenizer, which drops the digit step that
  the model was trained with; 4 does not, nor does llama.cpp, so the generic class is the one to agree with.
"""

# ruff: noqa: RUF001

import json
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from soothsay import hub
from soothsay.model.gguf import GGUFFile

FOLDER = Path(__file__).parent.parent / "tests" / "fixtures" / "text"
TOKENIZERS = {"smollm2": "smollm2-135m", "qwen2.5-coder": "qwen2.5-coder-0.5b"}  # fixture, alias to record from
CONTROL, USER_DEFINED, UNUSED = 3, 4, 5
COUNT = 500

PIECES = {
    "prose": [
        "The quick brown fox",
        "It's a dog's life",
        "we'LL see",
        "THEY'VE gone",
        "don’t",
        "Hello, world!",
        "naïve",
    ],
    "code": [
        "def f(x: int) -> int:\n    return x**2  # square\n",
        "for (int i = 0; i < n; ++i) {\n\t\tsum += a[i];\n}\n",
        "SELECT * FROM t WHERE a >= 10 AND b LIKE '%x%';",
        '<div class="a">&nbsp;</div>',
        'fn main() { println!("{:?}", vec![1u8; 16]); }',
        "if a==b&&c!=d||!e: pass",
        "\\frac{a}{b} \\sum_{i=0}^{n}",
        "import numpy as np\r\nprint(np.arange(10))\r\n",
        "https://example.org/a?b=c&d=%20e#f",
        "snake_case camelCase __dunder__ $var @decor",
    ],
    "scripts": [
        "我喜欢机器学习。",
        "東京都に行きます",
        "カタカナと漢字ー",
        "한국어 텍스트입니다",
        "Привет, мир!",
        "Καλημέρα κόσμε",
        "مرحبا بالعالم",
        "שלום עולם",
        "नमस्ते दुनिया",
        "สวัสดีชาวโลก",
        "ቋንቋ",
        "ﬁne ﬂuﬀ",
        "Ångström Straße ĲSSEL ǅ",
    ],
    "emoji": [
        "😀😃",
        "👍🏽",
        "👩‍👩‍👧‍👦",
        "🇫🇷🇯🇵",
        "❤️‍🔥",
        "1️⃣",
        "🏴󠁧󠁢󠁥󠁮󠁧󠁿",
        "☃ ☂ ♻",
    ],
    "space": [
        " ",
        "  ",
        "   ",
        "\t",
        "\t\t",
        "\n",
        "\n\n\n",
        "\r\n",
        "\r",
        " \n ",
        "\u00a0",
        "\u3000",
        "\u2028",
        "\v\f",
        "        ",
    ],
    "digits": [
        "0",
        "42",
        "1234567890123456789",
        "3.14159",
        "1,000,000",
        "0xFF",
        "٣٤٥",
        "１２",
        "²³",
        "Ⅷ",
        "½",
        "1e-9",
        "2026-01-31",
    ],
    "marks": [
        "e\u0301",
        "n\u0303o",
        "a\u030a\u0323",
        "\u1100\u1161\u11a8",
        "\u0301",
        "क\u093c",
        "ｶﾞ",
        "Å",
        "\u200d",
        "\u200b",
        "\ufeff",
        "\ufffd",
    ],
    "control": [
        "\x00",
        "\x01\x02",
        "\x1b[31m",
        "\x7f",
        "\x04\x06",
        "\x13\x14",
    ],
    "tokens": [
        "<|im_start|>",
        "<|im_end|>",
        "<|endoftext|>",
        "<tool_call>",
        "</tool_call>",
        "<|fim_prefix|>",
        "<repo_name>",
        "<file_sep>",
        "<|im_start|>user\nhi<|im_end|>\n",
        "<|im_end",
        "|>",
        "[PAD151665]",
        "< |im_end|>",
        "<s>",
        "<think>",
    ],
    "punctuation": [
        "...",
        "?!",
        "—",
        "«»",
        "'s",
        "'S",
        "'re",
        "''",
        '""',
        "()[]{}",
        "!!!!!!!!",
        "====",
        "$5",
        "#",
        "~",
        "`",
    ],
}

CHATS: list[list[dict[str, str]]] = [
    [{"role": "user", "content": "Hello!"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "  Why?\n"}],
    [
        {"role": "system", "content": "You speak French."},
        {"role": "user", "content": "Bonjour {{ name }} <|im_end|>"},
        {"role": "assistant", "content": "Salut."},
        {"role": "user", "content": '日本語で "quotes" & <tags>'},
    ],
]


def strings() -> list[str]:
    """500 different strings: every piece alone, then random mixtures, always the same ones."""
    chance = random.Random(0)
    pieces = [piece for group in PIECES.values() for piece in group]
    found = dict.fromkeys(["", *pieces])
    while len(found) < COUNT:
        mixed = [chance.choice(chance.choice(list(PIECES.values()))) for _ in range(chance.randint(2, 6))]
        found[chance.choice(["", "", " "]).join(mixed)] = None
    return list(found)


def metadata(alias: str) -> Mapping[str, Any]:
    """The metadata of a model in the cache folder."""
    path = hub.cached(hub.MODELS[alias])
    if path is None:
        sys.exit(f"{alias} is not in {hub.cache_folder()}; bench/fetch_models.py brings it")
    return GGUFFile.open(path).metadata


def oracle(data: Mapping[str, Any]) -> Any:
    """The transformers tokenizer for a file's vocabulary, merges and chat template."""
    tokens, merges = data["tokenizer.ggml.tokens"], data["tokenizer.ggml.merges"]
    kinds = [int(kind) for kind in data["tokenizer.ggml.token_type"]]
    vocab = {token: place for place, token in enumerate(tokens) if kinds[place] != UNUSED}
    build = {"smollm": _generic, "qwen2": _qwen2}[data["tokenizer.ggml.pre"]]
    tokenizer = build(vocab, [tuple(merge.split(" ")) for merge in merges], tokens[data["tokenizer.ggml.eos_token_id"]])
    tokenizer.add_tokens(_added(tokens, kinds, CONTROL), special_tokens=True)
    tokenizer.add_tokens(_added(tokens, kinds, USER_DEFINED))
    tokenizer.chat_template = data["tokenizer.chat_template"]
    return tokenizer


def _added(tokens: list[str], kinds: list[int], wanted: int) -> list[Any]:
    from tokenizers import AddedToken

    special = wanted == CONTROL
    return [AddedToken(t, normalized=False, special=special) for t, k in zip(tokens, kinds, strict=True) if k == wanted]


def _qwen2(vocab: dict[str, int], merges: Any, eos: str) -> Any:
    from transformers import Qwen2Tokenizer

    return Qwen2Tokenizer(vocab=vocab, merges=merges, eos_token=eos)


def _generic(vocab: dict[str, int], merges: Any, eos: str) -> Any:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    build: Any = PreTrainedTokenizerFast
    split = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    published: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, split]},
        "post_processor": None,
        "decoder": split,
        "model": {"type": "BPE", "unk_token": None, "vocab": vocab, "merges": merges},
    }
    return build(tokenizer_object=Tokenizer.from_str(json.dumps(published)), eos_token=eos)


def answers(tokenizer: Any) -> dict[str, Any]:
    """What transformers says of every string, read with control tokens and as plain text, and of every chat."""
    return {
        "special": [tokenizer.encode(text, add_special_tokens=False) for text in strings()],
        "plain": [tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True) for text in strings()],
        "chats": [
            {"messages": chat, "add_generation_prompt": ask, "text": rendered(tokenizer, chat, ask)}
            for chat in CHATS
            for ask in (False, True)
        ],
    }


def rendered(tokenizer: Any, chat: list[dict[str, str]], ask: bool) -> str:
    """The text of a chat by the file's own template."""
    return str(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=ask))


def write(name: str, value: object) -> None:
    """Write one fixture, compact."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(value, separators=(",", ":")) + "\n")


def main() -> None:
    """Record everything."""
    write("strings", strings())
    for name, alias in TOKENIZERS.items():
        write(name, answers(oracle(metadata(alias))))


if __name__ == "__main__":
    main()
