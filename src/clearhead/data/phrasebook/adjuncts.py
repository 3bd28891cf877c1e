"""Where and when: places and times drawn at random."""

from collections.abc import Callable

from clearhead.data.phrasebook.grammar import NUMBERS, Draw, Idiom, Phrase, idiom, join, plain, say
from clearhead.data.phrasebook.nouns import Noun, noun, nouns_of
from clearhead.data.phrasebook.phrases import name, number

__all__ = ["AT_HOME", "TO", "destination", "home", "hour", "origin", "place", "place_of", "spot", "time", "wild"]

_DAYS = {
    "lundi": "Monday",
    "mardi": "Tuesday",
    "mercredi": "Wednesday",
    "jeudi": "Thursday",
    "vendredi": "Friday",
    "samedi": "Saturday",
    "dimanche": "Sunday",
}
_ON = tuple(idiom(f"{french}1 = on {english}1") for french, english in _DAYS.items())
_HABITS = (
    idiom("chaque1 jour2 = every1 day2"),
    idiom("chaque1 matin2 = every1 morning2"),
    idiom("chaque1 semaine2 = every1 week2"),
    idiom("le1 soir2 = in1 the1 evening2"),
    idiom("en1 été2 = in1 summer2"),
    idiom("en1 hiver2 = in1 winter2"),
)
_BEFORE = (
    idiom("hier1 = yesterday1"),
    idiom("hier1 matin2 = yesterday1 morning2"),
    idiom("hier1 soir1 = last1 night1"),
    idiom("ce1 matin2 = this1 morning2"),
    idiom("la semaine1 dernière2 = last2 week1"),
    *_ON,
)
_LATER = (
    idiom("demain1 = tomorrow1"),
    idiom("demain1 matin2 = tomorrow1 morning2"),
    idiom("ce1 soir1 = tonight1"),
    idiom("la semaine1 prochaine2 = next2 week1"),
    *_ON,
)
_TIMES: dict[str, tuple[Idiom, ...]] = {"present": _HABITS, "past": _BEFORE}
_HOURS, _HOUR, _CLOCK = NUMBERS[:9], idiom("à1 = at1"), idiom("heures1 = o'clock1")
_EARLY = (idiom("tôt1 = early1"), idiom("tard1 = late1"))

TO, AT_HOME = idiom("à1 = to1"), idiom("à1 la1 maison2 = at1 home2")
_AT, _IN, _IN_CITY, _FROM = idiom("à1 = at1"), idiom("dans1 = in1"), idiom("à1 = in1"), idiom("de1 = from1")
_NEAR, _NEXT_TO = idiom("près1 de1 = near1"), idiom("à1 côté1 de1 = next1 to1")
_ABOUT = (_NEAR, _NEXT_TO, idiom("devant1 = in1 front1 of1"), idiom("derrière1 = behind1"))
_SPOTS = (idiom("sur1 = on1"), idiom("sur1 = on1"), idiom("sous1 = under1"), _NEAR, _NEXT_TO)
_CITIES = (
    idiom("Paris1 = Paris1"),
    idiom("Lyon1 = Lyon1"),
    idiom("Rome1 = Rome1"),
    idiom("Londres1 = London1"),
    idiom("Genève1 = Geneva1"),
)
_COUNTRIES = (
    "en1 France2 = {}1 France2",
    "en1 Italie2 = {}1 Italy2",
    "en1 Espagne2 = {}1 Spain2",
    "au1 Canada2 = {}1 Canada2",
)
_IN_COUNTRY = tuple(idiom(text.format("in")) for text in _COUNTRIES)
_TO_COUNTRY = tuple(idiom(text.format("to")) for text in _COUNTRIES)
_GOALS, _ROOMS, _FIELDS, _FURNITURE = nouns_of("goal"), nouns_of("inside"), nouns_of("outside"), nouns_of("furniture")


def time(draw: Draw, tense: str) -> Phrase:
    """When: yesterday, tomorrow, every day, as the tense allows."""
    return say(draw, draw.pick(_TIMES.get(tense, _LATER)))


def hour(draw: Draw) -> Phrase:
    """At seven o'clock, early, late."""
    if draw.chance(0.7):
        return join(say(draw, _HOUR), number(draw, _HOURS), say(draw, _CLOCK))
    return say(draw, draw.pick(_EARLY))


def _in(draw: Draw, nouns: tuple[Noun, ...]) -> Phrase:
    return join(say(draw, _IN), plain(draw, draw.pick(nouns)))


def _goal(draw: Draw, to: Idiom) -> Phrase:
    """À + a place; one goes to school and to church without an article in English."""
    noun = draw.pick(_GOALS)
    return join(say(draw, to), plain(draw, noun, "generic" if "bare" in noun.kinds else "the"))


def _house(draw: Draw, to: str) -> Phrase:
    """Chez Paul: at Paul's house."""
    link, who = draw.link(), name(draw)
    return Phrase([("chez", link), *who.fr], [(to, link), *who.en, ("'s", link), ("house", link)])


def _city(draw: Draw, to: Idiom) -> Phrase:
    return join(say(draw, to), say(draw, draw.pick(_CITIES)))


def spot(draw: Draw) -> Phrase:
    """A place in a room: on the table, under the bed."""
    return join(say(draw, draw.pick(_SPOTS)), plain(draw, draw.pick(_FURNITURE)))


def wild(draw: Draw) -> Phrase:
    """Where animals are."""
    return _in(draw, _FIELDS)


def home(draw: Draw) -> Phrase:
    """Where somebody lives: a city or a country."""
    return _city(draw, _IN_CITY) if draw.chance(0.5) else say(draw, draw.pick(_IN_COUNTRY))


def origin(draw: Draw) -> Phrase:
    """Where somebody comes from."""
    return _city(draw, _FROM)


_PLACES: tuple[Callable[[Draw], Phrase], ...] = (
    lambda draw: _goal(draw, _AT),
    lambda draw: _goal(draw, _AT),
    lambda draw: _in(draw, _ROOMS),
    lambda draw: join(say(draw, draw.pick(_ABOUT)), plain(draw, draw.pick(_GOALS))),
    lambda draw: _house(draw, "at"),
    lambda draw: say(draw, AT_HOME),
    home,
)
_DESTINATIONS: tuple[Callable[[Draw], Phrase], ...] = (
    lambda draw: _goal(draw, TO),
    lambda draw: _goal(draw, TO),
    lambda draw: _goal(draw, TO),
    lambda draw: _city(draw, TO),
    lambda draw: say(draw, draw.pick(_TO_COUNTRY)),
    lambda draw: _house(draw, "to"),
)
# What people do in which places; they work anywhere.
_PLACES_OF: dict[str, tuple[Noun, ...]] = {
    infinitive: tuple(map(noun, places))
    for infinitive, places in {
        "dormir": ("chambre", "maison", "jardin"),
        "courir": ("parc", "forêt", "rue", "champ"),
        "nager": ("lac", "rivière"),
        "danser": ("rue", "cuisine", "jardin"),
        "jouer": ("jardin", "parc", "rue", "champ"),
        "chanter": ("rue", "cuisine", "jardin"),
        "pleurer": ("chambre", "cuisine"),
    }.items()
}


def place(draw: Draw) -> Phrase:
    """Where people are."""
    return draw.pick(_PLACES)(draw)


def destination(draw: Draw) -> Phrase:
    """Where people go."""
    return draw.pick(_DESTINATIONS)(draw)


def place_of(draw: Draw, infinitive: str) -> Phrase:
    """Where people do this."""
    places = _PLACES_OF.get(infinitive)
    return _in(draw, places) if places else place(draw)
