"""Who and what: subjects and objects drawn at random, each fitting what it is said with."""

from clearhead.data.phrasebook.adjectives import Adjective, attributes_of
from clearhead.data.phrasebook.grammar import (
    DETERMINERS,
    NUMBERS,
    POSSESSIVES,
    PRONOUNS,
    Determiner,
    Draw,
    Phrase,
    noun_phrase,
    plain,
    pronoun,
)
from clearhead.data.phrasebook.nouns import NAMES, Noun, nouns_of
from clearhead.data.phrasebook.surface import begins_with_vowel
from clearhead.data.phrasebook.verbs import GENERIC, HELPERS, Frame

__all__ = [
    "ANY_DETERMINER",
    "DEFINITE",
    "OWNED",
    "OWNERS",
    "PEOPLE",
    "animal",
    "name",
    "number",
    "object_of",
    "object_pronoun",
    "person",
    "quality_of",
    "someone",
    "speaker",
    "thing",
]

PEOPLE = tuple(noun for noun in nouns_of("person") if "kin" not in noun.kinds)
OWNERS = (POSSESSIVES[0, "I"], POSSESSIVES[1, "you"], POSSESSIVES[3, "we"], POSSESSIVES[4, "you"])
OWNED = frozenset({"thing", "clothes", "vehicle", "pet", "written"})
_KIN, _ANIMALS = nouns_of("kin"), nouns_of("animal")
_THE, _THIS, _A = DETERMINERS["the"], DETERMINERS["this"], DETERMINERS["a"]
_FEW = NUMBERS[:5]


def speaker(draw: Draw) -> Phrase:
    """A personal pronoun as the subject: je … elles."""
    return pronoun(draw, *draw.pick(PRONOUNS))


def name(draw: Draw) -> Phrase:
    return plain(draw, draw.pick(NAMES))


def _couple(draw: Draw) -> Phrase:
    """Two names: Paul and Mary."""
    one, other, link = name(draw), name(draw), draw.link()
    while other.noun is one.noun:
        other = name(draw)
    fr, en = [*one.fr, ("et", link), *other.fr], [*one.en, ("and", link), *other.en]
    return Phrase(fr, en, 5, one.gender & other.gender, "they")


def quality_of(draw: Draw, noun: Noun, probability: float) -> Adjective | None:
    """An adjective that may stand beside `noun`, or none."""
    options = attributes_of(noun)
    return draw.pick(options) if options and draw.chance(probability) else None


def someone(draw: Draw) -> Phrase:
    """One person or more, not by a pronoun: Paul, my sister, the old women."""
    if draw.chance(0.35):
        return name(draw)
    if draw.chance(0.3):
        return noun_phrase(draw, draw.pick(_KIN), draw.pick(OWNERS))
    noun, plural = draw.pick(PEOPLE), int(draw.chance(0.2))
    owned = "own" in noun.kinds and draw.chance(0.6)
    determiner = draw.pick(OWNERS) if owned else draw.pick((_THE, _THE, _THE, _THIS))
    return noun_phrase(draw, noun, determiner, plural, quality_of(draw, noun, 0.2))


def person(draw: Draw, pronouns: float = 0.45) -> Phrase:
    """A human subject."""
    if draw.chance(pronouns):
        return speaker(draw)
    return _couple(draw) if draw.chance(0.06) else someone(draw)


def animal(draw: Draw, nouns: tuple[Noun, ...] = _ANIMALS) -> Phrase:
    """An animal as the subject: the dog, these white hens, my cat."""
    noun, plural = draw.pick(nouns), int(draw.chance(0.2))
    if "pet" in noun.kinds and draw.chance(0.25):
        return noun_phrase(draw, noun, draw.pick(OWNERS), plural)
    return noun_phrase(draw, noun, draw.pick((_THE, _THE, _THIS)), plural, quality_of(draw, noun, 0.25))


def thing(draw: Draw, nouns: tuple[Noun, ...]) -> Phrase:
    """A thing as the subject: the car, this book, your shoes."""
    noun = draw.pick(nouns)
    plural = int("single" not in noun.kinds and draw.chance(0.25))
    owned = not noun.kinds.isdisjoint(OWNED) and draw.chance(0.4)
    return noun_phrase(draw, noun, draw.pick(OWNERS) if owned else draw.pick((_THE, _THE, _THIS)), plural)


DEFINITE = (_THE, _THE, _THIS)
ANY_DETERMINER = (_THE,) * 6 + (_A,) * 6 + (_THIS,) * 3


