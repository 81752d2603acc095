"""The interface over HTTP, against a model that says what it is told to: every field is heeded or refused by name."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from soothsay.record import Record
from soothsay.server.run import service_of
from soothsay.server.service import Limits
from tests.server.doubles import END, SIGN, Parrot, parrot_service, parts, serving

REPLY = "Hello, world. Ünder the sea."
CHAT = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serving(parrot_service(REPLY)) as address, httpx.Client(base_url=address, timeout=20) as client:
        yield client


def choice(reply: httpx.Response) -> dict[str, Any]:
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()["choices"][0]
    return found


def refusal(reply: httpx.Response, status: int = 400) -> dict[str, Any]:
    """The error, which has OpenAI's shape."""
    assert reply.status_code == status, reply.text
    error: dict[str, Any] = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def events(text: str) -> list[Any]:
    """What a stream told; it ends in [DONE]."""
    data = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert data[-1] == "[DONE]"
    return [json.loads(line) for line in data[:-1]]


# Answers


def test_a_chat_is_answered(client: httpx.Client) -> None:
    reply = client.post("/v1/chat/completions", json=CHAT | {"seed": 5})
    assert choice(reply)["message"] == {"role": "assistant", "content": REPLY, "refusal": None}
    assert choice(reply)["finish_reason"] == "stop"
    found = reply.json()
    assert (found["object"], found["model"], found["seed"]) == ("chat.completion", "parrot", 5)
    emitted = len(REPLY.encode()) + 1  # a token for each byte, and the end of the text
    assert found["usage"]["completion_tokens"] == emitted
    assert found["usage"]["total_tokens"] == found["usage"]["prompt_tokens"] + emitted
    assert found["usage"]["speculation"]["steps"] == emitted


def test_a_stream_gives_the_same_and_no_half_characters(client: httpx.Client) -> None:
    asked = CHAT | {"stream": True, "stream_options": {"include_usage": True}}
    reply = client.post("/v1/chat/completions", json=asked)
    assert reply.headers["content-type"].startswith("text/event-stream")
    *chunks, last = events(reply.text)
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == REPLY
    assert "\ufffd" not in reply.text
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[-2:]] == [None, "stop"]
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == len(REPLY.encode()) + 1
    assert all(chunk["usage"] is None for chunk in chunks)


def test_a_text_is_continued_as_it_is(client: httpx.Client) -> None:
    reply = client.post("/v1/completions", json={"prompt": f"x{SIGN}", "max_tokens": 5})
    assert choice(reply)["text"] == REPLY[:5]
    assert choice(reply)["finish_reason"] == "length"
    assert reply.json()["object"] == "text_completion"


def test_texts_are_short_unless_they_say_otherwise(client: httpx.Client) -> None:
    reply = client.post("/v1/completions", json={"prompt": SIGN})
    assert reply.json()["usage"]["completion_tokens"] == 16


@pytest.mark.parametrize(
    ("prompt", "count"), [("x", 1), ([1, 2], 1), (["x", "yy"], 2), ([[1], [2, 3], [4]], 3)], ids=repr
)
@pytest.mark.parametrize("stream", [False, True])
def test_many_prompts_and_many_answers(client: httpx.Client, prompt: Any, count: int, stream: bool) -> None:
    asked = {"prompt": prompt, "n": 2, "max_tokens": 3, "stream": stream}
    reply = client.post("/v1/completions", json=asked)
    chunks = events(reply.text) if stream else [reply.json()]
    texts = [""] * (2 * count)
    for chunk in chunks:
        for one in chunk["choices"]:
            texts[one["index"]] += one["text"]
    assert [len(text) for text in texts] == [3] * (2 * count)
    assert texts[::2] == texts[1::2]


@pytest.mark.parametrize("stop", ["world", ["xyz", "world"]])
def test_an_answer_ends_before_a_stop_string(client: httpx.Client, stop: Any) -> None:
    reply = client.post("/v1/chat/completions", json=CHAT | {"stop": stop})
    assert choice(reply)["message"]["content"] == "Hello, "
    assert choice(reply)["finish_reason"] == "stop"


