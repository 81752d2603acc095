"""The page at the root: plain files of this package, which load nothing from elsewhere."""

from pathlib import Path

from fastapi import APIRouter
from starlette.responses import FileResponse, Response

from soothsay.server.bodies import Json
from soothsay.server.refusals import NotFound
from soothsay.server.service import Service

FOLDER = Path(__file__).with_name("page")
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
FILES = {file.name: KINDS[file.suffix] for file in sorted(FOLDER.iterdir()) if file.suffix in KINDS}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
COST_ROWS = 16


def routes(service: Service) -> APIRouter:
    """Give the page, its files, and the figures that it shows."""
    router = APIRouter()

    @router.get("/", include_in_schema=False)
    async def front() -> Response:
        return _file("index.html")

    @router.get("/page/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        return _file(name)

    @router.get("/figures", summary="How it goes at the moment, for the page")
    async def figures() -> Json:
        runner, engine = service.runner, service.engine
        costs = [engine.pass_seconds(rows, 1) for rows in range(1, COST_ROWS + 1)]
        return service.recent.figures() | {
            "model": service.name,
            "context": engine.max_length,
            "drafters": engine.drafters,
            "speedup": service.metrics.speedup,
            "running": runner.running,
            "waiting": runner.waiting,
            "cache_tokens": runner.held_tokens,
            "costs": None if None in costs else costs,
        }

    return router


def _file(name: str) -> Response:
    if name not in FILES:
        raise NotFound(f"there is no {name[:80]!r} here")
    return FileResponse(FOLDER / name, media_type=FILES[name], headers=HEADERS)
