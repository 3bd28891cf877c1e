"""Adjectives of the phrasebook, with what each may be said of and where French puts it."""

from dataclasses import dataclass

from clearhead.data.phrasebook.inflection import four_forms
from clearhead.data.phrasebook.nouns import NAMES, NOUNS, Noun

__all__ = ["ADJECTIVES", "Adjective", "adjective", "attributes_of", "said_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    """One adjective: four French forms, the masculine before a vowel (bel, vieil), English, the kinds it is said of.

    place   "before" or "after" the French noun; "attribute": before it, but never after être; "predicate": only there
    """

    fr: tuple[str, ...]
    liaison: str
    en: str
    place: str
    kinds: frozenset[str]


# French masculine[/feminine[/masculine plural/masculine before a vowel]], place, English, kinds. « Un grand homme » is
# a great one: with people such a word is a predicate. The schemas alone say of what those without kinds are said.
_ADJECTIVES = """
petit                            before     small        youth animal thing load dish vehicle building furniture
grand                            before     big          animal thing load dish vehicle building furniture
grand                            predicate  tall         person
jeune                            before     young        person walker
vieux/vieille/vieux/vieil        before     old          adult animal thing clothes vehicle building machine film
beau/belle/beaux/bel             before     beautiful    animal flower clothes music sight written
joli/jolie                       before     pretty       flower clothes
nouveau/nouvelle/nouveaux/nouvel attribute  new          thing clothes vehicle machine film music
bon/bonne                        before     good         food drink film music readable
long/longue                      before     long         readable film
intelligent                      after      smart        person
gentil/gentille                  after      kind         person
riche                            after      rich         adult
pauvre                           after      poor         adult
célèbre                          after      famous       adult sight
courageux                        after      brave        person
honnête                          after      honest       adult
drôle                            after      funny        person film
malade                           after      sick         person animal
fatigué                          after      tired        person animal
heureux                          predicate  happy        person
triste                           predicate  sad          person
triste                           after      sad          film music
fort                             predicate  strong       person
fort                             after      strong       burden
noir                             after      black        animal colored
blanc/blanche                    after      white        animal colored
gris                             after      gray         animal colored
rouge                            after      red          colored tinted
vert                             after      green        colored tinted
bleu                             after      blue         colored
jaune                            after      yellow       colored tinted
cher                             after      expensive    thing clothes vehicle machine
rapide                           after      fast         driven machine transport
lourd                            after      heavy        load furniture
cassé                            after      broken       fragile machine
vide                             after      empty        dish load building
utile                            after      useful       lent machine meant
intéressant                      after      interesting  readable film meant sight
difficile                        after      difficult    meant
facile                           after      easy         meant
propre                           after      clean        clothes dish
sale                             after      dirty        clothes dish driven
froid                            after      cold         drink
chaud                            after      hot          brewed cooked
délicieux                        after      delicious    food
frais/fraîche                    after      fresh        fruit
ouvert                           predicate  open         closing goal
fermé                            predicate  closed       closing goal
dangereux                        after      dangerous    path climbed
large                            after      wide         path
calme                            after      quiet        inside goal
faible                           predicate  weak
paresseux                        predicate  lazy
timide                           predicate  shy
effrayé                          predicate  scared
nerveux                          predicate  nervous
curieux                          predicate  curious
étroit                           predicate  narrow
profond                          predicate  deep
haut                             predicate  high
bas/basse                        predicate  low
sombre                           predicate  dark
glissant                         predicate  slippery
raide                            predicate  steep
bruyant                          predicate  noisy
boueux                           predicate  muddy
fragile                          predicate  fragile
dur                              predicate  hard
sec/sèche                        predicate  dry
salé                             predicate  salty
sucré                            predicate  sweet
mûr                              predicate  ripe
"""


def _read(line: str) -> Adjective:
    french, place, english, *kinds = line.split()
    forms = french.split("/")
    return Adjective(
        four_forms(*forms[:3]), forms[3] if len(forms) == 4 else forms[0], english, place, frozenset(kinds)
    )


ADJECTIVES: tuple[Adjective, ...] = tuple(map(_read, _ADJECTIVES.strip().splitlines()))


def adjective(french: str) -> Adjective:
    """The first adjective whose masculine is `french`."""
    return next(adjective for adjective in ADJECTIVES if adjective.fr[0] == french)


def said_of(noun: Noun) -> tuple[Adjective, ...]:
    """The adjectives that may be said of `noun`, after être."""
    return _SAID_OF[noun]


def attributes_of(noun: Noun) -> tuple[Adjective, ...]:
    """The adjectives that may stand beside `noun`; beside a name or kin none does."""
    return _ATTRIBUTES[noun]


def _fitting(noun: Noun, barred: str) -> tuple[Adjective, ...]:
    return tuple(word for word in ADJECTIVES if word.place != barred and not word.kinds.isdisjoint(noun.kinds))


_SAID_OF = {noun: _fitting(noun, "attribute") for noun in (*NOUNS, *NAMES)}
_ATTRIBUTES = {
    noun: _fitting(noun, "predicate") if noun.kinds.isdisjoint({"kin", "name"}) else () for noun in (*NOUNS, *NAMES)
}
