"""Text that comes out token by token."""

from typing import final

from clearhead.data.tokenizers import Tokenizer

__all__ = ["TextStream"]


@final
class TextStream:
    """Decoding token by token: what `push` and `finish` return, joined, is the text of all ids.

    A character that is spelled by several tokens comes out with the last of them, never in halves.

    >>> tokenizer = Tokenizer.train("bytes", ["abc"], vocabulary=300)
    >>> stream = TextStream(tokenizer)
    >>> [stream.push(id) for id in tokenizer.encode("aé")] + [stream.finish()]
    ['a', '', 'é', '']
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        # The pieces given out last, since how a piece is joined depends on the one before it, and those held back.
        self._given: list[int] = []
        self._held: list[int] = []

    def push(self, id: int) -> str:
        """Take one more token; return the text that is certain now."""
        self._held.append(id)
        text = self._news()
        if not text or text.endswith("\ufffd"):
            return ""
        self._given, self._held = self._held, []
        return text

    def finish(self) -> str:
        """Return what was held back: a character that never became whole."""
        text = self._news()
        self._given, self._held = [], []
        return text

    def _news(self) -> str:
        known = self._tokenizer.decode(self._given)
        return self._tokenizer.decode(self._given + self._held)[len(known) :]
