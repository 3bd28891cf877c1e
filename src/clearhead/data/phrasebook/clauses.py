"""What people and animals do: events, from which statements, questions and longer sentences are made."""

from collections.abc import Callable
from typing import NamedTuple

from clearhead.data.phrasebook.adjuncts import TO, destination, home, hour, place, place_of, time, wild
from clearhead.data.phrasebook.grammar import Draft, Draw, Phrase, idiom, join, pronoun, say
from clearhead.data.phrasebook.phrases import (
    ANY_DETERMINER,
    DEFINITE,
    animal,
    object_of,
    object_pronoun,
    person,
    someone,
)
from clearhead.data.phrasebook.predicates import Act, state
from clearhead.data.phrasebook.verbs import FRAMES, GENERIC, GIFTS, Frame, verb

__all__ = ["COMMA", "Event", "deed", "event", "narration"]

COMMA = idiom(",1 = ,1")
_ADVERBS = (idiom("souvent1 = often1"), idiom("toujours1 = always1"), idiom("parfois1 = sometimes1"))
_TENSES = ("present",) * 9 + ("past",) * 8 + ("future",) * 3 + ("want", "want", "can", "must")
_NEGATIONS = {"present": ("pas",) * 4 + ("jamais", "plus"), "past": ("pas",) * 4 + ("jamais",), "must": ("",)}
_STATIVE = frozenset({"avoir", "connaître", "habiter", *GENERIC})
_ACCIDENTS = frozenset({"perdre", "casser", "trouver", "rencontrer"})
_GROWN = frozenset({"conduire", "réparer", "vendre"})
_HUMAN = tuple(frame for frame in FRAMES if frame.human)


class Event(NamedTuple):
    """Somebody who does something: what a statement, a question or a clause can be made of."""

    subject: Phrase
    act: Act
    complements: tuple[Phrase, ...] = ()

    def state(self, draw: Draw) -> Phrase:
        return state(draw, self.subject, self.act, *self.complements)


def _mood(draw: Draw) -> tuple[str, str]:
    """A tense, and a negation that goes with it."""
    tense = draw.pick(_TENSES)
    return tense, draw.pick(_NEGATIONS.get(tense, ("pas",))) if draw.chance(0.25) else ""


def _fitting(infinitive: str, tense: str, negation: str) -> tuple[str, str]:
    """The tense and negation that this verb bears: a state is present, an accident has happened."""
    if infinitive == "adorer":
        return "present", ""
    if infinitive in _STATIVE:
        return "present", "pas" if negation == "jamais" else negation
    if infinitive in _ACCIDENTS:
        return "past", "pas" if negation else ""
    return tense, negation


def _doer(draw: Draw, frame: Frame) -> Phrase:
    if not frame.human or (frame.animals and draw.chance(0.4)):
        return animal(draw, frame.animals)
    subject = person(draw)
    while frame.verb.infinitive in _GROWN and subject.noun and "youth" in subject.noun.kinds:
        subject = person(draw)
    return subject


def deed(draw: Draw, tense: str, negation: str, subject: Phrase | None = None, frame: Frame | None = None) -> Event:
    """Somebody does something to something."""
    frame = frame or draw.pick(_HUMAN if subject else FRAMES)
    infinitive = frame.verb.infinitive
    tense, negation = _fitting(infinitive, tense, negation)
    subject = subject or _doer(draw, frame)
    habit = tense == "present" and not negation and infinitive not in _STATIVE and draw.chance(0.12)
    adverb = draw.pick(_ADVERBS) if habit else None
    clitic = object_pronoun(draw, frame, subject, tense) if draw.chance(0.18) else None
    if clitic:
        return Event(subject, Act(frame.verb, tense, negation, adverb, clitic, clitic.form))
    known = adverb or (negation and infinitive in _ACCIDENTS)
    what = object_of(draw, frame, subject, tense, negation, DEFINITE if known else ANY_DETERMINER)
    return Event(subject, Act(frame.verb, tense, negation, adverb), (what,))


