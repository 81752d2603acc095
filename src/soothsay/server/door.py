"""What stands before every endpoint: the host's name, the key, the size of the body, and a line in the log."""

import hmac
import json
import logging
import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from soothsay.server.refusals import BadRequest, BodyTooLarge, Refusal, WrongKey

log = logging.getLogger("soothsay.requests")

OPEN_PATHS = frozenset(("/health", "/ready", "/"))
OPEN_FOLDER = "/page/"
"""What needs no key: a supervisor's questions, and the page, which asks for one itself."""

LOOPBACK = frozenset(("127.0.0.1", "localhost", "[::1]"))

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


def refused(refusal: Refusal) -> Response:
    """Give a refusal as an HTTP response, in ASCII: it may quote what no encoding can hold."""
    body = json.dumps(refusal.body())
    return Response(body, refusal.status, refusal.headers, media_type="application/json")


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys that open the server; none of them: it is open."""

    keys: tuple[bytes, ...] = ()

    def check(self, authorization: str) -> None:
        """Compare with every key, in a time that tells nothing about them; WrongKey when none is it."""
        if not self.keys:
            return
        scheme, _, given = authorization.partition(" ")
        offered = given.strip().encode("latin-1", "replace")
        same = [hmac.compare_digest(offered, key) for key in self.keys]
        if scheme.lower() != "bearer" or not any(same):
            raise WrongKey(
                "a key is needed: 'Authorization: Bearer KEY', with a key of this server", code="invalid_api_key"
            )


class Door:
    """An ASGI application around another: refuses what may not come in, and writes one line for each request.

    `hosts` are the names that a server on loopback answers to, so that no web page can reach it under a name of its
    own (None: any name). `done` hears of each request's path and status.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: Keys,
        body_bytes: int,
        hosts: frozenset[str] | None,
        paths: Sequence[str],
        done: Callable[[str, int], None],
    ) -> None:
        self._app = app
        self._keys = keys
        self._body_bytes = body_bytes
        self._hosts = hosts
        self._paths = frozenset(paths)
        self._done = done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        note = _Note(scope)
        try:
            await self._enter(scope, receive, note.sender(send))
        finally:
            path = scope["path"] if scope["path"] in self._paths else "other"
            self._done(path, note.status)
            log.info(note.line())

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        try:
            self._check(scope["path"], headers)
        except Refusal as refusal:
            await refused(refusal)(scope, receive, send)
            return
        await self._app(scope, self._bounded(receive), send)

    def _check(self, path: str, headers: Headers) -> None:
        host = re.sub(r":\d+$", "", headers.get("host", ""))
        if self._hosts is not None and host not in self._hosts:
            raise BadRequest(f"the Host header is {host[:80]!r}; legal: {', '.join(sorted(self._hosts))}")
        if path not in OPEN_PATHS and not path.startswith(OPEN_FOLDER):
            self._keys.check(headers.get("authorization", ""))
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length[:20]) > self._body_bytes:
            raise self._too_large()

    def _bounded(self, receive: Receive) -> Receive:
        """Count what really comes: a body in chunks does not say how long it is."""
        left = self._body_bytes

        async def bounded() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, self._too_large().message)  # nothing else gets through the reading of bodies
            return message

        return bounded

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"the body is larger than the {self._body_bytes} bytes that this server reads")


class _Note:
    """What the log says of one request."""

    def __init__(self, scope: Scope) -> None:
        given = Headers(scope=scope).get("x-request-id", "")
        self.id = given if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = self.id
        self.status = 499  # the client was gone before it had a status
        self._scope = scope
        self._begun = time.monotonic()

    def sender(self, send: Send) -> Send:
        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", self.id.encode())]
            await send(message)

        return noted

    def line(self) -> str:
        return json.dumps(
            {
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "request_id": self.id,
                "method": self._scope["method"],
                "path": self._scope["path"],
                "status": self.status,
                "seconds": round(time.monotonic() - self._begun, 4),
            }
            | self._scope["state"].get("note", {})
        )
