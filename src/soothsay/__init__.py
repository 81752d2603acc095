"""soothsay makes large language models answer sooner, without changing what they say.

from soothsay import Engine, Sampling

engine = Engine("smollm2-135m")
print(engine.generate("Why is the sky blue?", Sampling(max_tokens=64)).text)
"""

import importlib
import typing

from soothsay.completion import Completion, Piece, Stats, TokenLogprob
from soothsay.errors import (
    ContextFull,
    DraftMismatch,
    EmptyPrompt,
    FileCorrupt,
    ModelError,
    ModelNotFound,
    OptionError,
    ProcessorError,
    PromptError,
    PromptTooLong,
    SoothsayError,
    TemplateError,
    TraceError,
    Unsupported,
)

_LATER = {
    "Capacity": "soothsay.core",
    "Engine": "soothsay.engine",
    "Grammar": "soothsay.sampling",
    "Sampling": "soothsay.sampling",
    "Tracer": "soothsay.trace.writer",
}

if typing.TYPE_CHECKING:
    from soothsay.core import Capacity
    from soothsay.engine import Engine
    from soothsay.sampling import Grammar, Sampling
    from soothsay.trace.writer import Tracer
else:

    def __getattr__(name: str) -> typing.Any:
        """Load what is heavy when it is first asked for: the command line shows its help without it."""
        if name not in _LATER:
            raise AttributeError(f"module 'soothsay' has no attribute {name!r}")
        return globals().setdefault(name, getattr(importlib.import_module(_LATER[name]), name))


__all__ = [
    "Capacity",
    "Completion",
    "ContextFull",
    "DraftMismatch",
    "EmptyPrompt",
    "Engine",
    "FileCorrupt",
    "Grammar",
    "ModelError",
    "ModelNotFound",
    "OptionError",
    "Piece",
    "ProcessorError",
    "PromptError",
    "PromptTooLong",
    "Sampling",
    "SoothsayError",
    "Stats",
    "TemplateError",
    "TokenLogprob",
    "TraceError",
    "Tracer",
    "Unsupported",
]
