"""Many clients at once: those who leave, those who do not read, and a line that is full. Nobody else notices."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx
import pytest

from soothsay.completion import Piece
from soothsay.server.mailbox import Letter, Mailbox
from soothsay.server.refusals import Broken
from soothsay.server.run import service_of
from soothsay.server.service import Limits, Service
from tests.server.doubles import Parrot, limits_of, parts, serving
from tests.server.test_runner import PATIENCE, Gate

LONG = "never ends " * 20
CHAT: dict[str, object] = {"messages": [{"role": "user", "content": "hi"}]}


class Scene:
    """A server whose model takes its passes when it is let."""

    def __init__(self, text: str, limits: Limits) -> None:
        self.model = Parrot(text, max_length=4096)
        self.gate = Gate(self.model)
        self.service: Service = service_of(parts(self.model), "parrot", limits=limits)
        self.address = ""


@contextmanager
def scene(text: str = LONG, **limits: int) -> Iterator[Scene]:
    found = Scene(text, limits_of(**limits))
    with serving(found.service) as found.address:
        try:
            yield found
        finally:
            found.model.before = lambda: None
            found.gate.let()


def connect(address: str, body: dict[str, object]) -> socket.socket:
    """Ask, and leave the answer in the socket."""
    url, content = urlsplit(address), json.dumps(body).encode()
    connection = socket.create_connection((url.hostname, url.port), timeout=PATIENCE)
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    return connection


def read_until(connection: socket.socket, marker: bytes) -> bytes:
    """Read until the marker came; an answer that ends without it fails."""
    text = b""
    with connection:
        while marker not in text:
            more = connection.recv(65536)
            assert more, text
            text += more
    return text


def wait_until(condition: Callable[[], object]) -> None:
    """Wait for another thread; the time is only there so that a defect does not hang."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_ends_within_a_step_when_its_client_leaves(stream: bool) -> None:
    with scene() as found:
        connection = connect(found.address, CHAT | {"stream": stream})
        found.gate.arrive()
        found.gate.let(3)
        for _ in range(3):
            found.gate.arrive()  # the fourth pass is about to begin
        connection.close()
        wait_until(lambda: found.service.runner._cancelled)
        found.gate.let()
        wait_until(lambda: found.service.runner.running == 0)
        assert len(found.model.passes) == 4
        assert found.model.open_slots <= 1  # kept for prompts that continue it
        found.model.before = lambda: None
        reply = httpx.post(f"{found.address}/v1/chat/completions", json=CHAT)
        assert reply.json()["choices"][0]["message"]["content"] == LONG


def test_a_full_line_asks_to_come_again() -> None:
    with scene("short", max_batch=1, max_queue=1) as found:
        first = connect(found.address, CHAT)
        found.gate.arrive()
        second = connect(found.address, CHAT | {"n": 1})
        wait_until(lambda: found.service.runner.waiting == 1)
        with httpx.Client(base_url=found.address) as client:
            reply = client.post("/v1/chat/completions", json=CHAT)
            assert reply.status_code == 429
            assert reply.json()["error"]["code"] == "queue_full"
            assert int(reply.headers["Retry-After"]) >= 1
            assert client.get("/health").status_code == 200  # the event loop does not wait for the engine
        found.gate.let()
        for connection in (first, second):
            read_until(connection, b'"content":"short"')


def test_who_does_not_read_holds_up_nobody() -> None:
    with scene() as found:
        found.gate.let()
        found.model.before = lambda: None
        idle = connect(found.address, CHAT | {"stream": True})
        replies = [httpx.post(f"{found.address}/v1/chat/completions", json=CHAT) for _ in range(3)]
        assert {reply.json()["choices"][0]["message"]["content"] for reply in replies} == {LONG}
        wait_until(lambda: found.service.runner.running == 0)
        idle.close()


def test_an_error_in_mid_stream_is_an_event() -> None:
    def fail() -> None:
        raise ValueError("a defect")

    with scene() as found:
        connection = connect(found.address, CHAT | {"stream": True})
        found.gate.arrive()
        found.gate.let(1)
        found.gate.arrive()
        found.model.before = fail
        found.gate.let(1)
        text = read_until(connection, b"\r\n0\r\n\r\n")  # the end of a body in chunks
        assert b'"error"' in text
        assert b"the engine failed" in text
        assert b"[DONE]" not in text


# The mailbox


def piece(token: int) -> Piece:
    return Piece("x", token, "model")


def test_letters_come_in_order_and_then_the_error() -> None:
    async def scenario() -> None:
        mailbox = Mailbox()
        slot = mailbox.slot(3)
        sender = threading.Thread(target=lambda: [slot.hear([piece(token)]) for token in range(500)])
        sender.start()
        found: list[Letter] = []
        while len(found) < 500:
            found += await mailbox.take()
        sender.join()
        assert found == [Letter(3, piece(token)) for token in range(500)]
        slot.hear([piece(7)])
        slot.fail(Broken("first"))
        slot.fail(Broken("second"))
        assert await mailbox.take() == [Letter(3, piece(7))]
        with pytest.raises(Broken, match="first"):
            await mailbox.take()

    asyncio.run(scenario())


def test_unread_letters_are_bounded() -> None:
    async def scenario() -> None:
        mailbox = Mailbox(most_unread=3)
        slot = mailbox.slot(0)
        assert slot.hear([piece(1), piece(2)])
        assert slot.hear([piece(3)])
        assert not slot.hear([piece(4)])
        assert len(await mailbox.take()) == 3
        with pytest.raises(Broken, match="too slowly"):
            await mailbox.take()

    asyncio.run(scenario())


def test_a_mailbox_whose_loop_is_closed_wants_no_more() -> None:
    async def make() -> Mailbox:
        return Mailbox()

    mailbox = asyncio.run(make())
    assert not mailbox.slot(0).hear([piece(1)])
    mailbox.fail(Broken("late"))
