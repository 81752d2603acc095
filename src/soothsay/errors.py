"""Everything that soothsay raises on purpose.

SoothsayError
├── OptionError            an option that is unknown, out of range or contradicts another
├── PromptError            a prompt that cannot be answered
│   ├── EmptyPrompt
│   └── PromptTooLong
├── ProcessorError         a logits processor that fails or gives no logits
├── ContextFull            the context length is reached and the request cannot go on
├── ModelError             a model that cannot be used
│   ├── ModelNotFound      no source has it
│   ├── FileCorrupt        truncated, malformed or failing its digest
│   ├── Unsupported        a well-formed file with something in it that soothsay cannot run
│   └── DraftMismatch      a draft model whose tokens are not the target's
├── TemplateError          a chat template that fails or misbehaves
└── TraceError             a trace that cannot be read, or that ends too soon

Each message is one line: what was wrong, then what is legal.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from soothsay.completion import Completion


class SoothsayError(Exception):
    """Base of every error that soothsay raises on purpose; `str()` is one line fit for a user."""


class OptionError(SoothsayError, ValueError):
    """An option is unknown, out of its legal range, or contradicts another."""


class PromptError(SoothsayError, ValueError):
    """A prompt cannot be answered."""


class EmptyPrompt(PromptError):
    """A prompt holds no token."""


class PromptTooLong(PromptError):
    """A prompt leaves no room for one token in the model's context."""


class ProcessorError(SoothsayError):
    """A custom logits processor raised an error, or gave something other than logits."""


class ContextFull(SoothsayError):
    """A sequence would grow past the model's context length; `completions` holds the answers as far as they got."""

    def __init__(self, message: str, completions: tuple["Completion", ...] = ()) -> None:
        super().__init__(message)
        self.completions = completions


class ModelError(SoothsayError):
    """A model cannot be used."""


class ModelNotFound(ModelError):
    """No source has the model; the message names each source and why it failed."""


class FileCorrupt(ModelError):
    """A file is truncated, malformed, or does not match its digest."""


class Unsupported(ModelError):
    """A well-formed model needs something that soothsay does not have."""


class DraftMismatch(ModelError):
    """A draft model does not share the target's tokens."""


class TemplateError(SoothsayError):
    """A chat template fails to compile or to render."""


class TraceError(SoothsayError):
    """A trace is none, or could not be written to its end."""