def object_of(
    draw: Draw,
    frame: Frame,
    subject: Phrase,
    tense: str,
    negation: str,
    determiners: tuple[Determiner, ...] = ANY_DETERMINER,
) -> Phrase:
    """A direct object that fits the verb, with a determiner that fits noun, tense and negation."""
    noun = draw.pick(frame.objects)
    while noun is subject.noun:
        noun = draw.pick(frame.objects)
    kinds, infinitive = noun.kinds, frame.verb.infinitive
    each = frame.verb.base == "wear" and subject.person > 2
    plural = int(each or ("single" not in kinds and draw.chance(0.3)))
    quality = quality_of(draw, noun, 0.2)
    if "name" in kinds:
        return plain(draw, noun)
    if infinitive in GENERIC and kinds.isdisjoint({"film", "music"}):
        return noun_phrase(draw, noun, DETERMINERS["generic"], int("single" not in kinds), quality)
    if infinitive == "avoir":
        plural = 0 if negation and noun.fr[0] == noun.fr[1] else plural
        return noun_phrase(draw, noun, _possessed(draw, plural, negation), plural, quality)
    if "kin" in kinds:
        return noun_phrase(draw, noun, _own(subject))
    if "mass" in kinds:
        return noun_phrase(draw, noun, _THE if draw.chance(0.35) else _amount(tense, negation), 0, quality)
    if plural and not negation and draw.chance(0.25):
        return noun_phrase(draw, noun, draw.pick(_FEW), 1, quality)
    if not kinds.isdisjoint(OWNED) and draw.chance(0.15):
        return noun_phrase(draw, noun, _own(subject), max(plural, int(subject.person > 2)), quality)
    determiner = draw.pick(determiners)
    if determiner is _A and negation:
        # Ne … pas un musée would deny the one museum; de + plural denies any.
        determiner, plural = (_THE, 0) if "single" in kinds else (_amount(tense, negation), 1)
    return noun_phrase(draw, noun, determiner, plural, quality)


def _possessed(draw: Draw, plural: int, negation: str) -> Determiner:
    if plural and not negation and draw.chance(0.5):
        return draw.pick(_FEW)
    return DETERMINERS["not a" if negation else "a"]


def _own(subject: Phrase) -> Determiner:
    """The subject's own; of "who" nothing is known, so it is mine."""
    return POSSESSIVES.get((subject.person, subject.pronoun), OWNERS[0])


def _amount(tense: str, negation: str) -> Determiner:
    """Je mange du pain: bread, as a habit; j'ai mangé du pain: some bread, once.

    Without it: pas de pain is not any bread; after jamais and plus, English says bread alone.
    """
    if negation:
        return DETERMINERS["any" if negation == "pas" else "bare any"]
    return DETERMINERS["bare some" if tense == "present" else "some"]


# French, English, person, gender.
_OBJECT_PRONOUNS = {
    "it": (("le", "it", 2, 0), ("la", "it", 2, 1), ("les", "them", 5, 0), ("les", "them", 5, 1)),
    "him": (
        ("me", "me", 0, 0),
        ("me", "me", 0, 1),
        ("te", "you", 1, 0),
        ("te", "you", 1, 1),
        ("le", "him", 2, 0),
        ("la", "her", 2, 1),
        ("nous", "us", 3, 0),
        ("vous", "you", 4, 0),
        ("les", "them", 5, 0),
        ("les", "them", 5, 1),
    ),
}


def object_pronoun(draw: Draw, frame: Frame, subject: Phrase, tense: str) -> Phrase | None:
    """A pronoun for the direct object, or none where English could not tell what it means.

    « Je l'aide » hides whether it is him or her; « je l'ai aidée » shows it by agreement.
    """
    options = _OBJECT_PRONOUNS.get(frame.pronoun)
    if options is None:
        return None
    french, english, number, gender = draw.pick(options)
    if number in (0, 1, 3, 4) and number % 3 == subject.person % 3:
        return None  # I … me, I … us
    if number == 5 and all("single" in noun.kinds for noun in frame.objects):
        return None  # one drinks it, not them
    spoken = frame.verb.infinitive if tense in HELPERS else frame.verb.present[subject.person]
    if english in ("him", "her") and tense != "past" and begins_with_vowel(spoken):
        return None
    return pronoun(draw, french, english, number, gender)


def number(draw: Draw, options: tuple[Determiner, ...] = NUMBERS) -> Phrase:
    """A numeral by itself."""
    chosen, link = draw.pick(options), draw.link()
    return Phrase([(chosen.fr[0][0], link)], [(chosen.en[0][0], link)])
