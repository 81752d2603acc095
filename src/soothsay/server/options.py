"""From the fields of a request to `Sampling`; what cannot be done is refused by name, never ignored."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from soothsay.errors import OptionError
from soothsay.sampling import Sampling
from soothsay.schedule.wish import Wish
from soothsay.server.bodies import Chance, ChatBody, CompletionBody
from soothsay.server.formats import grammar
from soothsay.server.refusals import BadRequest

SEED_BITS = 53
"""Bits of a random seed: every reader of JSON keeps so many."""

SHOWN_ALTERNATIVES = 5
"""Likeliest tokens that go with each where a request asks for origins."""

TEXT_TOKENS = 16
"""OpenAI's length of a text completion that does not say how long it may be."""

PASSED_ON = (
    *("temperature", "top_p", "top_k", "min_p", "repetition_penalty"),
    *("frequency_penalty", "presence_penalty", "min_tokens", "ignore_eos"),
)
"""Fields that Sampling has under the same name."""

TOKEN_IDS = {"stop_token_ids": "stop_ids", "banned_token_ids": "banned_tokens", "allowed_token_ids": "allowed_tokens"}
"""Lists of token ids, and what Sampling calls them."""


def chat_sampling(body: ChatBody) -> dict[str, Any]:
    """Give the options of a chat; without a length it goes on as far as the context holds."""
    if None not in (body.max_tokens, body.max_completion_tokens) and body.max_tokens != body.max_completion_tokens:
        raise BadRequest(
            "max_tokens and max_completion_tokens are two names of one thing; give one", param="max_tokens"
        )
    if body.top_logprobs is not None and not body.logprobs:
        raise BadRequest("top_logprobs is given without logprobs: true", param="top_logprobs")
    options = _options(body, body.max_tokens or body.max_completion_tokens)
    if body.logprobs:
        return options | {"logprobs": body.top_logprobs or 0}
    if not body.origins:
        return options
    of = "sampler" if options["temperature"] > 0 else "model"  # at 0 the sampler is certain of everything
    return options | {"logprobs": SHOWN_ALTERNATIVES, "logprobs_of": of}


def text_sampling(body: CompletionBody) -> dict[str, Any]:
    """Give the options of a text completion, which is short unless it says otherwise."""
    options = _options(body, body.max_tokens or TEXT_TOKENS)
    return options | ({"logprobs": body.logprobs} if body.logprobs is not None else {})


def sampling(options: Mapping[str, Any], room: int) -> Sampling:
    """Make the Sampling of a prompt that leaves `room` tokens; a wrong value is a BadRequest that names its field."""
    known = {field.name for field in fields(Sampling)}
    if strange := [name for name in options if name not in known]:
        raise BadRequest(f"{strange[0]} is not supported", param=strange[0], code="unsupported")
    try:
        return replace(Sampling(max_tokens=room), **options)
    except OptionError as error:
        raise BadRequest(str(error), param=str(error).split()[0]) from None


def vet(body: Chance, check: Callable[[], None]) -> None:
    """Check what only the model can tell; BadRequest names the field."""
    try:
        check()
    except OptionError as error:
        theirs = {ours: name for name, ours in TOKEN_IDS.items()}
        ours = str(error).split()[0]
        field = theirs.get(ours, ours) if ours in (*theirs, "logit_bias") else None
        asked = "response_format" if body.response_format is not None else "tools"
        raise BadRequest(str(error).replace(ours, field) if field else str(error), param=field or asked) from None


def wish(body: Chance, drafters: Sequence[str]) -> Wish:
    """Give what the request asks of its own drafts; BadRequest for a drafter that is not there."""
    draft, gamma = body.draft or "auto", None if body.gamma == "auto" else body.gamma
    if draft not in ("auto", "none", *drafters):
        legal = ", ".join(("auto", "none", *drafters))
        raise BadRequest(f"draft is {draft!r}; on this server it must be one of: {legal}", param="draft")
    if gamma and (draft == "none" or not drafters):
        nobody = "draft is 'none'" if draft == "none" else "this server has no drafter"
        raise BadRequest(f"gamma is {gamma}, but {nobody}; legal: 0 and 'auto'", param="gamma")
    return Wish(None if draft == "auto" else frozenset((draft,)).intersection(drafters), gamma)


def _options(body: Chance, max_tokens: int | None) -> dict[str, Any]:
    if body.stream_options is not None and not body.stream:
        raise BadRequest("stream_options is given without stream: true", param="stream_options")
    given = {name: value for name in PASSED_ON if (value := getattr(body, name)) is not None}
    ids = {ours: tuple(value) for name, ours in TOKEN_IDS.items() if (value := getattr(body, name)) is not None}
    options = {"temperature": 1.0} | given | ids
    options["seed"] = secrets.randbits(SEED_BITS) if body.seed is None else body.seed
    if body.stop:
        options["stop"] = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop)
    if body.logit_bias:
        options["logit_bias"] = _biases(body.logit_bias)
    if max_tokens is not None:
        options["max_tokens"] = max_tokens
    if (wanted := grammar(body)) is not None:
        options["grammar"] = wanted
    return options


def _biases(biases: Mapping[str, float]) -> dict[int, float]:
    if wrong := [token for token in biases if not (token.isascii() and token.isdigit() and len(token) < 10)]:
        raise BadRequest(f"logit_bias has the key {wrong[0][:40]!r}; keys are token ids", param="logit_bias")
    return {int(token): bias for token, bias in biases.items()}