def test_a_full_context_ends_an_answer(client: httpx.Client) -> None:
    reply = client.post("/v1/completions", json={"prompt": "x" * 250 + SIGN, "max_tokens": 100})
    assert choice(reply)["text"] == REPLY[:5]
    assert choice(reply)["finish_reason"] == "length"
    assert reply.json()["usage"]["total_tokens"] == 256


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant"])
def test_roles_and_parts_reach_the_template(client: httpx.Client, role: str) -> None:
    messages = [{"role": role, "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    reply = client.post("/v1/chat/completions", json={"messages": messages})
    shown = "system" if role == "developer" else role
    assert reply.json()["usage"]["prompt_tokens"] == len(f"{shown}: ab;{SIGN}")


def test_null_is_as_good_as_absent(client: httpx.Client) -> None:
    schema = client.get("/openapi.json").json()["components"]["schemas"]["ChatBody"]
    optional = [name for name in schema["properties"] if name not in schema["required"]]
    assert len(optional) > 20
    reply = client.post("/v1/chat/completions", json=CHAT | dict.fromkeys(optional))
    assert choice(reply)["message"]["content"] == REPLY


# Refusals


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"best_of": 2}, "best_of", "not a field that is known"),
        ({"functions": []}, "functions", "not a field"),
        ({"temperature": -1}, "temperature", "greater than or equal to 0"),
        ({"temperature": "hot"}, "temperature", "number"),
        ({"top_p": 0}, "top_p", "greater than 0"),
        ({"top_k": -1}, "top_k", "greater than or equal to 0"),
        ({"min_p": 2}, "min_p", "less than or equal to 1"),
        ({"seed": -1}, "seed", "greater"),
        ({"n": 0}, "n", "greater"),
        ({"n": 100}, "n", "this server takes 72 at most"),
        ({"max_tokens": 0}, "max_tokens", "greater"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens", "two names"),
        ({"stop": ""}, "stop", "at least 1"),
        ({"stop": ["a"] * 17}, "stop", "at most 16"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "token ids"),
        ({"logit_bias": {"1": 101}}, "logit_bias.1", "less than"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "without stream"),
        ({"stream": True, "stream_options": {"x": 1}}, "stream_options.x", "not a field"),
        ({"top_logprobs": 3}, "top_logprobs", "without logprobs"),
        ({"response_format": {"type": "xml"}}, "response_format", "'json_schema'"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema", "name"),
        ({"response_format": {"type": "regex", "pattern": "("}}, "response_format", "the regex cannot be followed"),
        ({"response_format": {"type": "grammar", "grammar": "start: x"}}, "response_format", "cannot be followed"),
        ({"response_format": {"type": "json_object"}, "ignore_eos": True}, "grammar", "not with ignore_eos"),
        ({"banned_token_ids": [257]}, "banned_token_ids", "token ids go from 0 to 256"),
        ({"allowed_token_ids": []}, "allowed_tokens", "not all of them banned"),
        ({"min_tokens": 9, "max_tokens": 3}, "min_tokens", "from 0 to max_tokens"),
        ({"timeout": 0}, "timeout", "greater than 0"),
        ({"tool_choice": "auto"}, "tool_choice", "without tools"),
        ({"draft": "oracle"}, "draft", "on this server it must be one of: auto, none"),
        ({"gamma": 2}, "gamma", "no drafter"),
        ({"gamma": 17}, "gamma", "less than or equal to 16"),
        ({"verify": "typical"}, "verify", "'coupled', 'block' or 'token'"),
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages", "role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages", ""),
        ({"messages": [{"role": "user", "content": "x", "a": 1, "b": 2}]}, "messages.0.user.a", "not a field"),
        ({"messages": [{"role": "user", "content": "x" * 300}]}, "messages", "308 tokens"),
    ],
    ids=lambda value: json.dumps(value)[:40],
)
def test_what_cannot_be_is_refused_by_name(client: httpx.Client, fields: dict[str, Any], param: str, says: str) -> None:
    error = refusal(client.post("/v1/chat/completions", json=CHAT | fields))
    assert error["type"] == "invalid_request_error"
    assert str(error["param"]).startswith(param)
    assert says in error["message"]


