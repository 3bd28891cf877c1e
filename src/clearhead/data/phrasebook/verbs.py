"""Verbs of the phrasebook, and who may do what to what.

English needs the simple present and past and the base form only: the French present is the simple present,
passé composé the simple past, futur proche "going to".
"""

from dataclasses import dataclass, replace

from clearhead.data.phrasebook.inflection import english_past, english_third, four_forms, french_present
from clearhead.data.phrasebook.nouns import NAMES, Noun, nouns_of

__all__ = [
    "AVOIR",
    "CARRY",
    "ETRE",
    "FRAMES",
    "GENERIC",
    "GIFTS",
    "HELPERS",
    "Frame",
    "Helper",
    "Verb",
    "like_be",
    "verb",
]

# The six forms of the present and the participle of verbs that no rule covers.
_IRREGULAR = """
être       suis es est sommes êtes sont été
avoir      ai as a avons avez ont eu
aller      vais vas va allons allez vont allé
vouloir    veux veux veut voulons voulez veulent voulu
pouvoir    peux peux peut pouvons pouvez peuvent pu
devoir     dois dois doit devons devez doivent dû
venir      viens viens vient venons venez viennent venu
partir     pars pars part partons partez partent parti
dormir     dors dors dort dormons dormez dorment dormi
courir     cours cours court courons courez courent couru
boire      bois bois boit buvons buvez boivent bu
lire       lis lis lit lisons lisez lisent lu
écrire     écris écris écrit écrivons écrivez écrivent écrit
voir       vois vois voit voyons voyez voient vu
ouvrir     ouvre ouvres ouvre ouvrons ouvrez ouvrent ouvert
prendre    prends prends prend prenons prenez prennent pris
comprendre comprends comprends comprend comprenons comprenez comprennent compris
apprendre  apprends apprends apprend apprenons apprenez apprennent appris
conduire   conduis conduis conduit conduisons conduisez conduisent conduit
connaître  connais connais connaît connaissons connaissez connaissent connu
"""

# Infinitive[/strong stem], English base[+particle], English past ("-" for -ed), traits: with être, reflexive (se).
_VERBS = """
manger eat ate
boire drink drank
lire read read
écrire write wrote
acheter/achèt buy bought
vendre sell sold
voir see saw
regarder watch -
chercher look+for -
trouver find found
perdre lose lost
ouvrir open -
fermer close -
laver wash -
casser break broke
prendre take took
préparer prepare -
réparer repair -
conduire drive drove
visiter visit -
traverser cross -
escalader climb -
pousser push -
aimer like -
adorer love -
connaître know knew
attendre wait+for -
écouter listen+to -
aider help -
appeler/appell call -
inviter invite -
rencontrer meet met
comprendre understand understood
apprendre learn -
parler speak spoke
finir finish -
choisir choose chose
chasser chase -
donner give gave
montrer show -
envoyer/envoi send sent
apporter bring brought
prêter lend lent
dormir sleep slept
courir run ran
danser dance -
nager swim swam
travailler work -
jouer play -
chanter sing sang
pleurer cry -
habiter live -
aller go went être
venir come came être
arriver arrive - être
partir leave left être
rester stay - être
lever/lèv get+up got être se
habiller get+dressed got être se
coucher go+to+bed went être se
"""

