"""What the engine asks of text: an answer's characters, and the token at which it ends."""

from collections.abc import Collection, Iterable
from typing import Literal

from soothsay.errors import OptionError
from soothsay.text.detokenizer import Detokenizer
from soothsay.text.stop import StopStrings
from soothsay.text.tokenizer import Speller

FinishReason = Literal["end", "stop", "length"]
"""An end-of-text token, a stop token or string, or `max_tokens`; in this order when one token brings several."""


class TextStream:
    """The text of one answer, token by token, until something ends it.

    `stops` are texts and `stop_ids` tokens that end it and are not shown; `ignore_ends` goes on past the model's
    own end tokens. Push tokens in order until `finish_reason` is set: the token just pushed is the answer's last one.
    `ending_ids` are the tokens that end it.
    """

    def __init__(
        self,
        tokenizer: Speller,
        stops: Iterable[str] = (),
        max_tokens: int | None = None,
        *,
        stop_ids: Collection[int] = (),
        ignore_ends: bool = False,
    ) -> None:
        if max_tokens is not None and max_tokens < 1:
            raise OptionError(f"max_tokens is {max_tokens}; legal is 1 or more")
        self._end_ids = frozenset[int]() if ignore_ends else tokenizer.end_ids
        self._stop_ids = frozenset(stop_ids)
        self.ending_ids = self._end_ids | self._stop_ids
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = StopStrings(stops)
        self._left = max_tokens
        self.finish_reason: FinishReason | None = None

    def push(self, token: int) -> str:
        """Take the next token and give the text that can now be shown.

        The push that ends the answer gives everything that was held back, less the stop string.
        """
        assert self.finish_reason is None, "the answer has ended"
        shown = "" if token in self.ending_ids else self._stops.push(self._detokenizer.push(token))
        self._left = None if self._left is None else self._left - 1
        self.finish_reason = self._reason(token)
        return shown if self.finish_reason is None else shown + self.flush()

    def flush(self) -> str:
        """End the text where it is and give what was held back."""
        return self._stops.push(self._detokenizer.flush()) + self._stops.flush()

    def _reason(self, token: int) -> FinishReason | None:
        if token in self._end_ids:
            return "end"
        if token in self._stop_ids or self._stops.stopped:
            return "stop"
        return "length" if self._left == 0 else None
