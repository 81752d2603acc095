"""POST /v1/chat/completions: a chat, answered whole or as it grows."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse

from soothsay.completion import Completion, Piece, TokenLogprob
from soothsay.server import shapes
from soothsay.server.bodies import ChatBody, Json
from soothsay.server.events import EventStream
from soothsay.server.options import chat_sampling
from soothsay.server.rendering import check, offers_tools, rendered
from soothsay.server.service import Answers, Service, unless_gone
from soothsay.server.toolcalls import ToolCall, ToolCallReader


def routes(service: Service) -> APIRouter:
    """Give the endpoint."""
    router = APIRouter()

    @router.post("/v1/chat/completions", summary="Answer a chat", response_model=None)
    async def chat(body: ChatBody, http: Request) -> Response:
        service.check_model(body.model)
        check(body, service.loaded)
        options = chat_sampling(body)
        context = await run_in_threadpool(lambda: service.encode(rendered(body, service.loaded), "messages"))
        http.state.note = shapes.note(body, [context])
        answers = await service.ask(body, [context], options)
        reply = Reply(service, body, options)
        if body.stream:
            return EventStream(reply.chunks(answers), answers)
        with answers:
            return JSONResponse(reply.whole(await unless_gone(http, answers)))

    return router


class Reply:
    """How the answers to one request are told."""

    def __init__(self, service: Service, body: ChatBody, options: Mapping[str, Any]) -> None:
        self._tokenizer = service.loaded.tokenizer
        self._logprobs = bool(body.logprobs)
        self._usage = body.stream_options is not None and bool(body.stream_options.include_usage)
        self._tools = offers_tools(body)
        self._origins = bool(body.origins)
        self._n = body.n or 1
        self._head = shapes.head("chatcmpl", service.name, service.fingerprint, options["seed"])

    def whole(self, completions: Sequence[Completion]) -> Json:
        """Give the answers at once."""
        choices = [self._choice(index, completion) for index, completion in enumerate(completions)]
        usage = shapes.usage(completions, self._n)
        return self._head | {"object": "chat.completion", "choices": choices, "usage": usage}

    async def chunks(self, answers: Answers) -> AsyncIterator[Json]:
        """Give the answers as they grow: what arrives together of one answer is told together."""
        growing = [_Growing(self, index) for index in range(self._n)]
        completions: dict[int, Completion] = {}
        for one in growing:
            yield self._chunk(one.delta({"role": "assistant", "content": ""}))
        while len(completions) < self._n:
            for index, pieces in shapes.by_answer(await answers.take()):
                for choice in growing[index].deltas(pieces):
                    yield self._chunk(choice)
                if pieces[-1].completion is not None:
                    completions[index] = pieces[-1].completion
        if self._usage:
            yield self._chunk() | {"usage": shapes.usage([completions[index] for index in range(self._n)], self._n)}

    def reader(self) -> ToolCallReader | None:
        """Give what tells calls from text, where tools were offered."""
        return ToolCallReader() if self._tools else None

    def origins(self, pieces: Sequence[Piece]) -> Json:
        """Give where the tokens came from, where that was asked for."""
        return {"tokens": shapes.origins(self._tokenizer, pieces)} if self._origins else {}

    def logprobs(self, entries: Sequence[TokenLogprob]) -> Json | None:
        """Give the log-probabilities, where they were asked for."""
        return shapes.chat_logprobs(self._tokenizer, entries) if self._logprobs else None

    def _choice(self, index: int, completion: Completion) -> Json:
        text, calls = _read_whole(completion.text, self.reader())
        message: Json = {"role": "assistant", "content": text if text or not calls else None, "refusal": None}
        if calls:
            message["tool_calls"] = [_call(call) for call in calls]
        return {
            "index": index,
            "message": message,
            "finish_reason": "tool_calls" if calls else shapes.FINISH[completion.finish_reason],
            "logprobs": self.logprobs(shapes.shown_logprobs(completion)),
        }

    def _chunk(self, *choices: Json) -> Json:
        usage = {"usage": None} if self._usage else {}
        return self._head | {"object": "chat.completion.chunk", "choices": list(choices)} | usage


class _Growing:
    """One answer as it grows."""

    def __init__(self, reply: Reply, index: int) -> None:
        self._reply = reply
        self._index = index
        self._reader = reply.reader()
        self._calls = 0

    def deltas(self, pieces: Sequence[Piece]) -> Iterator[Json]:
        """Give what the pieces bring: text, calls, and at the end the reason why."""
        text, calls = self._read("".join(piece.text for piece in pieces), ended=pieces[-1].completion is not None)
        logprobs = self._reply.logprobs(shapes.shown_piece_logprobs(pieces))
        origins = self._reply.origins(pieces)
        if text or origins or (logprobs and logprobs["content"]):
            yield self.delta({"content": text}, logprobs) | origins
        for call in calls:
            yield self.delta({"tool_calls": [{"index": self._calls} | _call(call)]})
            self._calls += 1
        if (completion := pieces[-1].completion) is not None:
            reason = "tool_calls" if self._calls else shapes.FINISH[completion.finish_reason]
            yield self.delta({}) | {"finish_reason": reason}

    def delta(self, delta: Json, logprobs: Json | None = None) -> Json:
        return {"index": self._index, "delta": delta, "finish_reason": None, "logprobs": logprobs}

    def _read(self, text: str, *, ended: bool) -> tuple[str, tuple[ToolCall, ...]]:
        if self._reader is None:
            return text, ()
        read = self._reader.push(text)
        return read.text + (self._reader.flush() if ended else ""), read.calls


def _read_whole(text: str, reader: ToolCallReader | None) -> tuple[str, tuple[ToolCall, ...]]:
    if reader is None:
        return text, ()
    read = reader.push(text)
    return read.text + reader.flush(), read.calls


def _call(call: ToolCall) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