def test_a_long_prompt_is_refused_with_both_numbers(client: httpx.Client) -> None:
    error = refusal(client.post("/v1/completions", json={"prompt": "x" * 300}))
    assert (error["param"], error["code"]) == ("prompt", "context_length_exceeded")
    assert "300 tokens" in error["message"]
    assert "256" in error["message"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/completions", {"prompt": ""}, "prompt"),
        ("/v1/completions", {"prompt": []}, "prompt"),
        ("/v1/completions", {"prompt": [999]}, "prompt"),
        ("/v1/completions", {"prompt": [[1], []]}, "prompt"),
        ("/v1/completions", {"prompt": "x", "suffix": "y"}, "suffix"),
        ("/v1/completions", {"prompt": "x", "echo": True}, "echo"),
        ("/tokenize", {"content": 3}, "content"),
        ("/detokenize", {"tokens": [257]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
    ],
    ids=repr,
)
def test_other_endpoints_refuse_by_name_too(client: httpx.Client, path: str, body: Any, param: str) -> None:
    assert str(refusal(client.post(path, json=body))["param"]).startswith(param)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[]", b'"x"', b"\xff\xfe", b'{"messages": NaN}', b"[" * 100_000),
        *(
            b'{"prompt": "\\ud800"}',
            b'{"prompt": "x", "\\ud800": 1}',
            b'{"prompt": "x", "seed": 1' + b"0" * 5000 + b"}",
        ),
    ],
    ids=lambda body: repr(body)[:30],
)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_body_that_is_no_request_is_refused(client: httpx.Client, path: str, body: bytes) -> None:
    refusal(client.post(path, content=body, headers={"Content-Type": "application/json"}))


def test_unknown_models_and_paths(client: httpx.Client) -> None:
    error = refusal(client.post("/v1/chat/completions", json=CHAT | {"model": "gpt-5"}), 404)
    assert (error["param"], error["code"]) == ("model", "model_not_found")
    assert "'parrot'" in error["message"]
    refusal(client.get("/v1/models/gpt-5"), 404)
    refusal(client.get("/v2"), 404)
    refusal(client.get("/v1/completions"), 405)


# Tools


def said(text: str, **fields: Any) -> dict[str, Any]:
    with serving(parrot_service(text)) as address:
        return choice(httpx.post(f"{address}/v1/chat/completions", json=CHAT | fields))


TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>'


def test_a_tool_call_is_told_from_text() -> None:
    found = said(CALL, tools=[TOOL])
    assert found["finish_reason"] == "tool_calls"
    assert found["message"]["content"] is None
    (call,) = found["message"]["tool_calls"]
    assert call["type"] == "function"
    assert call["function"] == {"name": "weather", "arguments": '{"city": "Oslo"}'}


@pytest.mark.parametrize("fields", [{}, {"tools": [TOOL], "tool_choice": "none"}])
def test_text_stays_text_where_no_tools_are_offered(fields: dict[str, Any]) -> None:
    found = said(CALL, **fields)
    assert found["message"]["content"] == CALL
    assert found["finish_reason"] == "stop"


