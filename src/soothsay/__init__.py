"""soothsay makes large language models answer sooner, without changing what they say.

from soothsay import Engine, Sampling

engine = Engine("smollm2-135m", draft="ngram")
print(engine.generate("Why is the sky blue?", Sampling(max_tokens=64)).text)
"""

from soothsay.completion import Completion, Piece, Stats
from soothsay.engine import Engine
from soothsay.errors import (
    ContextFull,
    DraftMismatch,
    EmptyPrompt,
    FileCorrupt,
    ModelError,
    ModelNotFound,
    OptionError,
    PromptError,
    PromptTooLong,
    SoothsayError,
    TemplateError,
    Unsupported,
)
from soothsay.sampling import Sampling

__all__ = [
    "Completion",
    "ContextFull",
    "DraftMismatch",
    "EmptyPrompt",
    "Engine",
    "FileCorrupt",
    "ModelError",
    "ModelNotFound",
    "OptionError",
    "Piece",
    "PromptError",
    "PromptTooLong",
    "Sampling",
    "SoothsayError",
    "Stats",
    "TemplateError",
    "Unsupported",
]
