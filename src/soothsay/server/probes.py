"""What is asked about the server itself: its model, its health, its figures."""

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from soothsay.server.bodies import Json
from soothsay.server.refusals import Broken, Leaving
from soothsay.server.service import Service


def routes(service: Service) -> APIRouter:
    """Give the endpoints."""
    router = APIRouter()

    def model() -> Json:
        return {
            "id": service.name,
            "object": "model",
            "created": service.started,
            "owned_by": "soothsay",
            "context_length": service.engine.max_length,
        }

    @router.get("/v1/models", summary="The served model, in a list")
    async def models() -> Json:
        return {"object": "list", "data": [model()]}

    @router.get("/v1/models/{name:path}", summary="The served model")
    async def named(name: str) -> Json:
        service.check_model(name)
        return model()

    @router.get("/health", summary="Whether the engine runs")
    async def health() -> Json:
        if not service.runner.alive:
            raise Broken("the engine has stopped")
        return {"status": "ok"}

    @router.get("/ready", summary="Whether new requests are taken")
    async def ready() -> Json:
        if not service.runner.accepting:
            raise Leaving
        return {"status": "ready"}

    @router.get("/metrics", summary="Figures for Prometheus", response_class=Response)
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return router
