"""POST /v1/completions: texts or token ids, continued as they are."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse

from soothsay.completion import Completion, FinishReason, TokenLogprob
from soothsay.server import shapes
from soothsay.server.bodies import CompletionBody, Json
from soothsay.server.events import EventStream
from soothsay.server.options import text_sampling
from soothsay.server.service import Answers, Service, unless_gone


def routes(service: Service) -> APIRouter:
    """Give the endpoint."""
    router = APIRouter()

    @router.post("/v1/completions", summary="Continue a text", response_model=None)
    async def complete(body: CompletionBody, http: Request) -> Response:
        service.check_model(body.model)
        options = text_sampling(body)
        prompts = prompts_of(body)
        contexts = [await run_in_threadpool(service.encode, prompt, "prompt") for prompt in prompts]
        http.state.note = shapes.note(body, contexts)
        answers = await service.ask(body, contexts, options)
        reply = Reply(service, body, options)
        if body.stream:
            return EventStream(reply.chunks(answers), answers)
        with answers:
            return JSONResponse(reply.whole(await unless_gone(http, answers)))

    return router


def prompts_of(body: CompletionBody) -> Sequence[str | list[int]]:
    """Tell one prompt from many: a text, or a list that starts with a token id."""
    if isinstance(body.prompt, str) or isinstance(body.prompt[0], int):
        return [body.prompt]
    return body.prompt


class Reply:
    """How one request's answers are told: `n` to each prompt."""

    def __init__(self, service: Service, body: CompletionBody, options: Mapping[str, Any]) -> None:
        self._tokenizer = service.loaded.tokenizer
        self._logprobs = body.logprobs is not None
        self._usage = body.stream_options is not None and bool(body.stream_options.include_usage)
        self._n = body.n or 1
        self._head = shapes.head("cmpl", service.name, service.fingerprint, options["seed"])

    def whole(self, completions: Sequence[Completion]) -> Json:
        """Give the answers at once."""
        choices = [
            self._choice(index, one.text, shapes.shown_logprobs(one), 0, one.finish_reason)
            for index, one in enumerate(completions)
        ]
        return self._object(choices) | {"usage": shapes.usage(completions, self._n)}

    async def chunks(self, answers: Answers) -> AsyncIterator[Json]:
        """Give the answers as they grow: what arrives together of one answer is told together."""
        offsets = [0] * answers.count
        completions: dict[int, Completion] = {}
        while len(completions) < answers.count:
            for index, pieces in shapes.by_answer(await answers.take()):
                text, completion = "".join(piece.text for piece in pieces), pieces[-1].completion
                reason = completion.finish_reason if completion is not None else None
                logprobs = shapes.shown_piece_logprobs(pieces)
                if text or logprobs or reason:
                    yield self._chunk(self._choice(index, text, logprobs, offsets[index], reason))
                offsets[index] += len(text)
                if completion is not None:
                    completions[index] = completion
        if self._usage:
            usage = shapes.usage([completions[index] for index in range(answers.count)], self._n)
            yield self._chunk() | {"usage": usage}

    def _choice(
        self, index: int, text: str, logprobs: Sequence[TokenLogprob], offset: int, reason: FinishReason | None
    ) -> Json:
        return {
            "index": index,
            "text": text,
            "finish_reason": shapes.FINISH[reason] if reason is not None else None,
            "logprobs": shapes.text_logprobs(self._tokenizer, logprobs, offset) if self._logprobs else None,
        }

    def _chunk(self, *choices: Json) -> Json:
        return self._object(choices) | ({"usage": None} if self._usage else {})

    def _object(self, choices: Sequence[Json]) -> Json:
        return self._head | {"object": "text_completion", "choices": list(choices)}
