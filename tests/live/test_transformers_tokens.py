"""The recorded answers are still what transformers says, and ours are the same (needs the models in the cache)."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from soothsay import hub
from soothsay.model.gguf import GGUFFile
from soothsay.text.template import ChatTemplate
from soothsay.text.tokenizer import Tokenizer

pytest.importorskip("transformers")

ROOT = Path(__file__).parent.parent.parent
FIXTURES = ROOT / "tests" / "fixtures" / "text"
LONG = [
    {"role": "system", "content": "You are terse.\n"},
    *(
        {"role": role, "content": f" {role} {turn} <|im_end|> é\t"}
        for turn in range(9)
        for role in ("user", "assistant")
    ),
]


@pytest.mark.parametrize(
    ("alias", "recorded"),
    [("smollm2-135m", "smollm2"), ("qwen2.5-coder-0.5b", "qwen2.5-coder"), ("qwen2.5-coder-1.5b", "qwen2.5-coder")],
)
def test_ids_and_chats_agree_with_transformers(alias: str, recorded: str) -> None:
    path = hub.cached(hub.MODELS[alias])
    if path is None:
        pytest.skip(f"{alias} is not in the cache folder {hub.cache_folder()}")
    script: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "record_token_fixtures.py"))
    metadata = GGUFFile.open(path).metadata
    theirs, ours = script["oracle"](metadata), Tokenizer.from_metadata(metadata)

    assert script["answers"](theirs) == json.loads((FIXTURES / f"{recorded}.json").read_text())
    for text in script["strings"]():
        assert ours.encode(text, special=True) == theirs.encode(text, add_special_tokens=False), text
        assert ours.decode(ours.encode(text, special=False)) == theirs.decode(
            theirs.encode(text, add_special_tokens=False, split_special_tokens=True), clean_up_tokenization_spaces=False
        )
    rendered = ChatTemplate.from_metadata(metadata).render(LONG)
    assert rendered == script["rendered"](theirs, LONG, True)
    assert ours.encode(rendered, special=True) == theirs.encode(rendered, add_special_tokens=False)
