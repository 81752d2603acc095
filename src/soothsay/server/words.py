"""POST /tokenize and /detokenize, in llama-server's form."""

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool

from soothsay.server.bodies import DetokenizeBody, Json, TokenizeBody
from soothsay.server.refusals import BadRequest, blamed
from soothsay.server.service import Service


def routes(service: Service) -> APIRouter:
    """Give the endpoints."""
    router = APIRouter()
    tokenizer = service.loaded.tokenizer

    @router.post("/tokenize", summary="Turn a text into token ids")
    async def tokenize(body: TokenizeBody) -> Json:
        def encode() -> list[int]:
            return blamed("content", lambda: tokenizer.encode(body.content, special=body.parse_special))

        tokens = await run_in_threadpool(encode)
        if not body.with_pieces:
            return {"tokens": tokens, "count": len(tokens)}
        return {"tokens": [{"id": token, "piece": tokenizer.decode([token])} for token in tokens], "count": len(tokens)}

    @router.post("/detokenize", summary="Turn token ids into a text")
    async def detokenize(body: DetokenizeBody) -> Json:
        if wrong := [token for token in body.tokens if token >= tokenizer.vocab_size]:
            message = f"tokens has {wrong[0]}; token ids go from 0 to {tokenizer.vocab_size - 1}"
            raise BadRequest(message, param="tokens")
        return {"content": await run_in_threadpool(tokenizer.decode, body.tokens)}

    return router
