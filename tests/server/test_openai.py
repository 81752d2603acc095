"""The official `openai` client against a real server with the small model: answers are the engine's own."""

import json
import random
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

import openai
import pytest

from soothsay import Completion, Engine, Grammar, Sampling
from soothsay.core import Capacity
from soothsay.hub import MODELS, cached
from soothsay.server.run import load
from soothsay.server.service import Limits
from tests.server.doubles import serving

pytestmark = [
    pytest.mark.skipif(cached(MODELS["smollm2-135m"]) is None, reason="the small model is not in the cache"),
    pytest.mark.skipif(find_spec("soothsay._native") is None, reason="the native runtime is not built"),
]

MODEL = "smollm2-135m"
CHAT: list[Any] = [{"role": "user", "content": "Write a short poem about the sea, and then say it again."}]
KEY = "a-key"


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    service = load(MODEL, draft="ngram", gamma=3, limits=Limits(Capacity(max_batch=4)))
    with serving(service, [KEY]) as address, openai.OpenAI(base_url=f"{address}/v1", api_key=KEY) as client:
        yield client.with_options(max_retries=0, timeout=60)


@pytest.fixture(scope="module")
def engine() -> Engine:
    """The same model alone, which guesses nothing."""
    return Engine(MODEL, draft="none")


def ask(client: openai.OpenAI, **options: Any) -> Any:
    return client.chat.completions.create(model=MODEL, messages=CHAT, **({"max_tokens": 24} | options))


def alone(engine: Engine, **options: Any) -> Completion:
    found: Completion = engine.generate(CHAT, Sampling(**({"max_tokens": 24, "temperature": 1.0} | options)))
    return found


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0},
        {"seed": 1},
        {"seed": 2, "temperature": 0.7, "top_p": 0.9},
        {"seed": 3, "stop": ["the"]},
        {"seed": 4, "extra_body": {"top_k": 20, "min_p": 0.02}},
    ],
    ids=repr,
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_is_the_engines_own(
    client: openai.OpenAI, engine: Engine, options: dict[str, Any], stream: bool
) -> None:
    reply = ask(client, stream=stream, **options)
    text = _told(reply) if stream else reply.choices[0].message.content
    plain = {name: value for name, value in options.items() if name != "extra_body"} | options.get("extra_body", {})
    wanted = alone(engine, **plain | ({"stop": tuple(plain["stop"])} if "stop" in plain else {}))
    assert text == wanted.text
    assert len(text) > 10


def _told(stream: Any) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def test_drafts_were_made_and_kept(client: openai.OpenAI) -> None:
    usage = ask(client, temperature=0, max_tokens=64).usage
    assert usage.completion_tokens == 64
    assert usage.speculation["accepted"] > 5
    assert usage.speculation["tokens_per_step"] > 1.05


def test_a_seed_gives_the_same_answer_and_is_told(client: openai.OpenAI) -> None:
    first = ask(client)
    again = ask(client, seed=first.seed)
    other = ask(client)
    assert first.choices[0].message.content == again.choices[0].message.content != other.choices[0].message.content
    assert first.system_fingerprint == again.system_fingerprint
    assert 0 <= first.seed < 2**53


def test_a_stream_ends_with_its_usage(client: openai.OpenAI) -> None:
    *chunks, last = list(ask(client, stream=True, stream_options={"include_usage": True}, max_tokens=8))
    assert last.choices == []
    assert last.usage.completion_tokens == 8
    assert chunks[-1].choices[0].finish_reason == "length"
    assert chunks[0].choices[0].delta.role == "assistant"


def test_texts_and_token_ids_are_continued(client: openai.OpenAI, engine: Engine) -> None:
    prompt = "The capital of France is"
    ids = engine.encode(prompt, raw=True)
    found = [
        client.completions.create(model=MODEL, prompt=asked, max_tokens=8, temperature=0).choices[0].text
        for asked in (prompt, ids)
    ]
    assert found == [engine.generate(prompt, Sampling(max_tokens=8), raw=True).text] * 2


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "soothsay"


def test_errors_are_the_clients_own(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as wrong:
        ask(client, extra_body={"top_k": -1})
    assert (wrong.value.param, wrong.value.type) == ("top_k", "invalid_request_error")
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(model=MODEL, prompt="x y " * 9000)
    assert long.value.code == "context_length_exceeded"
    assert "8192" in str(long.value)
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-5", messages=CHAT)
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="another").models.list()


