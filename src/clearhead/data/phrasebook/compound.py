"""Sentences of two clauses: because, but, when, and."""

from clearhead.data.phrasebook.adjectives import adjective, said_of
from clearhead.data.phrasebook.adjuncts import AT_HOME, home
from clearhead.data.phrasebook.clauses import COMMA
from clearhead.data.phrasebook.grammar import (
    DETERMINERS,
    Draft,
    Draw,
    Phrase,
    again,
    idiom,
    join,
    noun_phrase,
    plain,
    pronoun,
    say,
)
from clearhead.data.phrasebook.nouns import noun, nouns_of
from clearhead.data.phrasebook.phrases import object_of, person, someone
from clearhead.data.phrasebook.predicates import Act, state
from clearhead.data.phrasebook.schemas import BECAUSE
from clearhead.data.phrasebook.states import FEEL, FEELINGS, quality
from clearhead.data.phrasebook.verbs import ETRE, FRAMES, GIFTS, verb

__all__ = ["contrast", "reason", "sequence", "weather"]

_BUT, _AND, _WHEN = idiom("mais1 = but1"), idiom("et1 = and1"), idiom("quand1 = when1")
_FRAMES = {frame.verb.infinitive: frame for frame in reversed(FRAMES) if frame.human}
_BACKGROUND = {"present": "present", "past": "imperfect"}

# What people do or leave, and the states that are a reason for it.
_CAUSES = (
    ("dormir", "", ("fatigué", "malade", "sleepy")),
    ("travailler", "pas", ("fatigué", "malade")),
    ("danser", "pas", ("fatigué", "malade", "triste", "timide")),
    ("pleurer", "", ("triste", "fatigué", "hungry", "afraid", "malade")),
    ("chanter", "", ("heureux",)),
    ("danser", "", ("heureux",)),
    ("manger", "", ("hungry",)),
    ("boire", "", ("thirsty",)),
    ("courir", "pas", ("fatigué", "malade")),
    ("nager", "pas", ("fatigué", "malade", "afraid", "cold")),
    ("jouer", "pas", ("fatigué", "malade", "triste")),
    ("venir", "pas", ("fatigué", "malade", "afraid")),
    ("rester", "", ("fatigué", "malade", "cold")),
)
_OUTDOORS = _CAUSES[-5:]
_SKY = {
    "present": (
        idiom("il1 pleut2 = it1 is2 raining2"),
        idiom("il1 neige2 = it1 is2 snowing2"),
        idiom("il1 fait2 froid3 = it1 is2 cold3"),
    ),
    "past": (
        idiom("il1 pleuvait2 = it1 was2 raining2"),
        idiom("il1 neigeait2 = it1 was2 snowing2"),
        idiom("il1 faisait2 froid3 = it1 was2 cold3"),
    ),
    "always": (
        idiom("il1 pleut2 = it1 rains2"),
        idiom("il1 neige2 = it1 snows2"),
        idiom("il1 fait2 froid3 = it1 is2 cold3"),
    ),
}


def _is_so(draw: Draw, subject: Phrase, how: str, tense: str) -> Phrase:
    """The subject is as `how` says: a French adjective, or a feeling by its English name."""
    if how in FEELINGS:
        return state(draw, subject, Act(FEEL, tense), say(draw, FEELINGS[how]))
    return state(draw, subject, Act(ETRE, tense), quality(draw, adjective(how), subject.form))


def _affected(draw: Draw, infinitive: str, tense: str, negation: str, subject: Phrase) -> Phrase:
    """What the subject does or leaves, with the object or place that the verb wants."""
    frame = _FRAMES.get(infinitive)
    with_it = [object_of(draw, frame, subject, tense, negation)] if frame else []
    with_it += [say(draw, AT_HOME)] if infinitive == "rester" else []
    return state(draw, subject, Act(verb(infinitive), tense, negation), *with_it)


def _because(draw: Draw, told: Phrase, cause: Phrase, it: Phrase, meant: Phrase) -> Draft:
    """Deed and cause; `it` is the pronoun that stands for `meant`, if that is a noun."""
    return Draft(join(told, say(draw, BECAUSE), cause), ".", (it.link, meant.link) if meant.noun else None)


def _state_reason(draw: Draw) -> Draft:
    """Paul ne danse pas parce qu'il est fatigué."""
    infinitive, negation, states = draw.pick(_CAUSES)
    tense, subject = draw.pick(("present", "past")), person(draw)
    told = _affected(draw, infinitive, tense, negation, subject)
    it = again(draw, subject)
    return _because(draw, told, _is_so(draw, it, draw.pick(states), _BACKGROUND[tense]), it, subject)


