"""What people and things are, have and feel: sentences around être and avoir."""

from collections.abc import Callable
from dataclasses import replace

from clearhead.data.phrasebook.adjectives import Adjective, adjective, said_of
from clearhead.data.phrasebook.adjuncts import home, origin, place, spot, wild
from clearhead.data.phrasebook.clauses import Event
from clearhead.data.phrasebook.grammar import (
    DETERMINERS,
    POSSESSIVES,
    PRONOUNS,
    Draft,
    Draw,
    Idiom,
    Phrase,
    idiom,
    join,
    noun_phrase,
    plain,
    pronoun,
    say,
)
from clearhead.data.phrasebook.nouns import JOBS, NAMES, NOUNS, noun, nouns_of
from clearhead.data.phrasebook.phrases import (
    OWNED,
    OWNERS,
    animal,
    name,
    number,
    person,
    quality_of,
    someone,
    speaker,
    thing,
)
from clearhead.data.phrasebook.predicates import Act
from clearhead.data.phrasebook.verbs import AVOIR, ETRE, Verb, like_be, verb

__all__ = [
    "FARE",
    "FEEL",
    "FEELINGS",
    "being",
    "comparison",
    "description",
    "existence",
    "feeling",
    "introduction",
    "job",
    "location",
    "pointing",
    "quality",
    "there_is",
]

# « J'ai faim » is "I am hungry"; « j'ai vingt ans » and « il y a » are built alike.
FEEL: Verb = like_be(AVOIR)
# « Comment vas-tu ? Je vais bien. » is "How are you? I am well."
FARE: Verb = like_be(verb("aller"))
_THERE = (FEEL, replace(FEEL, en_present=("are",) * 6, en_past=("were",) * 6))
FEELINGS: dict[str, Idiom] = {
    "hungry": idiom("faim1 = hungry1"),
    "thirsty": idiom("soif1 = thirsty1"),
    "cold": idiom("froid1 = cold1"),
    "hot": idiom("chaud1 = hot1"),
    "afraid": idiom("peur1 = afraid1"),
    "sleepy": idiom("sommeil1 = sleepy1"),
    "right": idiom("raison1 = right1"),
    "wrong": idiom("tort1 = wrong1"),
}
_ANY_FEELING = tuple(FEELINGS.values())
_OPINIONS = (FEELINGS["right"], FEELINGS["wrong"])
_YEARS, _WELL = idiom("ans1 = years1 old1"), idiom("bien1 = well1")
_LANGUAGES = (
    idiom("français1 = French1"),
    idiom("anglais1 = English1"),
    idiom("espagnol1 = Spanish1"),
    idiom("italien1 = Italian1"),
)
_DEGREES = (idiom("très1 = very1"), idiom("très1 = very1"), idiom("trop1 = too1"))
_UNGRADED = frozenset(
    ("black", "white", "gray", "red", "green", "blue", "yellow", "broken", "empty", "open", "closed", "delicious")
)
_PASSING = frozenset({"tired", "sick", "happy", "sad", "clean", "dirty"})
_THINGS = tuple(word for word in NOUNS if said_of(word) and word.kinds.isdisjoint({"person", "animal"}))
_SMALL, _SEEN, _VEHICLES = nouns_of("thing", "dish", "fruit", "clothes"), nouns_of("seen"), nouns_of("driven")
_POINTED = nouns_of("thing", "clothes", "vehicle", "kin", "building", "animal")
_PERSONAL = said_of(NAMES[0])


def _denied(draw: Draw, *negations: str, probability: float = 0.2) -> str:
    return draw.pick(negations) if draw.chance(probability) else ""


def _now_or_then(draw: Draw) -> str:
    return "imperfect" if draw.chance(0.25) else "present"


def quality(draw: Draw, chosen: Adjective, form: int, degree: Idiom | None = None) -> Phrase:
    """An adjective after être, agreeing, perhaps with its degree: très fatiguées."""
    link = draw.link()
    said = Phrase([(chosen.fr[form], link)], [(chosen.en, link)])
    return join(say(draw, degree), said) if degree else said