def test_a_stream_that_is_closed_early_frees_its_place(client: openai.OpenAI) -> None:
    for _ in range(6):  # more than run at once
        with ask(client, stream=True, max_tokens=4000) as stream:
            next(iter(stream))
    assert ask(client, max_tokens=2).usage.completion_tokens == 2


def test_many_at_once_with_some_that_leave(client: openai.OpenAI, engine: Engine) -> None:
    """Each answer is that of the same request alone, whoever shares its steps or drops out of them."""
    dice = random.Random(7)
    asked = [
        {"seed": seed, "temperature": dice.choice([0, 0.8, 1.3]), "max_tokens": dice.choice([4, 12, 30])}
        for seed in range(24)
    ]

    def run(options: dict[str, Any]) -> str | None:
        if options["seed"] % 4 == 3:
            with ask(client, stream=True, **options) as stream:
                next(iter(stream))
            return None
        return str(ask(client, **options).choices[0].message.content)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(run, asked))
    for options, text in zip(asked, found, strict=True):
        assert text is None or text == alone(engine, **options).text, json.dumps(options)


def test_json_follows_its_schema_and_is_the_engines_own(client: openai.OpenAI, engine: Engine) -> None:
    schema = {
        "type": "object",
        "properties": {"place": {"type": "string", "maxLength": 12}, "depth": {"type": "integer", "maximum": 11000}},
        "required": ["place", "depth"],
        "additionalProperties": False,
    }
    answer = ask(
        client,
        response_format={"type": "json_schema", "json_schema": {"name": "sea", "schema": schema, "strict": True}},
        seed=8,
        max_tokens=80,
    )
    found = json.loads(answer.choices[0].message.content)
    assert set(found) == {"place", "depth"}
    assert isinstance(found["depth"], int)
    plain = alone(engine, grammar=Grammar.json_schema(schema), seed=8, max_tokens=80)
    assert answer.choices[0].message.content == plain.text


def test_other_formats_are_extensions(client: openai.OpenAI) -> None:
    anything = ask(client, response_format={"type": "json_object"}, seed=1, max_tokens=120)
    assert anything.choices[0].message.content.lstrip().startswith("{")
    choice = ask(client, extra_body={"response_format": {"type": "choice", "choices": ["yes", "no"]}}, seed=2)
    assert choice.choices[0].message.content in ("yes", "no")
    digits = ask(client, extra_body={"response_format": {"type": "regex", "pattern": "[0-9]{4}"}}, seed=3)
    assert re.fullmatch("[0-9]{4}", digits.choices[0].message.content)


def test_each_of_several_answers_is_its_own(client: openai.OpenAI, engine: Engine) -> None:
    several = ask(client, n=3, seed=5)
    texts = [choice.message.content for choice in several.choices]
    assert texts == [alone(engine, seed=5, sample=sample).text for sample in range(3)]
    assert len(set(texts)) > 1


def test_log_probabilities_are_those_of_the_engine(client: openai.OpenAI, engine: Engine) -> None:
    answer = ask(client, seed=6, logprobs=True, top_logprobs=3)
    plain = alone(engine, seed=6, logprobs=3)
    assert plain.logprobs is not None
    found = answer.choices[0].logprobs.content
    assert [entry.logprob for entry in found] == pytest.approx(
        [entry.logprob for entry in plain.logprobs[: len(found)]]
    )
    assert all(len(entry.top_logprobs) == 3 for entry in found)


def test_origins_come_with_a_stream(client: openai.OpenAI) -> None:
    chunks = list(ask(client, temperature=0, stream=True, max_tokens=60, extra_body={"origins": True}))
    tokens = [
        token for chunk in chunks for choice in chunk.choices for token in (choice.model_extra or {}).get("tokens", [])
    ]
    assert {token["from"] for token in tokens} <= {"plain", "bonus", "correction", "ngram"}
    assert "ngram" in {token["from"] for token in tokens}
    assert all(0 < token["p"] <= 1 for token in tokens)
    assert all((token["q"] == 1) == (token["from"] == "ngram") for token in tokens)
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert "".join(token["text"] for token in tokens) == text


def test_an_answer_that_takes_too_long_is_ended(client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        ask(client, max_tokens=4000, extra_body={"timeout": 0.2, "ignore_eos": True})
    assert caught.value.status_code == 504
    assert ask(client, seed=1).choices
