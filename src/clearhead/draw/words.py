"""Words and numbers as a figure writes them: what fits, what can be seen, what a file may hold."""

import math
import unicodedata
import warnings
from collections.abc import Sequence
from functools import lru_cache

from clearhead.errors import ShapeError

__all__ = ["fit", "number", "tokens_for", "visible", "width_of", "wrap"]

FINER = 32
SIGNS = {"\n": "↵", "\r": "↵", "\t": "⇥"}


def visible(token: object) -> str:
    """A token as it can be shown: white space and control characters get a sign, an empty one too.

    >>> visible("a\\n"), visible(" "), visible(""), visible("\\x00")
    ('a↵', '␣', '∅', '�')
    """
    text = str(token)
    if not text:
        return "∅"
    if text.isspace():
        return "".join(SIGNS.get(c, "␣") for c in text)
    return "".join(SIGNS.get(c, "\N{REPLACEMENT CHARACTER}" if _unwritable(c) else c) for c in text)


def _unwritable(c: str) -> bool:
    return unicodedata.category(c) in {"Cc", "Cs", "Cn"} or c in "\ufffe\uffff"


def tokens_for(tokens: Sequence[object] | None, count: int, axis: str) -> list[str]:
    """The labels of an axis: the tokens, or their numbers where none are given; as many as there are cells.

    None in the place of a token leaves its cell without a label.
    """
    if tokens is None:
        return [str(i + 1) for i in range(count)]
    if len(tokens) != count:
        raise ShapeError(f"{len(tokens)} {axis} are given for {count} of the array")
    return ["" if token is None else visible(token) for token in tokens]


def number(value: float) -> str:
    """A number in at most five characters and a sign.

    >>> number(0.423), number(-12.34), number(1234.5), number(0.0), number(-0.001)
    ('0.42', '−12.3', '1.2e3', '0.00', '0.00')
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+∞" if value > 0 else "−∞"
    size = abs(value)
    text = f"{value:.2f}" if size < 9.995 else f"{value:.1f}" if size < 99.95 else f"{value:.0f}"
    if size >= 999.5:
        text = f"{value:.1e}".replace("e+0", "e").replace("e+", "e")
    return "0.00" if text == "-0.00" else text.replace("-", "−")


@lru_cache(maxsize=4096)
def width_of(text: str, size: float, bold: bool = False) -> float:
    """How wide a text is in points, in the font that figures are set in."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    font = get_font(findfont(FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Glyph.*")
        font.set_size(size, 72 * FINER)  # at its real size a width would be rounded to whole points
        font.set_text(text, 0.0)
    return float(font.get_width_height()[0]) / 64 / FINER


def fit(text: str, points: float, size: float, *, bold: bool = False) -> str:
    """The text, or as much of its beginning as fits, and an ellipsis; a letter keeps its combining signs."""
    if width_of(text, size, bold) <= points:
        return text
    ends = [i for i in range(1, len(text)) if not _clings(text[i])]
    for end in reversed(ends):
        shorter = text[:end] + "…"
        if width_of(shorter, size, bold) <= points:
            return shorter
    return "…"


def _clings(c: str) -> bool:
    return unicodedata.category(c) in {"Mn", "Me", "Mc"} or c == "\u200d"


def wrap(text: str, points: float, size: float) -> list[str]:
    """The text in lines that fit; a word longer than a line stands alone and is shortened."""
    lines: list[str] = []
    for word in text.split():
        if lines and width_of(f"{lines[-1]} {word}", size) <= points:
            lines[-1] += f" {word}"
        else:
            lines.append(fit(word, points, size))
    return lines