def being(draw: Draw, subject: Phrase, tense: str = "present", negation: str = "") -> Event:
    """The subject is somehow, as fits what it is."""
    chosen = draw.pick(said_of(subject.noun) if subject.noun else _PERSONAL)
    negation = "pas" if negation and chosen.en not in _PASSING else negation
    graded = not negation and chosen.en not in _UNGRADED and draw.chance(0.3)
    said = quality(draw, chosen, subject.form, draw.pick(_DEGREES) if graded else None)
    return Event(subject, Act(ETRE, tense, negation), (said,))


_DESCRIBED: tuple[Callable[[Draw], Phrase], ...] = (
    *[person] * 3,
    animal,
    *[lambda draw: thing(draw, _THINGS)] * 2,
)


def description(draw: Draw) -> Draft:
    """Somebody or something is, or was, somehow."""
    subject = draw.pick(_DESCRIBED)(draw)
    return Draft(being(draw, subject, _now_or_then(draw), _denied(draw, "pas", "pas", "jamais")).state(draw))


def job(draw: Draw) -> Draft:
    """Je suis étudiant: French has no article here, English has."""
    subject = person(draw, 0.6)
    while subject.noun and not subject.noun.kinds.isdisjoint({"job", "youth"}):
        subject = person(draw, 0.6)
    what = plain(draw, draw.pick(JOBS)[subject.gender], "job", int(subject.person > 2))
    negation = _denied(draw, "pas", "pas", "plus")
    where = (home(draw),) if not negation and draw.chance(0.25) else ()
    return Draft(Event(subject, Act(ETRE, _now_or_then(draw), negation), (what, *where)).state(draw))


def _feels(draw: Draw) -> Event:
    feels = draw.pick(_ANY_FEELING)
    negations = ("pas", "jamais") if feels in _OPINIONS else ("pas", "jamais", "plus")
    act = Act(FEEL, _now_or_then(draw), _denied(draw, *negations, probability=0.3))
    return Event(person(draw, 0.6), act, (say(draw, feels),))


def _is_aged(draw: Draw) -> Event:
    subject = speaker(draw) if draw.chance(0.5) else name(draw)
    return Event(subject, Act(FEEL, _now_or_then(draw)), (number(draw), say(draw, _YEARS)))


def _speaks(draw: Draw) -> Event:
    act = Act(verb("parler"), "present", _denied(draw, "pas"))
    return Event(person(draw, 0.6), act, (say(draw, draw.pick(_LANGUAGES)),))


def _fares(draw: Draw) -> Event:
    return Event(person(draw, 0.6), Act(FARE, "present", _denied(draw, "pas")), (say(draw, _WELL),))


def _comes_from(draw: Draw) -> Event:
    return Event(person(draw, 0.6), Act(verb("venir")), (origin(draw),))


_FEELINGS = (_feels, _feels, _feels, _is_aged, _speaks, _fares, _comes_from)


def feeling(draw: Draw) -> Draft:
    """J'ai faim; j'ai vingt ans; je parle français; je vais bien; je viens de Paris."""
    return Draft(draw.pick(_FEELINGS)(draw).state(draw))


_LOCATED: tuple[tuple[Callable[[Draw], Phrase], Callable[[Draw], Phrase]], ...] = (
    (person, place),
    (animal, wild),
    (lambda draw: thing(draw, _SMALL), spot),
)


def location(draw: Draw) -> Draft:
    """Somebody or something is somewhere."""
    what, where = draw.pick(_LOCATED)
    return Draft(Event(what(draw), Act(ETRE, _now_or_then(draw), _denied(draw, "pas")), (where(draw),)).state(draw))


def there_is(draw: Draw, negation: str = "") -> Event:
    """Il y a un chat sous la table; the English verb agrees with what there is."""
    indoors, plural = draw.chance(0.6), int(draw.chance(0.4))
    noun = draw.pick(_SMALL if indoors else _SEEN)
    plural = 0 if negation and noun.fr[0] == noun.fr[1] else plural  # « Pas de souris » hides the number.
    what = noun_phrase(draw, noun, DETERMINERS["not a" if negation else "a"], plural, quality_of(draw, noun, 0.15))
    il = pronoun(draw, "il", "there", 2)
    act = Act(_THERE[plural], "present", negation, clitic=Phrase([("y", il.link)], []))
    return Event(il, act, (what, spot(draw) if indoors else wild(draw)))


