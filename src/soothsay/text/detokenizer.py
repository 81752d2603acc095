"""Ids to text, one at a time, without ever showing half a character."""

import codecs

from soothsay.text.tokenizer import Speller


class Detokenizer:
    """The text of a growing answer.

    All pushes and one flush give together what `Tokenizer.decode` gives for all ids at once.
    """

    def __init__(self, tokenizer: Speller) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """Take the next id and give the characters that it completes, often one word and sometimes none."""
        return self._decoder.decode(self._tokenizer.bytes_of(token))

    def flush(self) -> str:
        """End the text: an unfinished character becomes U+FFFD."""
        return self._decoder.decode(b"", final=True)
