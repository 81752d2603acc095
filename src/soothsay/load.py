"""A name becomes something that runs: the file's model, its tokenizer, its chat template."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

from soothsay.errors import DraftMismatch, OptionError, TemplateError
from soothsay.hub import cache_folder, resolve
from soothsay.model.architectures import describe
from soothsay.model.architectures.decoder import Decoder
from soothsay.model.base import Model
from soothsay.model.gguf import GGUFFile
from soothsay.model.requantise import Bits, bits_beside
from soothsay.text.template import ChatTemplate
from soothsay.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model with its words, and the file that it came from; `template` is None where the file has none."""

    model: Model
    tokenizer: Tokenizer
    template: ChatTemplate | None
    path: Path


class Loader:
    """Loads a target and its draft model onto one team of threads."""

    def __init__(self, threads: int | None = None) -> None:
        self._build, self._lighten = _native(threads)

    def target(self, name: str | Path) -> Loaded:
        """Load a model by path or alias; ModelError for a file that cannot be used."""
        file = GGUFFile.open(resolve(name))
        model = self._build(describe(file), None)
        file.leave_memory()
        return Loaded(model, Tokenizer.from_metadata(file.metadata), _template(file), file.path)

    def draft_model(self, name: str | Path, target: Loaded, *, requantise: bool = True) -> Model:
        """Load a draft model for a target; DraftMismatch, naming the first difference, for another vocabulary.

        `requantise` keeps its matrices in 4 bits, or in 3 where that pays, which changes speed, never words. The name
        "self" is the target's own weights in 4 bits, on the target's own cache; OptionError where they have no more
        than that already.
        """
        file = GGUFFile.open(target.path if name == "self" else resolve(name))
        if difference := target.tokenizer.first_difference(Tokenizer.from_metadata(file.metadata)):
            raise DraftMismatch(f"{name} cannot draft here, its tokens must be the target's: {difference}")
        decoder = describe(file)
        bits = 4 if name == "self" else bits_beside(decoder, target.path.stat().st_size)
        lighter = self._lighten(decoder, file.path, bits) if requantise else decoder
        if name == "self" and lighter is decoder:
            raise OptionError("draft is 'self', but the model's own weights cannot be made lighter")
        model = self._build(lighter, target.model if name == "self" else None)
        file.leave_memory()
        return model


Build: TypeAlias = Callable[[Decoder, Model | None], Model]
"""Makes a model of a decoder, sharing the cache of another model if one is given."""


def _native(threads: int | None) -> tuple[Build, Callable[[Decoder, Path, Bits], Decoder]]:
    """Give the compiled runtime's ways to build a model and to requantise one, or the reference where it is missing."""
    if find_spec("soothsay._native") is None:
        return _reference(threads), lambda decoder, *_: decoder
    from soothsay.model.native import NativeModel, runtime
    from soothsay.model.requantise import requantise

    team = runtime(threads)
    return (
        lambda decoder, beside: NativeModel(decoder, team, beside if isinstance(beside, NativeModel) else None),
        lambda decoder, source, bits: requantise(decoder, team, source, cache_folder() / "requantised", bits),
    )


def _reference(threads: int | None) -> Build:
    from soothsay.model.reference import ReferenceModel

    if threads is not None:
        raise OptionError(f"threads is {threads}; without the compiled runtime there is no choice of threads")
    warnings.warn("soothsay's compiled runtime is missing: running the NumPy reference, which is slow", stacklevel=6)
    return lambda decoder, beside: ReferenceModel(decoder)


def _template(file: GGUFFile) -> ChatTemplate | None:
    try:
        return ChatTemplate.from_metadata(file.metadata)
    except TemplateError:
        return None
