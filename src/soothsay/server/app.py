"""The HTTP application: the endpoints of a service behind one door."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from soothsay.server import chat, completions, front, probes, words
from soothsay.server.bodies import ErrorBody
from soothsay.server.door import Door, Keys, refused
from soothsay.server.refusals import BadRequest, Broken, NotFound, Refusal
from soothsay.server.service import Service

log = logging.getLogger(__name__)

ROOMS = (chat, completions, words, probes, front)
REFUSALS = {"4XX": {"model": ErrorBody}, "5XX": {"model": ErrorBody}}


def application(service: Service, *, keys: Sequence[str] = (), hosts: frozenset[str] | None = None) -> ASGIApp:
    """Make the application; its engine's thread runs while it does."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.runner.start()
        try:
            yield
        finally:
            service.runner.stop()

    app = FastAPI(
        title="soothsay",
        version=version("soothsay"),
        docs_url=None,  # those pages load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        responses=REFUSALS,  # type: ignore[arg-type]
    )
    for room in ROOMS:
        app.include_router(room.routes(service))
    app.add_exception_handler(Refusal, _on_refusal)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_defect)
    paths = sorted(app.openapi()["paths"])
    encoded = tuple(key.encode() for key in keys)
    return Door(app, Keys(encoded), service.limits.body_bytes, hosts, paths, service.metrics.requested)


async def _on_refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return refused(error)


async def _on_invalid(_: Request, error: Exception) -> Response:
    """Name the first field that is wrong, and all that it could have been."""
    assert isinstance(error, RequestValidationError)
    first, *others = error.errors()
    if first["type"] == "json_invalid":
        return refused(BadRequest("the body is not valid JSON", code="invalid_json"))
    whole = ".".join(map(str, first["loc"][1:]))[:200] or None
    if first["type"] == "extra_forbidden":
        return refused(BadRequest(f"{whole} is not a field that is known here", param=whole, code="unknown_field"))
    same = [other for other in others if other["loc"][1:2] == first["loc"][1:2]]
    param = str(first["loc"][1]) if same else whole
    reasons = "; or ".join(dict.fromkeys(one["msg"] for one in (first, *same)))
    return refused(BadRequest(f"{param or 'the body'}: {reasons}"[:400], param=param))


async def _on_http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    refusal = NotFound(error.detail) if error.status_code == 404 else BadRequest(error.detail)
    refusal.status = error.status_code
    return refused(refusal)


async def _on_defect(_: Request, error: Exception) -> Response:
    log.error("a request failed", exc_info=error)
    return refused(Broken("the server failed; its log says how"))
