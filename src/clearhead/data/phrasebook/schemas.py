"""Schema sentences: one pronoun, two nouns, and an adjective that decides which of them is meant.

    The animal didn't cross the road because it was too tired.      it = the animal
    The animal didn't cross the road because it was too wide.       it = the road

French has to know: il or elle takes the gender of the noun that is meant. With a person as the subject English
has to know too: he or she was tired, it was wide. Reasons of the doer and of the thing never overlap.
"""

from typing import NamedTuple

from clearhead.data.phrasebook.adjectives import Adjective, adjective
from clearhead.data.phrasebook.adjuncts import time
from clearhead.data.phrasebook.clauses import COMMA
from clearhead.data.phrasebook.grammar import (
    DETERMINERS,
    Draft,
    Draw,
    Idiom,
    Phrase,
    again,
    idiom,
    join,
    noun_phrase,
    plain,
    say,
)
from clearhead.data.phrasebook.nouns import NAMES, Noun, noun, nouns_of
from clearhead.data.phrasebook.phrases import OWNERS, PEOPLE
from clearhead.data.phrasebook.predicates import Act, state
from clearhead.data.phrasebook.states import FEEL, FEELINGS, quality
from clearhead.data.phrasebook.verbs import CARRY, ETRE, Verb, verb

__all__ = ["BECAUSE", "DOER_REASONS", "SCHEMAS", "THING_REASONS", "Schema", "schema", "schema_sentence"]

BECAUSE, _TOO = idiom("parce1 que1 = because1"), idiom("trop1 = too1")
Reason = Adjective | Idiom


class Schema(NamedTuple):
    """A deed that was done or not, for reasons that lie in the doer or, thing by thing, in the thing."""

    verb: Verb
    done: bool
    doers: tuple[Noun, ...]
    own: tuple[Reason, ...]
    things: tuple[tuple[Noun, tuple[Adjective, ...]], ...]


# Verb, done or not, animals that do it, the doer's reasons; then thing: its reasons.
_SCHEMAS = """
traverser not walker fatigué malade faible paresseux effrayé nerveux timide jeune
  route large dangereux glissant boueux
  rue large dangereux bruyant sombre
  avenue large dangereux bruyant
  rivière large profond dangereux froid
  pont étroit glissant haut dangereux
  champ large boueux
  place large bruyant
  forêt sombre dangereux
  lac large profond froid
escalader not walker fatigué malade faible paresseux effrayé nerveux jeune
  mur haut glissant
  montagne haut raide dangereux
  colline haut raide
  rocher haut glissant raide dangereux
porter not burden fatigué malade faible paresseux jeune
  sac lourd
  valise lourd
  boîte lourd fragile
  table lourd
  pierre lourd
pousser not burden fatigué malade faible paresseux jeune
  voiture lourd
  camion lourd
  bateau lourd
  table lourd
  pierre lourd
manger not walker malade fatigué nerveux effrayé timide
  pomme dur sale
  poire dur sale
  carotte dur sale
  gâteau dur sec sucré
  pain dur sec sale
  fromage dur salé
  viande dur sec salé
  poisson sec salé
  soupe chaud salé froid
boire not walker malade nerveux effrayé timide
  eau froid chaud sale salé
  lait froid chaud
manger done walker hungry
  pomme mûr délicieux sucré
  poire mûr délicieux sucré
  fraise mûr délicieux sucré
  gâteau délicieux sucré
  viande délicieux
  fromage délicieux
  poisson délicieux
boire done walker thirsty
  eau froid propre
  lait froid délicieux
  jus froid délicieux sucré
traverser done walker curieux courageux
  route vide large
  rue vide large
  avenue vide large
  pont large
escalader done walker curieux courageux
  mur bas
  colline bas
"""


def _read(block: list[str]) -> Schema:
    head, *rows = (line.split() for line in block)
    infinitive, done, animals, *own = head
    things = [(noun(row[0]), tuple(map(adjective, row[1:]))) for row in rows]
    return Schema(
        verb=CARRY if infinitive == "porter" else verb(infinitive),
        done=done == "done",
        doers=nouns_of(animals),
        own=tuple(FEELINGS.get(word) or adjective(word) for word in own),
        things=tuple(things),
    )


def _blocks() -> list[list[str]]:
    blocks: list[list[str]] = []
    for line in _SCHEMAS.strip().splitlines():
        if line.startswith(" "):
            blocks[-1].append(line)
        else:
            blocks.append([line])
    return blocks


SCHEMAS: tuple[Schema, ...] = tuple(map(_read, _blocks()))
DOER_REASONS: frozenset[str] = frozenset(
    reason.en if isinstance(reason, Adjective) else reason.en[0][0] for schema in SCHEMAS for reason in schema.own
)
THING_REASONS: frozenset[str] = frozenset(
    reason.en for schema in SCHEMAS for _, reasons in schema.things for reason in reasons
)


def schema_sentence(
    draw: Draw, frame: Schema, doer: Phrase, thing: Phrase, meant: Phrase, reason: Reason, tense: str = "past"
) -> Draft:
    """Doer, deed, thing, because, pronoun, reason; `meant` is the doer or the thing."""
    negation = "" if frame.done else "pas"
    deed = state(draw, doer, Act(frame.verb, tense, negation), thing)
    it = again(draw, meant)
    then = "imperfect" if tense == "past" else "present"
    if isinstance(reason, Adjective):
        why = state(draw, it, Act(ETRE, then), quality(draw, reason, it.form, None if frame.done else _TOO))
    else:
        why = state(draw, it, Act(FEEL, then), say(draw, reason))
    return Draft(join(deed, say(draw, BECAUSE), why), ".", (it.link, meant.link))


_SIZES = tuple(adjective(word) for word in ("petit", "noir", "blanc", "gris"))


def _doer(draw: Draw, frame: Schema) -> Phrase:
    """An animal twice as often as a person."""
    if draw.chance(0.35):
        return plain(draw, draw.pick(NAMES)) if draw.chance(0.4) else plain(draw, draw.pick(PEOPLE))
    noun = draw.pick(frame.doers)
    if "pet" in noun.kinds and draw.chance(0.2):
        return noun_phrase(draw, noun, draw.pick(OWNERS))
    quality = draw.pick(_SIZES) if draw.chance(0.2) else None
    return noun_phrase(draw, noun, DETERMINERS["this" if draw.chance(0.2) else "the"], 0, quality)


def schema(draw: Draw) -> Draft:
    """A schema sentence; the two readings are equally likely."""
    frame = draw.pick(_WEIGHTED)
    doer = _doer(draw, frame)
    noun, reasons = draw.pick(frame.things)
    thing = plain(draw, noun, "this" if draw.chance(0.2) else "the")
    tense = "present" if draw.chance(0.25) else "past"
    own = draw.chance(0.5)
    reason: Reason = draw.pick(frame.own) if own else draw.pick(reasons)
    said = schema_sentence(draw, frame, doer, thing, doer if own else thing, reason, tense)
    if tense == "past" and draw.chance(0.12):
        return said._replace(phrase=join(time(draw, "past"), say(draw, COMMA), said.phrase))
    return said


# Crossing is the literature's own case, and has the most things to cross.
_WEIGHTED = SCHEMAS + (SCHEMAS[0],) * 4 + (SCHEMAS[1],)