def _weather_reason(draw: Draw) -> Draft:
    """Nous restons à la maison parce qu'il pleut; quand il pleut, nous restons à la maison."""
    infinitive, negation, _ = draw.pick(_OUTDOORS)
    subject = person(draw)
    if draw.chance(0.5):
        when = join(say(draw, _WHEN), say(draw, draw.pick(_SKY["always"])), say(draw, COMMA))
        return Draft(join(when, _affected(draw, infinitive, "present", negation, subject)))
    tense = draw.pick(("present", "past"))
    told = _affected(draw, infinitive, tense, negation, subject)
    return Draft(join(told, say(draw, BECAUSE), say(draw, draw.pick(_SKY[tense]))))


def weather(draw: Draw) -> Draft:
    """Il pleut à Paris."""
    said = say(draw, draw.pick(_SKY[draw.pick(("present", "past"))]))
    return Draft(join(said, home(draw)) if draw.chance(0.7) else said)


_GOOD = {"beautiful", "pretty", "good", "interesting", "funny", "delicious", "useful", "fast", "quiet", "clean", "easy"}
_BAD = {"sad", "dirty", "expensive", "difficult", "cold", "old"}
_LIKABLE = nouns_of("thing", "clothes", "film", "music", "readable", "food", "drink", "vehicle", "sight", "meant")
_LIKED = {
    negation: tuple(
        (noun, words)
        for noun in _LIKABLE
        if "path" not in noun.kinds and (words := tuple(word for word in said_of(noun) if word.en in wanted))
    )
    for negation, wanted in (("", _GOOD), ("pas", _BAD))
}


def _liking(draw: Draw) -> Draft:
    """J'aime ce livre parce qu'il est intéressant: the pronoun stands for the thing."""
    negation = draw.pick(("", "pas"))
    noun, words = draw.pick(_LIKED[negation])
    thing = plain(draw, noun, "this", int("single" not in noun.kinds and draw.chance(0.2)))
    told = state(draw, person(draw), Act(verb("aimer"), "present", negation), thing)
    it = again(draw, thing)
    cause = state(draw, it, Act(ETRE), quality(draw, draw.pick(words), it.form))
    return _because(draw, told, cause, it, thing)


_BOUGHT, _SIGHTS = nouns_of("vehicle", "machine", "clothes"), nouns_of("sight")
_WISHES = (("travailler", "acheter", "a", _BOUGHT), ("partir", "visiter", "the", _SIGHTS))


def _wish(draw: Draw) -> Draft:
    """Paul travaille parce qu'il veut acheter une voiture."""
    infinitive, wished, determiner, things = draw.pick(_WISHES)
    subject = person(draw)
    told = state(draw, subject, Act(verb(infinitive)))
    it, what = again(draw, subject), plain(draw, draw.pick(things), determiner)
    return _because(draw, told, state(draw, it, Act(verb(wished), "want"), what), it, subject)


def reason(draw: Draw) -> Draft:
    """A sentence with because, or with when in its place."""
    return draw.pick((_state_reason, _state_reason, _weather_reason, _liking, _liking, _wish))(draw)


# First done, then not done to the same thing.
_UNDONE = (
    ("acheter", "lire", ("livre", "journal")),
    ("chercher", "trouver", ("clé", "sac", "stylo", "montre", "parapluie", "téléphone", "chapeau", "livre")),
    ("préparer", "manger", ("gâteau", "salade", "viande", "poisson", "soupe")),
    ("acheter", "manger", ("pomme", "poire", "orange", "fraise", "fromage", "pain")),
    ("lire", "comprendre", ("histoire", "poème", "lettre", "leçon", "livre")),
    ("ouvrir", "fermer", ("porte", "fenêtre", "boîte", "valise", "bouteille")),
    ("écrire", "envoyer", ("lettre",)),
    ("choisir", "acheter", ("robe", "chemise", "manteau", "chapeau")),
)
_IT = {(2, 0): ("le", "it"), (2, 1): ("la", "it"), (5, 0): ("les", "them"), (5, 1): ("les", "them")}


def _undone(draw: Draw) -> Draft:
    """Paul a lu l'histoire mais il ne l'a pas comprise."""
    first, second, nouns = draw.pick(_UNDONE)
    chosen, subject = noun(draw.pick(nouns)), person(draw)
    plural = int("single" not in chosen.kinds and draw.chance(0.25))
    thing = plain(draw, chosen, draw.pick(("the", "the", "this")), plural)
    told = state(draw, subject, Act(verb(first), "past"), thing)
    it = pronoun(draw, *_IT[thing.person, thing.gender], thing.person, thing.gender)
    rest = state(draw, again(draw, subject), Act(verb(second), "past", "pas", clitic=it, agreement=thing.form))
    return Draft(join(told, say(draw, _BUT), rest))


