"""From a GGUF file to the description of its decoder."""

from soothsay.errors import FileCorrupt, Unsupported
from soothsay.model.architectures.decoder import Decoder
from soothsay.model.architectures.family import decoder
from soothsay.model.architectures.llama import LLAMA
from soothsay.model.architectures.parts import Parts
from soothsay.model.architectures.qwen2 import QWEN2
from soothsay.model.architectures.qwen3 import QWEN3
from soothsay.model.gguf import GGUFFile, quoted

FAMILIES = {family.architecture: family for family in (LLAMA, QWEN2, QWEN3)}


def describe(file: GGUFFile) -> Decoder:
    """Describe the decoder that a file holds, every metadata value and tensor shape checked.

    Raises FileCorrupt for what is missing or does not fit together, Unsupported for what soothsay cannot run.
    """
    name = file.metadata.get("general.architecture")
    if not isinstance(name, str):
        raise FileCorrupt(
            f"{file.path}: general.architecture is {quoted(name)}; the name of an architecture was expected"
        )
    if name not in FAMILIES:
        raise Unsupported(f"{file.path}: the architecture {quoted(name)} is not supported; {', '.join(FAMILIES)} are")
    return decoder(FAMILIES[name], Parts(file, name))
