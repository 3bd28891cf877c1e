"""Nouns of the phrasebook, with what each is a kind of.

Kinds (person, food, path, …) are the selectional restrictions: verbs ask for kinds and adjectives are said of
kinds, so that people read books and roads are wide, and never the other way round.
"""

from dataclasses import dataclass

from clearhead.data.phrasebook.inflection import english_plural, french_plural

__all__ = ["JOBS", "NAMES", "NOUNS", "Noun", "noun", "nouns_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    """One noun: (singular, plural) in each language, its gender, the English pronoun for one of it, its kinds."""

    fr: tuple[str, str]
    en: tuple[str, str]
    gender: int
    pronoun: str
    kinds: frozenset[str]


# French[/plural], gender, English[/plural], kinds; "/-" has no plural here and is of the kind "single".
# Kin always has a possessive, an "own" noun may have one.
_NOUNS = """
garçon        m boy             person youth
fille         f girl            person youth
homme         m man/men         person adult
femme         f woman/women     person adult
enfant        m child/children  person youth
étudiant      m student         person adult job
étudiante     f student         person adult job
professeur    m teacher         person adult job own
professeure   f teacher         person adult job own
médecin       m doctor          person adult job own
boulanger     m baker           person adult job
boulangère    f baker           person adult job
fermier       m farmer          person adult job
fermière      f farmer          person adult job
chanteur      m singer          person adult job
chanteuse     f singer          person adult job
voisin        m neighbor        person adult own
voisine       f neighbor        person adult own
ami           m friend          person kin had
amie          f friend          person kin had
père/-        m father          person kin
mère/-        f mother          person kin
frère         m brother         person kin had
sœur          f sister          person kin had
fils          m son             person kin had
fille         f daughter        person kin had
oncle/-       m uncle           person kin
tante/-       f aunt            person kin
animal        m animal          animal walker burden
chien         m dog             animal walker pet hunter seen
chat          m cat             animal walker pet hunter seen
lapin         m rabbit          animal walker pet prey seen
souris        f mouse/mice      animal walker prey seen
oiseau        m bird            animal prey seen
tortue        f turtle          animal walker pet seen
poule         f hen             animal walker prey seen
vache         f cow             animal walker seen
chèvre        f goat            animal walker seen burden
mouton        m sheep/sheep     animal walker prey seen
cheval        m horse           animal walker seen burden
âne           m donkey          animal walker seen burden
éléphant      m elephant        animal walker seen burden
ours          m bear            animal walker seen burden
loup          m wolf/wolves     animal walker hunter seen
singe         m monkey          animal walker seen burden
grenouille    f frog            animal walker seen
pomme         f apple           food fruit feed tinted gift
poire         f pear            food fruit feed gift
orange        f orange          food fruit gift
fraise        f strawberry      food fruit
carotte       f carrot          food feed
gâteau        m cake            food cooked gift
salade        f salad           food cooked
pain/-        m bread           food feed mass
fromage/-     m cheese          food feed mass
viande/-      f meat            food feed mass cooked
poisson/-     m fish            food feed mass cooked
soupe/-       f soup            food mass cooked
chocolat/-    m chocolate       food mass gift
eau/-         f water           drink mass
lait/-        m milk            drink mass
café/-        m coffee          drink mass brewed
thé/-         m tea             drink mass brewed
vin/-         m wine            drink mass
jus/-         m juice           drink mass
livre         m book            readable written thing gift lent
journal       m newspaper       readable
lettre        f letter          readable written opening sent
histoire      f story           readable written meant
poème         m poem            readable written meant learned
leçon         f lesson          meant learned
chanson       f song            music learned
film          m movie           film
clé           f key             thing lent
sac           m bag             thing colored load lent
valise        f suitcase        thing colored load opening closing lent
boîte         f box             colored load opening closing
pierre/-      f stone           load
stylo         m pen             thing colored lent
montre        f watch           thing gift
parapluie     m umbrella        thing colored lent
téléphone     m phone           thing machine lent
ordinateur    m computer        thing machine
guitare       f guitar          thing lent
cadeau        m gift            sent
jouet         m toy             thing gift
ballon        m ball            thing gift
rose          f rose            flower gift sent
fleur         f flower          flower gift sent
robe          f dress           clothes colored
chemise       f shirt           clothes colored
manteau       m coat            clothes colored
chapeau       m hat             clothes colored gift
chaussure     f shoe            clothes colored
verre         m glass           dish fragile
assiette      f plate           dish fragile
bouteille     f bottle          dish fragile opening closing
voiture       f car             vehicle colored driven
camion        m truck           vehicle colored driven
vélo          m bike            vehicle colored lent gift
bateau        m boat            vehicle colored
train/-       m train           transport
bus           m bus             transport driven
table/-       f table           furniture load
chaise        f chair           furniture colored load
lit/-         m bed             furniture
porte         f door            opening closing colored
fenêtre       f window          opening closing fragile
maison/-      f house           building inside
école/-       f school          goal bare
église/-      f church          goal bare sight
gare/-        f station         goal
hôtel/-       m hotel           goal building
marché/-      m market          goal
musée/-       m museum          goal sight building
bureau/-      m office          goal
hôpital/-     m hospital        goal building
magasin/-     m store           goal building
restaurant/-  m restaurant      goal building
plage/-       f beach           goal sight
parc/-        m park            goal inside outside
jardin/-      m garden          inside outside
forêt/-       f forest          inside outside path
cuisine/-     f kitchen         inside
chambre/-     f bedroom         inside
village/-     m village         inside sight
route/-       f road            path
rue/-         f street          path inside outside
avenue/-      f avenue          path
rivière/-     f river           path
pont/-        m bridge          path sight
champ/-       m field           path inside outside
place/-       f square          path
lac/-         m lake            path
mur/-         m wall            climbed
montagne/-    f mountain        climbed
colline/-     f hill            climbed
rocher/-      m rock            climbed
"""
_MEN = ("Paul", "Thomas", "Marc", "Lucas", "David", "Karim", "Daniel", "Victor")
_WOMEN = ("Susan", "Mary", "Anna", "Julie", "Emma", "Sarah", "Alice", "Nadia")


def _read(line: str) -> Noun:
    french, letter, english, *kinds = line.split()
    gender = "mf".index(letter)
    (one, _, many), (en_one, _, en_many) = french.partition("/"), english.partition("/")
    if many == "-":
        many, en_many, kinds = one, en_one, [*kinds, "single"]
    pronoun = ("he", "she")[gender] if "person" in kinds else "it"
    fr, en = (one, many or french_plural(one)), (en_one, en_many or english_plural(en_one))
    return Noun(fr, en, gender, pronoun, frozenset(kinds))


NOUNS: tuple[Noun, ...] = tuple(map(_read, _NOUNS.strip().splitlines()))
NAMES: tuple[Noun, ...] = tuple(
    Noun((name, name), (name, name), gender, ("he", "she")[gender], frozenset({"person", "adult", "name", "single"}))
    for gender, names in enumerate((_MEN, _WOMEN))
    for name in names
)


def nouns_of(*kinds: str) -> tuple[Noun, ...]:
    """The nouns of any of these kinds, in the order of the table."""
    return tuple(noun for noun in NOUNS if not noun.kinds.isdisjoint(kinds))


def noun(french: str) -> Noun:
    """The first noun or name whose singular is `french`."""
    return next(noun for noun in (*NOUNS, *NAMES) if noun.fr[0] == french)


# The word for a man and for a woman.
JOBS: tuple[tuple[Noun, Noun], ...] = (
    (noun("étudiant"), noun("étudiante")),
    (noun("professeur"), noun("professeure")),
    (noun("médecin"), noun("médecin")),
    (noun("boulanger"), noun("boulangère")),
    (noun("fermier"), noun("fermière")),
    (noun("chanteur"), noun("chanteuse")),
)
