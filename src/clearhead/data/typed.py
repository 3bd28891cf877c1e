"""Texts as they are typed in a hurry, and with the marks of other keyboards: what a model meets once people use it.

Books and collections of sentences begin with a capital and end with a mark; a model that has seen nothing else is at a
loss without them. `hasty` takes them away, `PLAIN` says which marks are to be read as which.
"""

import re
import zlib
from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["PLAIN", "hasty", "is_chosen"]

END = re.compile(r"[\s.!?…]+\Z")

# mark -> the one that is read in its place
PLAIN: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys("‘’ʼ′", "'"),
        **dict.fromkeys("“”„‟″", '"'),
        **dict.fromkeys("‐‑", "-"),  # hyphens alone: dashes mean something else
        **dict.fromkeys("\u00a0\u2007\u2009\u202f\u3000", " "),  # unbreakable, narrow and wide
        "…": "...",
    }
)


def hasty(text: str) -> str:
    """The text without its capitals, without the marks at its end, or without both, as the text itself decides."""
    which = zlib.crc32(text.encode("utf-8", "surrogatepass")) % 3
    typed = text if which == 0 else text.lower()
    return typed if which == 1 else END.sub("", typed) or typed


def is_chosen(text: str, share: float) -> bool:
    """Whether the text belongs to a `share` of all texts: always the same ones, and of a larger share all of these."""
    return zlib.crc32(text.encode("utf-8", "surrogatepass"), 0x5EED) < share * (1 << 32)