def test_tool_calls_stream() -> None:
    asked = CHAT | {"tools": [TOOL], "stream": True}
    with serving(parrot_service(f"Well. {CALL}\n{CALL}")) as address:
        chunks = events(httpx.post(f"{address}/v1/chat/completions", json=asked).text)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("content", "") for delta in deltas) == "Well."
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert [call["index"] for call in calls] == [0, 1]
    assert {call["function"]["arguments"] for call in calls} == {'{"city": "Oslo"}'}
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_tools_and_earlier_calls_reach_the_template() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "rain", "tool_call_id": "1"},
    ]
    with serving(parrot_service("ok")) as address:
        reply = httpx.post(f"{address}/v1/chat/completions", json={"messages": messages, "tools": [TOOL]})
    assert reply.json()["usage"]["prompt_tokens"] == len(f"[weather]assistant: <Oslo>;tool: rain;{SIGN}")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": {"type": "function", "function": {"name": "news"}}}, "tool_choice"),
        ({"tool_choice": "required", "response_format": {"type": "json_object"}}, "response_format"),
        ({"tools": [TOOL | {"function": {"name": "f", "parameters": {"type": "colour"}, "strict": True}}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "no spaces"}}]}, "tools"),
    ],
    ids=repr,
)
def test_what_tools_cannot_be_is_refused(client: httpx.Client, fields: dict[str, Any], param: str) -> None:
    error = refusal(client.post("/v1/chat/completions", json=CHAT | {"tools": [TOOL]} | fields))
    assert str(error["param"]).startswith(param)


LAMP = {
    "type": "function",
    "function": {
        "name": "lamp",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"state": {"enum": ["on", "off"]}},
            "required": ["state"],
            "additionalProperties": False,
        },
    },
}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "lamp"}}])
@pytest.mark.parametrize("stream", [True, False])
def test_a_call_that_must_come_comes_by_its_schema(choice: Any, stream: bool) -> None:
    """The parrot would rather say something else; the grammar leaves it nothing but a call."""
    asked = CHAT | {"tools": [LAMP], "tool_choice": choice, "parallel_tool_calls": False, "temperature": 0}
    with serving(parrot_service("hello")) as address:
        reply = httpx.post(f"{address}/v1/chat/completions", json=asked | {"stream": stream}, timeout=20)
    if stream:
        deltas = [chunk["choices"][0]["delta"] for chunk in events(reply.text)]
        calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    else:
        assert reply.json()["choices"][0]["finish_reason"] == "tool_calls"
        calls = reply.json()["choices"][0]["message"]["tool_calls"]
    assert [call["function"]["name"] for call in calls] == ["lamp"]
    assert json.loads(calls[0]["function"]["arguments"])["state"] in ("on", "off")


def test_text_is_still_free_beside_a_strict_tool() -> None:
    with serving(parrot_service("hello")) as address:
        reply = httpx.post(f"{address}/v1/chat/completions", json=CHAT | {"tools": [LAMP], "temperature": 0})
    assert reply.json()["choices"][0]["message"]["content"] == "hello"


def test_arguments_that_are_no_json_are_refused(client: httpx.Client) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{"}}
    messages = [{"role": "assistant", "tool_calls": [call]}]
    assert refusal(client.post("/v1/chat/completions", json={"messages": messages}))["param"] == "messages"


def test_a_template_without_a_place_for_tools_refuses_them() -> None:
    service = service_of(parts(Parrot("x"), template=SIGN), "parrot", limits=Limits())
    with serving(service) as address:
        reply = httpx.post(f"{address}/v1/chat/completions", json=CHAT | {"tools": [TOOL]})
    assert refusal(reply)["param"] == "tools"


@pytest.mark.parametrize(
    "template", [None, "{{ raise_exception('no') }}", "{% for i in range(9) %}{{ i // 0 }}{% endfor %}"]
)
def test_a_template_that_fails_is_the_messages_fault(template: str | None) -> None:
    service = service_of(parts(Parrot("x"), template=template), "parrot", limits=Limits())
    with serving(service) as address:
        assert refusal(httpx.post(f"{address}/v1/chat/completions", json=CHAT))["param"] == "messages"
        assert httpx.get(f"{address}/health").status_code == 200


# Words, probes, figures


def test_words_become_ids_and_back(client: httpx.Client) -> None:
    found = client.post("/tokenize", json={"content": "hé<|im_end|>", "with_pieces": True}).json()
    assert found["count"] == 4
    assert [token["piece"] for token in found["tokens"]] == ["h", "\ufffd", "\ufffd", ""]
    ids = client.post("/tokenize", json={"content": "hé<|im_end|>"}).json()["tokens"]
    assert ids[-1] == END
    assert client.post("/detokenize", json={"tokens": ids}).json() == {"content": "hé"}
    plain = client.post("/tokenize", json={"content": "<|im_end|>", "parse_special": False}).json()
    assert plain["count"] == len("<|im_end|>")


def test_probes(client: httpx.Client) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}
    (model,) = client.get("/v1/models").json()["data"]
    assert (model["id"], model["context_length"]) == ("parrot", 256)
    assert client.get("/v1/models/parrot").json() == model