def existence(draw: Draw) -> Draft:
    """There is something somewhere."""
    return Draft(there_is(draw, _denied(draw, "pas")).state(draw))


def pointing(draw: Draw) -> Draft:
    """C'est une belle maison; ce sont mes livres."""
    noun = draw.pick(_POINTED)
    plural = int("single" not in noun.kinds and draw.chance(0.25))
    subject = pronoun(draw, "ce", ("this", "these")[plural], (2, 5)[plural])
    owned = "kin" in noun.kinds or (not noun.kinds.isdisjoint(OWNED) and draw.chance(0.4))
    determiner = draw.pick(OWNERS) if owned else DETERMINERS["a"]
    what = noun_phrase(draw, noun, determiner, plural, quality_of(draw, noun, 0.3))
    return Draft(Event(subject, Act(ETRE, "present", _denied(draw, "pas")), (what,)).state(draw))


_NAMED = tuple(row for row in PRONOUNS if row[2] in (0, 2))


def introduction(draw: Draw) -> Draft:
    """Je m'appelle Susan: my name is Susan."""
    french, english, person, gender = draw.pick(_NAMED)
    who = name(draw)
    while person == 2 and who.gender != gender:
        who = name(draw)
    subject, named = draw.link(), draw.link()
    reflexive, my = "se" if person else "me", POSSESSIVES[person, english].en[0][0]
    fr = [(french, subject), (reflexive, subject), (verb("appeler").present[person], named), *who.fr]
    return Draft(Phrase(fr, [(my, subject), ("name", named), ("is", named), *who.en]))


# English compares short adjectives by an ending, then linked to « plus » too, and long ones by "more".
_ENDINGS = {
    "tall": "taller",
    "big": "bigger",
    "small": "smaller",
    "old": "older",
    "young": "younger",
    "strong": "stronger",
    "fast": "faster",
    "rich": "richer",
    "smart": "smarter",
}
_LONG = frozenset({"beautiful", "expensive", "famous", "honest"})
_BY_SIZE = ("souris", "grenouille", "oiseau", "lapin", "chat", "chien", "mouton", "âne", "cheval", "éléphant")


def _compared(draw: Draw, one: Phrase, other: Phrase, chosen: Adjective) -> Draft:
    more, link, than = draw.link(), draw.link(), draw.link()
    english = [(_ENDINGS[chosen.en], more | link)] if chosen.en in _ENDINGS else [("more", more), (chosen.en, link)]
    said = Phrase([("plus", more), (chosen.fr[one.form], link), ("que", than)], [*english, ("than", than)])
    return Draft(Event(one, Act(ETRE), (said, other)).state(draw))


def _compare_people(draw: Draw) -> Draft:
    one, other = person(draw), someone(draw)
    while one.noun is other.noun:
        other = someone(draw)
    options = [word for word in (said_of(one.noun) if one.noun else _PERSONAL) if word.en in (*_ENDINGS, *_LONG)]
    return _compared(draw, one, other, draw.pick(options))


def _compare_animals(draw: Draw) -> Draft:
    """By their size, and truly."""
    one, other = draw.pick(_BY_SIZE), draw.pick(_BY_SIZE)
    while one == other:
        other = draw.pick(_BY_SIZE)
    left, right = plain(draw, noun(one)), plain(draw, noun(other))
    bigger = _BY_SIZE.index(one) > _BY_SIZE.index(other)
    return _compared(draw, left, right, _BIG if bigger else adjective("petit"))


def _compare_vehicles(draw: Draw) -> Draft:
    one, other = thing(draw, _VEHICLES), thing(draw, _VEHICLES)
    while one.noun is other.noun:
        other = thing(draw, _VEHICLES)
    return _compared(draw, one, other, adjective(draw.pick(("rapide", "vieux"))))


_BIG = next(word for word in said_of(noun("cheval")) if word.en == "big")


def comparison(draw: Draw) -> Draft:
    """Le cheval est plus grand que l'âne."""
    return draw.pick((_compare_people, _compare_animals, _compare_vehicles))(draw)
