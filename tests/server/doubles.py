"""A served model that says what it is told to, and a server around it in a thread."""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers.pre_tokenizers import ByteLevel

from soothsay.assemble import Parts
from soothsay.core import Capacity
from soothsay.draft.ngram import NgramDrafter
from soothsay.load import Loaded
from soothsay.schedule.policy import FixedGamma
from soothsay.server.run import listen, server, service_of
from soothsay.server.service import Limits, Service
from soothsay.text.template import ChatTemplate
from soothsay.text.tokenizer import Tokenizer
from tests.engines import SpyModel

SIGN = "\x1e"
"""Ends a prompt: after it the parrot speaks."""

END = 256

TEMPLATE = (
    "{% for tool in tools or [] %}[{{ tool.function.name }}]{% endfor %}"
    "{% for message in messages %}{{ message.role }}: {{ message.content }}"
    "{% for call in message.tool_calls or [] %}<{{ call.function.arguments.city }}>{% endfor %};{% endfor %}" + SIGN
)


def words() -> Tokenizer:
    """One token for each byte, and <|im_end|>."""
    plain = sorted(ByteLevel.alphabet())
    return Tokenizer([*plain, "<|im_end|>"], [1] * 256 + [3], [], pre="smollm", end_ids=[256])


class Parrot(SpyModel):
    """Says one text after the last SIGN of its prompt (or from its first token on), then <|im_end|>."""

    def __init__(self, text: str, max_length: int = 256) -> None:
        super().__init__(max_length=max_length)
        self.vocab_size = words().vocab_size
        self._sign = words().encode(SIGN, special=False)[0]
        self._text = [*words().encode(text, special=False), END]

    def logits(self, prefix: Sequence[int]) -> NDArray[np.float32]:
        said = prefix[::-1].index(self._sign) if self._sign in prefix else len(prefix)
        row = np.zeros(self.vocab_size, np.float32)
        row[self._text[said] if said < len(self._text) else END] = 50
        return row


def parts(model: SpyModel, *, gamma: int = 0, template: str | None = TEMPLATE) -> Parts:
    """What an engine is made of, around a model that speaks in bytes; n-grams draft where gamma is more than 0."""
    loaded = Loaded(model, words(), ChatTemplate(template) if template is not None else None, Path("parrot.gguf"))
    drafters = {"ngram": NgramDrafter(min_match=1)} if gamma else {}
    return Parts(model, loaded, drafters, FixedGamma("ngram" if gamma else None, gamma))


def limits_of(max_batch: int = 8, **limits: Any) -> Limits:
    """Limits of a server whose engine runs so many answers at once."""
    return Limits(Capacity(max_batch), **limits)


def parrot_service(text: str, **limits: Any) -> Service:
    """A service of a parrot."""
    return service_of(parts(Parrot(text)), "parrot", limits=limits_of(**limits))


@contextmanager
def serving(service: Service, keys: Sequence[str] = ()) -> Iterator[str]:
    """Serve on a free port of loopback, in a thread, and give the address."""
    listener: socket.socket = listen("127.0.0.1", 0)
    there, address = threading.Event(), []

    def ready(found: str) -> None:
        address.append(found)
        there.set()

    running = server(service, listener, keys, ready)
    thread = threading.Thread(target=lambda: running.run([listener]))
    thread.start()
    try:
        assert there.wait(10)
        yield address[0]
    finally:
        running.should_exit = True
        thread.join()