@pytest.mark.parametrize(
    ("wish", "gamma"),
    [
        *[({}, 3), ({"gamma": "auto"}, 3), ({"gamma": 2}, 2), ({"gamma": 5}, 5), ({"draft": "ngram", "gamma": 1}, 1)],
        *[({"draft": "none"}, 0), ({"gamma": 0}, 0), ({"draft": "none", "gamma": 0}, 0)],
    ],
    ids=repr,
)
def test_a_request_may_have_drafts_of_its_own(wish: dict[str, Any], gamma: int) -> None:
    """The server's own way is 3 tokens; a step near the end drafts fewer."""
    records: list[Record] = []
    service = service_of(parts(Parrot("abc" * 20), gamma=3), "parrot", limits=Limits())
    service.engine._watch = records.append
    with serving(service) as address:
        reply = httpx.post(f"{address}/v1/chat/completions", json=CHAT | wish)
    assert choice(reply)["message"]["content"] == "abc" * 20
    assert max(one.drafted for record in records for one in record.drafts) == gamma


def test_a_wish_needs_a_drafter_to_grant_it() -> None:
    service = service_of(parts(Parrot("x"), gamma=3), "parrot", limits=Limits())
    with serving(service) as address:
        error = refusal(httpx.post(f"{address}/v1/chat/completions", json=CHAT | {"draft": "none", "gamma": 2}))
        assert "draft is 'none'" in error["message"]
        error = refusal(httpx.post(f"{address}/v1/chat/completions", json=CHAT | {"draft": "model"}))
        assert "auto, none, ngram" in error["message"]


def test_figures_count_what_was_done() -> None:
    text = "abcabcabcabcabcabcabc"
    service = service_of(parts(Parrot(text), gamma=3), "parrot", limits=Limits())
    with serving(service) as address:
        usage = httpx.post(f"{address}/v1/chat/completions", json=CHAT).json()["usage"]
        lines = httpx.get(f"{address}/metrics").text.splitlines()
    figures = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"}
    drafted = [figures[f'soothsay_drafted_tokens_total{{drafter="ngram",position="{i}"}}'] for i in (1, 2, 3)]
    accepted = [figures[f'soothsay_accepted_tokens_total{{drafter="ngram",position="{i}"}}'] for i in (1, 2, 3)]
    assert sum(drafted) == usage["speculation"]["drafted"]
    assert sum(accepted) == usage["speculation"]["accepted"] > 0
    assert accepted == sorted(accepted, reverse=True)
    assert figures["soothsay_generated_tokens_total"] == usage["completion_tokens"] == len(text) + 1
    assert figures["soothsay_sequence_steps_total"] == usage["speculation"]["steps"] < len(text)
    assert figures['soothsay_requests_total{path="/v1/chat/completions",status="200"}'] == 1
    assert figures['soothsay_answers_total{finish_reason="end"}'] == 1
    assert figures["soothsay_time_to_first_token_seconds_count"] == 1
    assert figures["soothsay_cache_tokens"] > 0
    assert figures["soothsay_queue_requests"] == figures["soothsay_running_requests"] == 0
