"""What stands before the endpoints: keys, names of the host, the size of a body, a name for each request."""

import json
import logging
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from soothsay.server.door import Keys
from soothsay.server.refusals import WrongKey
from tests.server.doubles import parrot_service, serving

KEYS = ("first-key", "second-key")
CHAT = {"messages": [{"role": "user", "content": "hi"}]}
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(parrot_service("Hello.", body_bytes=10_000), KEYS) as address:
        yield address


def ask(address: str, **headers: str) -> httpx.Response:
    return httpx.post(f"{address}/v1/chat/completions", json=CHAT, headers=headers)


@pytest.mark.parametrize("key", KEYS)
def test_each_key_opens(address: str, key: str) -> None:
    assert ask(address, Authorization=f"Bearer {key}").status_code == 200


@pytest.mark.parametrize(
    "given", ["", "first-key", "Bearer", "Bearer first-ke", "Bearer first-keyx", "Basic first-key"]
)
def test_nothing_else_does(address: str, given: str) -> None:
    reply = ask(address, Authorization=given)
    assert (reply.status_code, reply.json()["error"]["code"]) == (401, "invalid_api_key")
    assert reply.headers["WWW-Authenticate"] == "Bearer"


def test_every_key_is_compared_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """An early end would tell how much of a key was right."""
    compared = []

    def compare(left: bytes, right: bytes) -> bool:
        compared.append((left, right))
        return left == right

    monkeypatch.setattr("hmac.compare_digest", compare)
    Keys((b"a", b"b")).check("Bearer a")
    with pytest.raises(WrongKey):
        Keys((b"a", b"b")).check("Bearer c")
    assert compared == [(b"a", b"a"), (b"a", b"b"), (b"c", b"a"), (b"c", b"b")]


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_a_supervisor_needs_no_key(address: str, path: str) -> None:
    assert httpx.get(address + path).status_code == 200


@pytest.mark.parametrize("path", ["/metrics", "/v1/models", "/openapi.json", "/nowhere"])
def test_all_else_does(address: str, path: str) -> None:
    assert httpx.get(address + path).status_code == 401


def test_no_web_page_comes_in_under_a_name_of_its_own(address: str) -> None:
    """A page may let its own host's name point to 127.0.0.1; the browser then sends that name."""
    key = {"Authorization": f"Bearer {KEYS[0]}"}
    assert ask(address, **key, Host="evil.example").status_code == 400
    assert ask(address, **key, Host="localhost:1").status_code == 200


def test_a_web_page_cannot_post_without_being_asked(address: str) -> None:
    """A browser asks before it sends application/json to a stranger, and text/plain is not taken for it."""
    headers = {"Authorization": f"Bearer {KEYS[0]}", "Content-Type": "text/plain"}
    reply = httpx.post(f"{address}/v1/chat/completions", content=json.dumps(CHAT), headers=headers)
    assert reply.status_code == 400


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_is_bounded(address: str, chunked: bool) -> None:
    """Whether it says how large it is or not."""
    body = b'{"messages": [{"role": "user", "content": "' + b"x" * 20_000
    content = iter([body[:15_000], body[15_000:]]) if chunked else body
    headers = {"Authorization": f"Bearer {KEYS[0]}"} | JSON
    reply = httpx.post(f"{address}/v1/chat/completions", content=content, headers=headers)
    assert reply.status_code == 413
    assert "10000 bytes" in reply.json()["error"]["message"]


def test_ten_thousand_header_lines_are_refused(address: str) -> None:
    url = urlsplit(address)
    with socket.create_connection((url.hostname, url.port), timeout=20) as connection:
        lines = b"".join(b"X-%d: %s\r\n" % (i, b"y" * 20) for i in range(10_000))
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + lines + b"\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 400")
    assert httpx.get(f"{address}/health").status_code == 200


def test_half_a_body_harms_nobody(address: str) -> None:
    url = urlsplit(address)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEYS[0]}\r\n"
    with socket.create_connection((url.hostname, url.port), timeout=20) as connection:
        connection.sendall(head.encode() + b'Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"pro')
    assert ask(address, Authorization=f"Bearer {KEYS[0]}").status_code == 200


def test_each_request_has_a_name_in_the_answer_and_in_the_log(address: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "soothsay.requests")
    key = {"Authorization": f"Bearer {KEYS[0]}"}
    url = f"{address}/v1/chat/completions"
    given = httpx.post(url, json=CHAT | {"user": "ann"}, headers=key | {"X-Request-Id": "mine-1"})
    made = [httpx.get(f"{address}/health", headers={"X-Request-Id": bad}) for bad in ("a b", "x" * 65)]
    lines = [json.loads(record.getMessage()) for record in caplog.records]
    assert given.headers["X-Request-Id"] == "mine-1" == lines[0]["request_id"]
    assert (lines[0]["path"], lines[0]["status"], lines[0]["user"]) == ("/v1/chat/completions", 200, "ann")
    assert lines[0]["prompt_tokens"] > 0
    assert all(len(reply.headers["X-Request-Id"]) == 16 for reply in made)
