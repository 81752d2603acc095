"""Server-sent events: an answer as it grows."""

import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from soothsay.errors import SoothsayError
from soothsay.server.refusals import Broken, Refusal
from soothsay.server.service import Answers


class EventStream(StreamingResponse):
    """Sends one event for each chunk and [DONE] at the end; the answers are closed however it ends."""

    media_type = "text/event-stream"

    def __init__(self, chunks: AsyncIterator[dict[str, Any]], answers: Answers) -> None:
        super().__init__(_events(chunks), headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._answers:
            await super().__call__(scope, receive, send)


async def _events(chunks: AsyncIterator[dict[str, Any]]) -> AsyncIterator[str]:
    try:
        async for chunk in chunks:
            yield _event(json.dumps(chunk, ensure_ascii=False))
    except Refusal as error:
        yield _event(json.dumps(error.body()))
    except SoothsayError as error:
        yield _event(json.dumps(Broken(str(error)).body()))
    else:
        yield _event("[DONE]")


def _event(data: str) -> str:
    return f"data: {data}\n\n"