# « Lui » would hide whether it is him or her.
_RECEIVERS = (("me", "me", 0), ("te", "you", 1), ("nous", "us", 3), ("vous", "you", 4), ("leur", "them", 5))


def _gift(draw: Draw, tense: str, negation: str, subject: Phrase | None = None) -> Event:
    """Somebody gives, shows, sends … something to somebody, who may be a pronoun before the verb."""
    frame = draw.pick(GIFTS)
    subject = subject or person(draw)
    thing = object_of(draw, frame, subject, tense, negation)
    receiver = draw.pick(_RECEIVERS)
    if draw.chance(0.3) and receiver[2] % 3 != subject.person % 3:
        return Event(subject, Act(frame.verb, tense, negation, clitic=pronoun(draw, *receiver)), (thing,))
    whom = someone(draw)
    while whom.noun is subject.noun:
        whom = someone(draw)
    return Event(subject, Act(frame.verb, tense, negation), (thing, say(draw, TO), whom))


_PASTIMES = tuple(map(verb, ("dormir", "courir", "nager", "danser", "travailler", "jouer", "chanter", "pleurer")))


def _pastime(draw: Draw, tense: str, negation: str, subject: Phrase | None = None) -> Event:
    """Somebody sleeps, works, plays …, perhaps somewhere; animals sleep and run."""
    human = subject is not None or draw.chance(0.75)
    chosen = draw.pick(_PASTIMES if human else _PASTIMES[:2])
    adverb = draw.pick(_ADVERBS) if tense == "present" and not negation and draw.chance(0.2) else None
    subject = subject or (person(draw) if human else animal(draw))
    where = ((place_of(draw, chosen.infinitive) if human else wild(draw)),) if draw.chance(0.5) else ()
    return Event(subject, Act(chosen, tense, negation, adverb), where)


_TRIPS: tuple[tuple[str, Callable[[Draw], Phrase]], ...] = (
    *[("aller", destination)] * 4,
    ("venir", destination),
    ("arriver", home),
    ("rester", place),
    ("habiter", home),
)


def _trip(draw: Draw, tense: str, negation: str, subject: Phrase | None = None) -> Event:
    """Somebody goes, comes, arrives, stays or lives somewhere, but not at their own house by name."""
    infinitive, where = draw.pick(_TRIPS)
    subject, there = subject or person(draw), where(draw)
    while there.fr[-1][0] in (subject.fr[0][0], subject.fr[-1][0]):
        there = where(draw)
    return Event(subject, Act(verb(infinitive), *_fitting(infinitive, tense, negation)), (there,))


_TIMED = tuple(map(verb, ("lever", "coucher", "habiller", "arriver", "partir")))


def _appointment(draw: Draw, tense: str, negation: str) -> Event:
    """Somebody gets up, goes to bed, arrives or leaves at a certain time."""
    return Event(person(draw), Act(draw.pick(_TIMED), tense, "pas" if negation else ""), (hour(draw),))


_EVENTS: tuple[Callable[..., Event], ...] = (deed,) * 12 + (_pastime,) * 3 + (_trip,) * 3 + (_gift,) * 4


def event(draw: Draw, tense: str, negation: str, subject: Phrase | None = None) -> Event:
    """A deed, a gift, a pastime or a trip."""
    return draw.pick(_EVENTS)(draw, tense, negation, subject)


def narration(draw: Draw) -> Draft:
    """A statement of what happens, often with its time, which may stand in front."""
    tense, negation = _mood(draw)
    if draw.chance(0.06):
        return Draft(_appointment(draw, tense, negation).state(draw))
    told = event(draw, tense, negation)
    act = told.act
    timeless = act.adverb or act.verb.infinitive in _STATIVE or act.negation in ("jamais", "plus")
    if timeless or (act.tense == "present" and act.negation) or not draw.chance(0.3):
        return Draft(told.state(draw))
    when = time(draw, act.tense)
    if draw.chance(0.3):
        return Draft(join(when, say(draw, COMMA), told.state(draw)))
    return Draft(join(told.state(draw), when))
