"""Relative clauses: who, and that as a subject or as an object."""

from clearhead.data.phrasebook.adjectives import said_of
from clearhead.data.phrasebook.adjuncts import wild
from clearhead.data.phrasebook.clauses import deed
from clearhead.data.phrasebook.grammar import Draft, Draw, Phrase, plain, pronoun
from clearhead.data.phrasebook.nouns import nouns_of
from clearhead.data.phrasebook.phrases import PEOPLE, person
from clearhead.data.phrasebook.predicates import Act, state
from clearhead.data.phrasebook.states import being
from clearhead.data.phrasebook.verbs import FRAMES, verb

__all__ = ["relative"]


def _with_clause(head: Phrase, clause: Phrase) -> Phrase:
    return head._replace(fr=[*head.fr, *clause.fr], en=[*head.en, *clause.en])


def _doing(draw: Draw, head: Phrase, what: str = "who") -> Phrase:
    """The relative pronoun as a subject; it agrees as its head does."""
    return pronoun(draw, "qui", what, head.person, head.gender)._replace(pronoun=head.pronoun)


_SEEN = nouns_of("seen")
_DOINGS = ("acheter", "trouver", "choisir", "préparer", "lire", "réparer", "écouter", "laver", "vendre")
_DONE = tuple(frame for frame in FRAMES if frame.verb.infinitive in _DOINGS)


def _one_who(draw: Draw) -> Phrase:
    """La fille qui a ouvert la porte."""
    head = plain(draw, draw.pick(PEOPLE), "the", int(draw.chance(0.2)))
    return _with_clause(head, deed(draw, "past", "", _doing(draw, head)).state(draw))


def _animal_that(draw: Draw) -> Phrase:
    """Le chien qui a dormi dans le jardin."""
    head = plain(draw, draw.pick(_SEEN), "the", int(draw.chance(0.2)))
    return _with_clause(head, state(draw, _doing(draw, head, "that"), Act(verb("dormir"), "past"), wild(draw)))


def _thing_that(draw: Draw) -> Phrase:
    """La voiture que Paul a achetée."""
    frame = draw.pick(_DONE)
    chosen = draw.pick(frame.objects)
    while not said_of(chosen):
        chosen = draw.pick(frame.objects)
    head = plain(draw, chosen, "the", int("single" not in chosen.kinds and draw.chance(0.2)))
    link = draw.link()
    told = state(draw, person(draw), Act(frame.verb, "past", agreement=head.form))
    return _with_clause(head, Phrase([("que", link), *told.fr], [("that", link), *told.en]))


def relative(draw: Draw) -> Draft:
    """Le livre que Paul a lu est intéressant; je connais la femme qui a vendu la voiture."""
    if draw.chance(0.25):
        return Draft(state(draw, person(draw), Act(verb("connaître")), _one_who(draw)))
    head = draw.pick((_one_who, _animal_that, _thing_that, _thing_that))(draw)
    return Draft(being(draw, head, "imperfect" if draw.chance(0.2) else "present").state(draw))
