"""The aligned grammar: phrases that are built in French and English at once, word by word, with their links.

A word is `(text, links)`, where `links` is a set of bits: a French and an English word translate each other
exactly when their sets meet. Whoever emits two corresponding words gives both a fresh bit, so that the gold
alignment comes from the construction itself. Words here are in their full form (`de le`, `je ai`, `a apple`);
`surface` elides and contracts them, and a contracted word keeps the links of both its parts.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from clearhead.data.phrasebook.adjectives import Adjective
from clearhead.data.phrasebook.nouns import Noun
from clearhead.data.phrasebook.surface import Word, begins_with_vowel

__all__ = [
    "DETERMINERS",
    "NUMBERS",
    "POSSESSIVES",
    "PRONOUNS",
    "Determiner",
    "Draft",
    "Draw",
    "Idiom",
    "Phrase",
    "again",
    "idiom",
    "join",
    "noun_phrase",
    "plain",
    "pronoun",
    "say",
]

T = TypeVar("T")


class Draw:
    """The dice of a stream of sentences, and the supply of link bits within one sentence."""

    __slots__ = ("_bit", "_random")

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random
        self._bit = 1

    def pick(self, options: Sequence[T]) -> T:
        # Not random.choice: only random() promises the same numbers in every Python.
        return options[int(self._random() * len(options))]

    def chance(self, probability: float) -> bool:
        return self._random() < probability

    def link(self, count: int = 1) -> int:
        """The lowest of `count` fresh bits."""
        bit = self._bit
        self._bit <<= count
        return bit

    def restart(self) -> None:
        """Begin the next sentence."""
        self._bit = 1


class Phrase(NamedTuple):
    """The same thing said in French and in English, and what must agree with it."""

    fr: list[Word]
    en: list[Word]
    person: int = 2
    gender: int = 0
    pronoun: str = "it"
    noun: Noun | None = None
    link: int = 0  # the bit of its head

    @property
    def form(self) -> int:
        """Which of four inflected forms agrees with it."""
        return self.gender + 2 * (self.person > 2)


class Draft(NamedTuple):
    """A whole sentence before spelling; `referent` is the bits of a pronoun and of the noun that it stands for."""

    phrase: Phrase
    end: str = "."
    referent: tuple[int, int] | None = None


class Idiom(NamedTuple):
    """A fixed phrase with its links, to be said as often as wanted."""

    fr: tuple[Word, ...]
    en: tuple[Word, ...]
    bits: int


def idiom(text: str) -> Idiom:
    """Read "chaque1 matin2 = every1 morning2": words that share a digit are linked, a bare word has no link."""
    fr, en = (tuple(_numbered(word) for word in side.split()) for side in text.split("="))
    return Idiom(fr, en, max((links.bit_length() for _, links in fr), default=0))


def _numbered(word: str) -> Word:
    text = word.rstrip("123456789")
    return text, sum(1 << int(digit) - 1 for digit in word[len(text) :])


def say(draw: Draw, fixed: Idiom) -> Phrase:
    """An idiom as a phrase, with fresh links."""
    base = draw.link(fixed.bits)
    fr, en, _ = fixed
    return Phrase([(text, links * base) for text, links in fr], [(text, links * base) for text, links in en])


def join(*phrases: Phrase) -> Phrase:
    """Phrases one after the other, in the same order in both languages."""
    fr = [word for phrase in phrases for word in phrase.fr]
    return Phrase(fr, [word for phrase in phrases for word in phrase.en])


class Determiner(NamedTuple):
    """French words (m., f., m. before a vowel, f. before a vowel, plural) and English words (singular, plural)."""

    fr: tuple[tuple[str, ...], ...]
    en: tuple[tuple[str, ...], ...]


def _determiner(french: str, english: str) -> Determiner:
    """Forms are parted by commas; one form alone serves everywhere."""
    fr, en = ([tuple(form.split()) for form in side.split(",")] for side in (french, english))
    return Determiner(tuple(fr if len(fr) > 1 else fr * 5), tuple(en if len(en) > 1 else en * 2))


DETERMINERS: dict[str, Determiner] = {
    "none": _determiner("", ""),
    "job": _determiner("", "a, "),
    "the": _determiner("le, la, le, la, les", "the"),
    "generic": _determiner("le, la, le, la, les", ""),
    "a": _determiner("un, une, un, une, des", "a, "),
    "not a": _determiner("de", "a, any"),
    "this": _determiner("ce, cette, cet, cette, ces", "this, these"),
    "which": _determiner("quel, quelle, quel, quelle, quels", "which"),
    "some": _determiner("de le, de la, de le, de la, des", "some"),
    "bare some": _determiner("de le, de la, de le, de la, des", ""),
    "any": _determiner("de", "any"),
    "bare any": _determiner("de", ""),
}
_NUMERALS = {
    "deux": "two",
    "trois": "three",
    "quatre": "four",
    "cinq": "five",
    "six": "six",
    "sept": "seven",
    "huit": "eight",
    "neuf": "nine",
    "dix": "ten",
    "douze": "twelve",
    "vingt": "twenty",
    "trente": "thirty",
}
NUMBERS: tuple[Determiner, ...] = tuple(_determiner(french, english) for french, english in _NUMERALS.items())
# The owner's person and English pronoun choose: « son » is his, her or its.
POSSESSIVES: dict[tuple[int, str], Determiner] = {
    (0, "I"): _determiner("mon, ma, mon, mon, mes", "my"),
    (1, "you"): _determiner("ton, ta, ton, ton, tes", "your"),
    (2, "he"): _determiner("son, sa, son, son, ses", "his"),
    (2, "she"): _determiner("son, sa, son, son, ses", "her"),
    (2, "it"): _determiner("son, sa, son, son, ses", "its"),
    (3, "we"): _determiner("notre, notre, notre, notre, nos", "our"),
    (4, "you"): _determiner("votre, votre, votre, votre, vos", "your"),
    (5, "they"): _determiner("leur, leur, leur, leur, leurs", "their"),
}


def noun_phrase(
    draw: Draw, noun: Noun, determiner: Determiner, plural: int = 0, quality: Adjective | None = None
) -> Phrase:
    """Determiner, noun and perhaps an adjective: agreeing, and each language in its own order."""
    link, gender = draw.link(), noun.gender
    fr: list[Word] = [(noun.fr[plural], link)]
    en: list[Word] = [(noun.en[plural], link)]
    before = quality is not None and quality.place in ("before", "attribute")
    if quality:
        bit = draw.link()
        en.insert(0, (quality.en, bit))
        liaison = before and not plural and not gender and begins_with_vowel(noun.fr[0])
        fr.insert(0 if before else 1, (quality.liaison if liaison else quality.fr[gender + 2 * plural], bit))
    article = determiner.fr[4 if plural else gender + 2 * begins_with_vowel(fr[0][0])]
    if before and article == ("des",):
        article = ("de",)  # de belles fleurs
    bit = draw.link()
    fr[:0] = [(word, bit) for word in article]
    en[:0] = [(word, bit) for word in determiner.en[plural]]
    return Phrase(fr, en, 5 if plural else 2, gender, "they" if plural else noun.pronoun, noun, link)


def plain(draw: Draw, noun: Noun, determiner: str = "the", plural: int = 0) -> Phrase:
    """A noun with a determiner of the table and no adjective; a name has none."""
    return noun_phrase(draw, noun, DETERMINERS["none" if "name" in noun.kinds else determiner], plural)


# French, English, person, gender.
PRONOUNS: tuple[tuple[str, str, int, int], ...] = (
    ("je", "I", 0, 0),
    ("je", "I", 0, 1),
    ("tu", "you", 1, 0),
    ("tu", "you", 1, 1),
    ("il", "he", 2, 0),
    ("elle", "she", 2, 1),
    ("nous", "we", 3, 0),
    ("nous", "we", 3, 1),
    ("vous", "you", 4, 0),
    ("ils", "they", 5, 0),
    ("elles", "they", 5, 1),
)
_SUBJECTS = {(person, gender): french for french, _, person, gender in PRONOUNS}


def pronoun(draw: Draw, french: str, english: str, person: int, gender: int = 0) -> Phrase:
    """A pronoun in both languages."""
    link = draw.link()
    return Phrase([(french, link)], [(english, link)], person, gender, english, None, link)


def again(draw: Draw, phrase: Phrase) -> Phrase:
    """The same subject once more, as a pronoun; in French it has the noun's gender."""
    return pronoun(draw, _SUBJECTS[phrase.person, phrase.gender], phrase.pronoun, phrase.person, phrase.gender)
