"""Answers in OpenAI's shapes; what OpenAI does not have is added beside it."""

import math
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence

from soothsay.completion import Completion, Piece, TokenLogprob
from soothsay.server.bodies import Chance, Json
from soothsay.server.mailbox import Letter
from soothsay.text.tokenizer import Tokenizer

FINISH = {"end": "stop", "stop": "stop", "length": "length", "context": "length"}
"""OpenAI knows no more reasons than these, and tool_calls."""


def head(kind: str, model: str, fingerprint: str, seed: int) -> Json:
    """Give what every object of one reply begins with; `seed` is the one that was used."""
    return {
        "id": f"{kind}-{secrets.token_hex(12)}",
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": fingerprint,
        "seed": seed,
    }


def note(body: Chance, contexts: Sequence[Sequence[int]]) -> Json:
    """Give what the log says of a request beside its path and status."""
    user = {"user": body.user} if body.user is not None else {}
    return user | {"stream": bool(body.stream), "n": body.n or 1, "prompt_tokens": sum(map(len, contexts))}


def by_answer(letters: Sequence[Letter]) -> Iterator[tuple[int, list[Piece]]]:
    """Sort letters by the answer that they belong to."""
    for answer in sorted({letter.answer for letter in letters}):
        yield answer, [letter.piece for letter in letters if letter.answer == answer]


def shown_logprobs(completion: Completion) -> Sequence[TokenLogprob]:
    """Give the log-probabilities of an answer's tokens, without the end-of-text token, which is no part of it."""
    entries = completion.logprobs or ()
    return entries[:-1] if completion.finish_reason == "end" else entries


def shown_piece_logprobs(pieces: Sequence[Piece]) -> list[TokenLogprob]:
    """Give those of pieces that came together."""
    ended = pieces[-1].completion is not None and pieces[-1].completion.finish_reason == "end"
    return [piece.logprob for piece in (pieces[:-1] if ended else pieces) if piece.logprob is not None]


def _finite(logprob: float) -> float:
    """JSON has no minus infinity; OpenAI writes this instead."""
    return max(logprob, -9999.0)


def usage(completions: Sequence[Completion], n: int) -> Json:
    """Give what the answers cost; each prompt has `n` of them and counts once."""
    prompt = sum(one.stats.prompt_tokens for one in completions[::n])
    emitted = sum(one.stats.tokens for one in completions)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": emitted,
        "total_tokens": prompt + emitted,
        "prompt_tokens_details": {"cached_tokens": sum(one.stats.cached_tokens for one in completions[::n])},
        "speculation": speculation(completions),
    }


def speculation(completions: Sequence[Completion]) -> Json:
    """Give what became of the drafts of all answers together."""
    stats = [one.stats for one in completions]
    steps, drafted, accepted = (sum(getattr(one, name) for one in stats) for name in ("steps", "drafted", "accepted"))
    return {
        "steps": steps,
        "drafted": drafted,
        "accepted": accepted,
        "acceptance_rate": accepted / drafted if drafted else None,
        "tokens_per_step": sum(one.tokens for one in stats) / steps if steps else None,
    }


def spelled(tokenizer: Tokenizer, token: int) -> str:
    """Give a token's text; half a character becomes U+FFFD, a control token its name."""
    control = token < tokenizer.vocab_size and tokenizer.is_control(token)
    return tokenizer.spelling(token) if control else tokenizer.decode([token])


def chat_logprobs(tokenizer: Tokenizer, entries: Iterable[TokenLogprob]) -> Json:
    """Give a chat's log-probabilities, one entry a token."""

    def one(token: int, logprob: float) -> Json:
        return {
            "token": spelled(tokenizer, token),
            "logprob": _finite(logprob),
            "bytes": list(tokenizer.bytes_of(token)),
            "token_id": token,
        }

    return {
        "content": [
            one(entry.token, entry.logprob) | {"top_logprobs": [one(*other) for other in entry.top]}
            for entry in entries
        ],
        "refusal": None,
    }


def origins(tokenizer: Tokenizer, pieces: Iterable[Piece]) -> list[Json]:
    """Give where tokens came from, with the target's probability, the drafter's, and what else was likely."""
    return [_origin(tokenizer, piece) for piece in pieces]


def _origin(tokenizer: Tokenizer, piece: Piece) -> Json:
    origin, entry = piece.origin, piece.logprob
    return {
        "token_id": piece.token,
        "text": piece.text,
        "from": (origin.drafter or origin.own) if origin is not None else None,
        "p": math.exp(entry.logprob) if entry is not None else None,
        "q": origin.q if origin is not None else None,
        "alternatives": [
            {"token_id": token, "text": spelled(tokenizer, token), "p": math.exp(logprob)}
            for token, logprob in (entry.top if entry is not None else ())
        ],
    }


def text_logprobs(tokenizer: Tokenizer, entries: Sequence[TokenLogprob], offset: int) -> Json:
    """Give a text completion's log-probabilities, lists of one entry a token; `offset` is where the text starts."""
    texts = [spelled(tokenizer, entry.token) for entry in entries]
    offsets = [offset]
    for text in texts[:-1]:
        offsets.append(offsets[-1] + len(text))
    return {
        "tokens": texts,
        "token_logprobs": [_finite(entry.logprob) for entry in entries],
        "top_logprobs": [
            {spelled(tokenizer, other): _finite(logprob) for other, logprob in entry.top} for entry in entries
        ],
        "text_offset": offsets[: len(texts)],
    }
