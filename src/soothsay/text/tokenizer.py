"""Text to token ids and back, by the vocabulary in a GGUF file."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from reprlib import repr as quoted
from typing import Any, Protocol

import tokenizers
from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers
from tokenizers.models import BPE

from soothsay.errors import FileCorrupt, PromptError, Unsupported


class Kind(IntEnum):
    """What the file says a token is (llama.cpp's `llama_token_type`)."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_END_TOKENS = ("<|im_end|>", "<|endoftext|>")


def _smollm(tokenizer: tokenizers.Tokenizer) -> None:
    """Split as SmolLM and SmolLM2 do: each digit alone, then GPT-2's own split."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])


def _qwen2(tokenizer: tokenizers.Tokenizer) -> None:
    """Compose the text (NFC), then split as Qwen2, Qwen2.5 and Qwen3 do."""
    split = pre_tokenizers.Split(Regex(_QWEN2_SPLIT), behavior="isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])


_PREPARERS: Mapping[str, Callable[[tokenizers.Tokenizer], None]] = {"qwen2": _qwen2, "smollm": _smollm}


def _byte_alphabet() -> dict[str, int]:
    """The characters that spell the 256 bytes: printable Latin-1 for itself, the others from U+0100 on (GPT-2)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    spelled = {chr(byte): byte for byte in printable}
    return spelled | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTE_OF = _byte_alphabet()


class Speller(Protocol):
    """What turning ids into text takes."""

    @property
    def end_ids(self) -> frozenset[int]: ...

    def bytes_of(self, token: int) -> bytes: ...


class Wordless:
    """The speller of a model without a vocabulary: no token prints, none ends the text."""

    end_ids: frozenset[int] = frozenset()

    def bytes_of(self, token: int) -> bytes:
        return b""


class Tokenizer:
    """A byte-level BPE vocabulary: text in, ids out, and raw bytes back.

    Ids are those of the Hugging Face tokenizer that the file was made from. Immutable, so it may be shared by threads.
    """

    def __init__(
        self,
        tokens: Sequence[str],
        kinds: Sequence[int],
        merges: Sequence[str],
        *,
        pre: str,
        end_ids: Iterable[int] = (),
        bos_id: int | None = None,
        add_bos: bool = False,
    ) -> None:
        """Build from a vocabulary in id order; `merges` are "left right", best first; `pre` names the way to split.

        Raises FileCorrupt for lists that contradict each other and Unsupported for an unknown `pre`.
        """
        self._tokens = list(tokens)
        self._kinds = list(kinds)
        id_of = _ids_by_token(self._tokens, self._kinds)
        model = BPE(id_of, _checked_merges(merges, id_of))
        self._parser = self._backend(model, pre, (Kind.CONTROL, Kind.USER_DEFINED))
        self._reader = self._backend(model, pre, (Kind.USER_DEFINED,))
        named = (id_of[token] for token in _END_TOKENS if token in id_of)
        self.end_ids = frozenset(end_ids) | {token for token in named if self.is_control(token)}
        self.bos_id = bos_id
        self._first = [bos_id] if add_bos and bos_id is not None else []

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> "Tokenizer":
        """Build from the `tokenizer.ggml.*` metadata of a GGUF file.

        `add_bos_token` is honoured; `add_eos_token` is not, since a prompt is there to be continued.
        Raises Unsupported for another kind of tokenizer, FileCorrupt for malformed metadata.
        """
        model = _text(metadata, "model")
        if model != "gpt2":
            raise Unsupported(f"tokenizer model {quoted(model)} is not supported; supported: 'gpt2' (byte-level BPE)")
        tokens, kinds, merges = (_items(metadata, key) for key in ("tokens", "token_type", "merges"))
        if not all(isinstance(item, str) for item in (*tokens, *merges)):
            raise FileCorrupt("the vocabulary holds something other than text")
        ends = (_token_id(metadata, key, len(tokens)) for key in ("eos", "eot"))
        return cls(
            tokens,
            kinds,
            merges,
            pre=_text(metadata, "pre"),
            end_ids=[token for token in ends if token is not None],
            bos_id=_token_id(metadata, "bos", len(tokens)),
            add_bos=bool(metadata.get("tokenizer.ggml.add_bos_token", False)),
        )

    @property
    def vocab_size(self) -> int:
        """How many ids there are, unused ones included."""
        return len(self._tokens)

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Give the ids of a text, after the beginning-of-text token where the file asks for one.

        `special=True` reads control tokens such as `<|im_end|>` as themselves, as a rendered chat template needs;
        `special=False` reads them as the characters that they are. User-defined tokens are whole either way.
        Raises PromptError for text that is not valid Unicode.
        """
        backend = self._parser if special else self._reader
        try:
            ids: list[int] = backend.encode(text, add_special_tokens=False).ids
        except TypeError:
            raise PromptError("the text holds a lone surrogate; legal is any valid Unicode text") from None
        return ids if ids[:1] == self._first else self._first + ids

    def is_control(self, token: int) -> bool:
        """Say whether a token steers and does not print."""
        return bool(self._kinds[token] == Kind.CONTROL)

    def spelling(self, token: int) -> str:
        """Give a token as the file spells it, which for a control token is its name."""
        return self._tokens[token]

    def bytes_of(self, token: int) -> bytes:
        """Give the bytes that a token prints: none for control, unknown and unused ones and for ids past the end."""
        if token >= self.vocab_size or self._kinds[token] not in (Kind.NORMAL, Kind.USER_DEFINED):
            return b""
        spelled = self._tokens[token]
        try:
            return bytes(map(_BYTE_OF.__getitem__, spelled))
        except KeyError:  # not in the byte alphabet, so written as plain text
            return spelled.encode()

    def decode(self, ids: Iterable[int]) -> str:
        """Give the text of ids; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(map(self.bytes_of, ids)).decode("utf-8", "replace")

    def first_difference(self, other: "Tokenizer") -> str | None:
        """Say in one line where two vocabularies first disagree, or None where a draft can be shared.

        They agree when every id means the same in both; unused ids, and extra unused ones at the end, do not matter.
        """
        for token in range(max(self.vocab_size, other.vocab_size)):
            mine, theirs = self._meaning(token), other._meaning(token)
            if mine != theirs:
                return f"id {token} is {_shown(mine)} in one and {_shown(theirs)} in the other"
        return None

    def _meaning(self, token: int) -> str | None:
        unused = token >= self.vocab_size or self._kinds[token] == Kind.UNUSED
        return None if unused else self._tokens[token]

    def _backend(self, model: BPE, pre: str, whole: tuple[Kind, ...]) -> tokenizers.Tokenizer:
        """A tokenizer over the shared model that never cuts tokens of the kinds in `whole`."""
        if pre not in _PREPARERS:
            raise Unsupported(f"pre-tokenizer {quoted(pre)} is not supported; supported: {', '.join(_PREPARERS)}")
        backend = tokenizers.Tokenizer(model)
        _PREPARERS[pre](backend)
        uncut = (token for token, kind in zip(self._tokens, self._kinds, strict=True) if kind in whole)
        backend.add_tokens([AddedToken(token, normalized=False) for token in uncut])
        return backend


def _shown(meaning: str | None) -> str:
    return "unused" if meaning is None else quoted(meaning)


def _ids_by_token(tokens: Sequence[str], kinds: Sequence[int]) -> dict[str, int]:
    if len(tokens) != len(kinds):
        raise FileCorrupt(f"the vocabulary has {len(tokens)} tokens but {len(kinds)} token types")
    id_of = {token: place for place, token in enumerate(tokens)}
    if len(id_of) < len(tokens):
        twice = next(token for place, token in enumerate(tokens) if id_of[token] != place)
        raise FileCorrupt(f"the vocabulary has the token {quoted(twice)} twice")
    return id_of


def _checked_merges(merges: Sequence[str], id_of: Mapping[str, int]) -> list[tuple[str, str]]:
    """The merges as pairs; the backend aborts on a malformed one, so each is checked here."""
    pairs = []
    for merge in merges:
        left, _, right = merge.partition(" ")
        if left not in id_of or right not in id_of or left + right not in id_of:
            raise FileCorrupt(f"the merge {quoted(merge)} refers to a token that is not in the vocabulary")
        pairs.append((left, right))
    return pairs


def _text(metadata: Mapping[str, Any], key: str) -> str:
    value = metadata.get(f"tokenizer.ggml.{key}")
    if not isinstance(value, str):
        raise FileCorrupt(f"the metadata lacks the text tokenizer.ggml.{key}")
    return value


def _items(metadata: Mapping[str, Any], key: str) -> list[Any]:
    value = metadata.get(f"tokenizer.ggml.{key}")
    if value is None or isinstance(value, str) or not hasattr(value, "__len__"):
        raise FileCorrupt(f"the metadata lacks the list tokenizer.ggml.{key}")
    return value.tolist() if hasattr(value, "tolist") else list(value)


def _token_id(metadata: Mapping[str, Any], key: str, vocab_size: int) -> int | None:
    value = metadata.get(f"tokenizer.ggml.{key}_token_id")
    if value is None:
        return None
    if not 0 <= int(value) < vocab_size:
        raise FileCorrupt(f"tokenizer.ggml.{key}_token_id is {value}; legal is 0 to {vocab_size - 1}")
    return int(value)