# Verb; who does it; to what. Two rows of one verb are two sets of fitting pairs.
_FRAMES = """
manger; person; food
manger; animal; feed
boire; person; drink
lire; person; readable
écrire; person; written
acheter; person; fruit gift thing clothes flower vehicle
vendre; person; clothes vehicle fruit
voir; person; animal vehicle person film
regarder; person; film seen
chercher; person; thing clothes pet
trouver; person; thing clothes
perdre; person; thing
ouvrir; person; opening
fermer; person; closing
laver; person; clothes dish driven
casser; person; fragile
prendre; person; thing transport
préparer; person; cooked brewed
réparer; person; machine vehicle
conduire; person; driven
visiter; person; sight
traverser; person walker; path
aimer; person; food drink music film seen
adorer; person; food drink music film seen flower
attendre; person; transport person
écouter; person; music
aider; person; person
appeler; person; person
inviter; person; person
rencontrer; person; person
comprendre; person; meant
apprendre; person; learned
finir; person; readable learned
choisir; person; clothes gift fruit
chasser; hunter; prey
avoir; person; pet vehicle thing had own
connaître; person; person music sight
"""
_GIFTS = {
    "donner": ("gift", "thing", "flower", "sent"),
    "montrer": ("thing", "sent"),
    "envoyer": ("sent",),
    "apporter": ("gift", "flower", "sent"),
    "prêter": ("lent",),
}


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """One verb in both languages, by the six persons; an English `auxiliary` needs no do-support."""

    infinitive: str
    present: tuple[str, ...]
    participles: tuple[str, ...]
    base: str
    particle: tuple[str, ...]
    en_present: tuple[str, ...]
    en_past: tuple[str, ...]
    with_etre: bool = False
    reflexive: bool = False
    auxiliary: bool = False

    def imperfect(self, person: int) -> str:
        """L'imparfait, from the stem of "nous"; être alone has a stem of its own."""
        stem = "ét" if self.infinitive == "être" else self.present[3].removesuffix("ons")
        return stem + ("ais", "ais", "ait", "ions", "iez", "aient")[person]


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A verb with those who may do it (people, these animals) and what they may do it to.

    `pronoun` is what a French direct object le or la becomes: "it", "him" (or "her"), or "" where both may be meant.
    """

    verb: Verb
    human: bool
    animals: tuple[Noun, ...]
    objects: tuple[Noun, ...]
    pronoun: str


@dataclass(frozen=True, slots=True)
class Helper:
    """A French verb before an infinitive, and what English says there: aller is be, going to."""

    fr: Verb
    en: Verb
    link: tuple[str, ...]


def _make(french: str, english: str, past: str = "-", *traits: str) -> Verb:
    infinitive, _, strong = french.partition("/")
    irregular = _PRESENTS.get(infinitive)
    present, participle = (irregular[:6], irregular[6]) if irregular else french_present(infinitive, strong)
    base, *particle = english.split("+")
    third = "has" if base == "have" else english_third(base)
    return Verb(
        infinitive=infinitive,
        present=present,
        participles=four_forms(participle, participle + "e"),
        base=base,
        particle=tuple(particle),
        en_present=(base, base, third, base, base, base),
        en_past=(english_past(base) if past == "-" else past,) * 6,
        with_etre="être" in traits,
        reflexive="se" in traits,
    )


def like_be(french: Verb) -> Verb:
    """A verb that English says with "be", as « avoir faim » is to be hungry."""
    present, past = ("am", "are", "is", "are", "are", "are"), ("was", "were", "was", "were", "were", "were")
    return replace(french, base="be", en_present=present, en_past=past, auxiliary=True)


_PRESENTS = {row[0]: tuple(row[1:]) for row in map(str.split, _IRREGULAR.strip().splitlines())}
_TABLE = {made.infinitive: made for made in (_make(*line.split()) for line in _VERBS.strip().splitlines())}
ETRE, AVOIR = like_be(_make("être", "be")), _make("avoir", "have", "had")
_WEAR, CARRY = _make("porter", "wear", "wore"), _make("porter", "carry")
_WANT, _CAN = _make("vouloir", "want"), replace(_make("pouvoir", "can"), en_present=("can",) * 6, auxiliary=True)
HELPERS: dict[str, Helper] = {
    "future": Helper(_TABLE["aller"], ETRE, ("going", "to")),
    "want": Helper(_WANT, _WANT, ("to",)),
    "can": Helper(_CAN, _CAN, ()),
    "must": Helper(_make("devoir", "have"), AVOIR, ("to",)),
}
GENERIC = frozenset({"aimer", "adorer"})


def verb(infinitive: str) -> Verb:
    """The verb of that infinitive."""
    return _TABLE[infinitive]


def _objects(*kinds: str) -> tuple[Noun, ...]:
    return nouns_of(*kinds) + (NAMES if "person" in kinds else ())


_PRONOUNS = {frozenset({"it"}): "it", frozenset({"he", "she"}): "him"}


def _frames() -> tuple[Frame, ...]:
    rows = [[part.split() for part in line.split(";")] for line in _FRAMES.strip().splitlines()]
    told = [((_TABLE | {"avoir": AVOIR})[doing[0]], who, _objects(*what)) for doing, who, what in rows]
    told += [(_WEAR, ["person"], nouns_of("clothes")), (CARRY, ["person"], nouns_of("load"))]
    frames = []
    for doing, who, what in told:
        meant = frozenset(noun.pronoun for other, _, objects in told if other is doing for noun in objects)
        # « Porter » is to wear or to carry, which only a full noun tells: no pronoun stands for its object.
        pronoun = "" if doing in (_WEAR, CARRY) else _PRONOUNS.get(meant, "")
        animals = nouns_of(*(kind for kind in who if kind != "person"))
        frames.append(Frame(doing, "person" in who, animals, what, pronoun))
    return tuple(frames)


FRAMES: tuple[Frame, ...] = _frames()
GIFTS: tuple[Frame, ...] = tuple(
    Frame(_TABLE[word], True, (), _objects(*kinds), "it") for word, kinds in _GIFTS.items()
)
