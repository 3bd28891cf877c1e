"""Words that must appear: how far a hypothesis has come with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from clearhead.errors import DecodingError

__all__ = ["NOTHING", "Constraints"]

Phrase = tuple[int, ...]

FEW = 8  # phrases whose shortest order is looked for; it takes 2^FEW steps, once


@dataclass(frozen=True)
class Constraints:
    """Phrases that a hypothesis has yet to write, and of what it wrote last, as much as may be the beginning of one.

    They may overlap: 1 2 3 holds both (1, 2) and (2, 3).

    >>> after = Constraints.of([(1, 2), (2, 3)]).after(1)
    >>> after.left, sorted(after.wanted), after.after(2).left, after.after(4).left
    (2, [2], 1, 3)
    """

    phrases: tuple[Phrase, ...]
    tail: Phrase = ()

    @staticmethod
    def of(phrases: Sequence[Phrase]) -> "Constraints":
        """All of them are left; one that is part of another comes with it."""
        if not all(phrases):
            raise DecodingError("a required phrase must have at least one token")
        distinct = dict.fromkeys(phrases)
        return Constraints(tuple(one for one in distinct if not any(_inside(one, other) for other in distinct)))

    @property
    def left(self) -> int:
        """How many tokens they still need."""
        return _shortest(self.tail, frozenset(self.phrases))

    @property
    def wanted(self) -> set[int]:
        """The tokens that bring them nearer."""
        return {phrase[_overlap(self.tail, phrase)] for phrase in self.phrases}

    def after(self, token: int) -> "Constraints":
        """What is left once this token is written; a phrase that it breaks off must begin anew."""
        if not self.phrases:
            return self
        text = (*self.tail, token)
        left = tuple(phrase for phrase in self.phrases if text[-len(phrase) :] != phrase)
        begun = max((_overlap(text, phrase) for phrase in left), default=0)
        return Constraints(left, text[len(text) - begun :])


NOTHING = Constraints(())


@lru_cache(maxsize=10_000)
def _shortest(tail: Phrase, phrases: frozenset[Phrase]) -> int:
    """How many tokens write all of these after the tail; of more than a `FEW`, as if they did not overlap."""
    if len(phrases) > FEW:
        return sum(map(len, phrases)) - max(_overlap(tail, phrase) for phrase in phrases)
    first = (len(one) - _overlap(tail, one) + _shortest(one, phrases - {one}) for one in phrases)
    return min(first, default=0)


def _overlap(text: Phrase, phrase: Phrase) -> int:
    """How many tokens of the phrase, not all of them, the text ends with."""
    sizes = range(min(len(text), len(phrase) - 1), 0, -1)
    return next((size for size in sizes if text[-size:] == phrase[:size]), 0)


def _inside(phrase: Phrase, other: Phrase) -> bool:
    starts = range(len(other) - len(phrase) + 1)
    return phrase != other and any(other[start : start + len(phrase)] == phrase for start in starts)
