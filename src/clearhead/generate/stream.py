"""The text of tokens while they are being written."""

from collections.abc import Callable, Sequence
from typing import final

from clearhead.errors import DecodingError

__all__ = ["TextStream"]

HALF = "\ufffd"  # what decoders show for bytes that are no character (yet)
PATIENCE = 8  # tokens within which a character is complete: it has four bytes at most, and special tokens may intrude


@final
class TextStream:
    """Text of tokens as they come: never half a character, nothing of a stop word or of what may become one.

    What `feed` and `finish` give, joined, is `decode(prompt + tokens)[len(decode(prompt)):]`, cut where the earliest
    stop word begins. (Only where bytes are written that never become a character, a decoder that spells unseen
    characters in bytes changes its mind about those before them; what is out stays out.)

    Only a window of tokens is decoded: those that wait, and before them those of the last text that was whole, since
    how a token is written may depend on what it follows.

    >>> stream = TextStream(lambda ids: bytes(ids).decode(errors="replace"), stops=["\\n\\n"])
    >>> [stream.feed(byte) for byte in "né\\n?\\n\\n!".encode()]
    ['n', '', 'é', '', '\\n?', '', '', '']
    >>> stream.finish(), stream.stopped
    ('', True)
    """

    def __init__(
        self, decode: Callable[[list[int]], str], *, prompt: Sequence[int] = (), stops: Sequence[str] = ()
    ) -> None:
        if "" in stops:
            raise DecodingError(f"a stop word needs at least one character: stops={list(stops)}")
        self.stopped = False
        self._decode = decode
        self._stops = tuple(stops)
        self._text = self._held = ""
        self._open(list(prompt), waiting=0)

    def feed(self, token: int) -> str:
        """The text that is certain by now, "" if none is."""
        if self.stopped:
            return ""
        before = self._text
        self._window.append(token)
        self._waiting += 1
        self._text = self._decode(self._window)
        # Bytes that show as one mark each become fewer characters only when all of them are whole.
        whole = not self._text.endswith(HALF) or len(self._text) < len(before)
        if whole:
            fresh = self._show(len(self._text))
            if fresh:
                self._open(self._window[-self._waiting :], waiting=0)
            elif self._text and self._text == before:  # a special token: it must not make the window grow
                self._window.pop()
                self._waiting -= 1
        elif self._waiting <= PATIENCE:
            fresh = self._show(len(self._text.rstrip(HALF)))
        else:  # none but the last mark can still become a character
            fresh = self._show(len(self._text) - 1)
            self._open(self._window[-PATIENCE:], waiting=PATIENCE, hidden=1)
        return self._before_stop(fresh)

    def finish(self) -> str:
        """What was held back and turned out harmless; nothing after a stop word."""
        return "" if self.stopped else self._before_stop(self._show(len(self._text)), last=True)

    def _open(self, window: list[int], *, waiting: int, hidden: int = 0) -> None:
        """Begin a window, of whose text the last `hidden` characters have not been shown."""
        self._window, self._waiting = window, waiting
        self._text = self._decode(window)
        self._shown = max(len(self._text) - hidden, 0)

    def _show(self, end: int) -> str:
        start, self._shown = self._shown, max(self._shown, end)
        return self._text[start:end]

    def _before_stop(self, fresh: str, *, last: bool = False) -> str:
        """Of the text held and this, what no stop word can touch any more."""
        text = self._held + fresh
        found = min((text.find(stop) for stop in self._stops if stop in text), default=len(text))
        maybe = len(text) if last else self._beginning(text)
        self.stopped = found < len(text) and found <= maybe
        sure = min(found, maybe)
        self._held = "" if self.stopped or last else text[sure:]
        return text[:sure]

    def _beginning(self, text: str) -> int:
        """Where the end of the text begins that may become a stop word."""
        longest = max(map(len, self._stops), default=0)
        starts = range(max(len(text) - longest + 1, 0), len(text))
        return next(
            (start for start in starts if any(stop.startswith(text[start:]) for stop in self._stops)), len(text)
        )