_TASTES = (nouns_of("food"), nouns_of("drink"), nouns_of("seen"), nouns_of("fruit", "cooked"))


def _taste(draw: Draw) -> Draft:
    """Mary aime le thé mais elle n'aime pas le café."""
    nouns, subject, aimer = draw.pick(_TASTES), person(draw), verb("aimer")
    one, other = draw.pick(nouns), draw.pick(nouns)
    while one is other:
        other = draw.pick(nouns)
    left, right = (plain(draw, liked, "generic", int("single" not in liked.kinds)) for liked in (one, other))
    told = state(draw, subject, Act(aimer), left)
    return Draft(join(told, say(draw, _BUT), state(draw, again(draw, subject), Act(aimer, "present", "pas"), right)))


_OPPOSED = (
    ("person", "riche", "triste"),
    ("person", "pauvre", "heureux"),
    ("person", "jeune", "courageux"),
    ("person", "fatigué", "heureux"),
    ("person", "riche", "honnête"),
    ("driven", "vieux", "rapide"),
    ("clothes", "cher", "beau"),
    ("readable", "long", "intéressant"),
    ("film", "triste", "beau"),
    ("burden", "petit", "fort"),
    ("machine", "vieux", "utile"),
)
_OPPOSABLE = {kind: nouns_of(kind) for kind, _, _ in _OPPOSED}


def _opposition(draw: Draw) -> Draft:
    """La voiture est vieille mais elle est rapide."""
    kind, one, other = draw.pick(_OPPOSED)
    subject = person(draw) if kind == "person" else plain(draw, draw.pick(_OPPOSABLE[kind]), draw.pick(("the", "this")))
    told = _is_so(draw, subject, one, "present")
    return Draft(join(told, say(draw, _BUT), _is_so(draw, again(draw, subject), other, "present")))


def contrast(draw: Draw) -> Draft:
    """A sentence with but."""
    return draw.pick((_undone, _undone, _taste, _opposition))(draw)


_MEETINGS = tuple(map(verb, ("rencontrer", "appeler", "inviter", "voir")))
_BOTH = tuple(map(verb, ("chanter", "danser", "travailler", "dormir", "jouer", "courir", "nager")))
_FIRST, _THEN = (
    tuple(map(verb, ("partir", "pleurer", "danser", "chanter"))),
    tuple(map(verb, ("arriver", "partir", "chanter"))),
)


def _meeting(draw: Draw) -> Draft:
    """Paul a rencontré Mary et il lui a donné des roses: « lui » is the one whom « il » is not."""
    one, other = someone(draw), someone(draw)
    while one.person != 2 or other.person != 2 or one.gender == other.gender or one.en[-1][0] == other.en[-1][0]:
        one, other = someone(draw), someone(draw)
    told = state(draw, one, Act(draw.pick(_MEETINGS), "past"), other)
    whom, frame = pronoun(draw, "lui", ("him", "her")[other.gender], 2), draw.pick(GIFTS)
    gift = draw.pick(frame.objects)
    what = noun_phrase(
        draw, gift, DETERMINERS["a" if "mass" not in gift.kinds else "some"], int("flower" in gift.kinds)
    )
    given = state(draw, again(draw, one), Act(frame.verb, "past", clitic=whom), what)
    return Draft(join(told, say(draw, _AND), given))


def _pair_of_events(draw: Draw) -> Draft:
    """Paul est parti quand Mary est arrivée; Paul chante et Mary danse."""
    when = draw.chance(0.5)
    firsts, seconds, word = (_FIRST, _THEN, _WHEN) if when else (_BOTH, _BOTH, _AND)
    first, second, one, other = draw.pick(firsts), draw.pick(seconds), person(draw), person(draw)
    while second is first:
        second = draw.pick(seconds)
    while other.en[-1][0] == one.en[-1][0]:
        other = person(draw)
    tense = "past" if when or draw.chance(0.5) else "present"
    return Draft(join(state(draw, one, Act(first, tense)), say(draw, word), state(draw, other, Act(second, tense))))


def sequence(draw: Draw) -> Draft:
    """A sentence with and, or with when."""
    return draw.pick((_meeting, _pair_of_events))(draw)
