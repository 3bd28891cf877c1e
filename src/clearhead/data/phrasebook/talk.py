"""Talk between people: questions, commands, answers, thanks and greetings."""

from collections.abc import Callable

from clearhead.data.phrasebook.clauses import COMMA, Event, event
from clearhead.data.phrasebook.grammar import (
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
from clearhead.data.phrasebook.nouns import nouns_of
from clearhead.data.phrasebook.phrases import DEFINITE, OWNERS, animal, name, object_of, person, someone, speaker
from clearhead.data.phrasebook.predicates import Act, ask
from clearhead.data.phrasebook.states import FARE, being, there_is
from clearhead.data.phrasebook.verbs import ETRE, FRAMES, GENERIC, GIFTS, Verb, verb

__all__ = ["THANK_YOU", "answer", "command", "greeting", "question", "thanks"]

_TENSES = ("present",) * 4 + ("past",) * 4 + ("future", "want", "can", "must")
_FRAMES = {frame.verb.infinitive: frame for frame in reversed(FRAMES) if frame.human}
_YOU = tuple(row for row in PRONOUNS if row[1] == "you")
_NO_WORD = idiom("=")
_WHERE, _WHEN, _WHY = idiom("où1 = where1"), idiom("quand1 = when1"), idiom("pourquoi1 = why1")
_HOW, _WHAT, _HOW_MANY = idiom("comment1 = how1"), idiom("que1 = what1"), idiom("combien1 de1 = how1 many1")
_MISSED = nouns_of("thing", "clothes", "goal")
_OWN = nouns_of("thing", "clothes")


def _asker(draw: Draw) -> Phrase:
    """Whom one asks about: mostly you, never oneself."""
    if draw.chance(0.5):
        return pronoun(draw, *draw.pick(_YOU))
    subject = person(draw)
    return subject if subject.person not in (0, 3) else someone(draw)


def _asked(draw: Draw, word: Phrase, asked: Event, tone: bool = True) -> Draft:
    """The question in a style that its subject allows; `tone` allows the plain order too."""
    subject = asked.subject
    inversion = subject.noun is None and len(subject.fr) == 1
    styles = ("est-ce que", *(("inversion",) if inversion else ()), *(("tone",) if tone else ()))
    return Draft(ask(draw, draw.pick(styles), word, subject, asked.act, *asked.complements), "?")


def _told_of(draw: Draw, tense: str, *infinitives: str) -> Event:
    """A deed to something definite: one asks when it was done to the car, not to some cars."""
    frame, subject = _FRAMES[draw.pick(infinitives)], _asker(draw)
    return Event(subject, Act(frame.verb, tense), (object_of(draw, frame, subject, tense, "", DEFINITE),))


_FACTS: tuple[Callable[[Draw], Event], ...] = (
    *[lambda draw: event(draw, draw.pick(_TENSES), "", _asker(draw))] * 4,
    lambda draw: being(draw, _asker(draw)),
    there_is,
)


def _whether(draw: Draw) -> Draft:
    """Est-ce que tu manges ? Manges-tu ? Tu manges ?"""
    return _asked(draw, say(draw, _NO_WORD), draw.pick(_FACTS)(draw))


_SOUGHT: tuple[Callable[[Draw], Phrase], ...] = (
    someone,
    animal,
    lambda draw: plain(draw, draw.pick(_MISSED)),
    lambda draw: noun_phrase(draw, draw.pick(_OWN), draw.pick(OWNERS)),
)
_SOMEWHERE = tuple(map(verb, ("aller", "travailler", "dormir", "jouer", "habiter")))
_SOMETIME = tuple(map(verb, ("partir", "arriver", "venir")))


def _where(draw: Draw) -> Draft:
    """Où est le chat ? Où as-tu acheté ce livre ? Tu vas où ?"""
    word = say(draw, _WHERE)
    if draw.chance(0.4):
        tense = "imperfect" if draw.chance(0.3) else "present"
        return Draft(ask(draw, "swap", word, draw.pick(_SOUGHT)(draw), Act(ETRE, tense)), "?")
    if draw.chance(0.5):
        return _asked(draw, word, _told_of(draw, "past", "acheter", "trouver", "perdre", "voir", "rencontrer"))
    chosen = draw.pick(_SOMEWHERE)
    tense = "present" if chosen is _SOMEWHERE[-1] else draw.pick(_TENSES)
    return _asked(draw, word, Event(_asker(draw), Act(chosen, tense)))


def _when(draw: Draw) -> Draft:
    """Quand est-ce que tu pars ? Quand as-tu vendu la voiture ?"""
    word = say(draw, _WHEN)
    if draw.chance(0.6):
        return _asked(draw, word, Event(_asker(draw), Act(draw.pick(_SOMETIME), draw.pick(_TENSES))))
    tense = draw.pick(("past", "past", "future"))
    return _asked(draw, word, _told_of(draw, tense, "acheter", "vendre", "visiter", "réparer", "finir", "voir"))


def _why(draw: Draw) -> Draft:
    """Pourquoi ne manges-tu pas ?"""
    negation = "pas" if draw.chance(0.4) else ""
    told = event(draw, draw.pick(("present", "past", "want")), negation, _asker(draw))
    return _asked(draw, say(draw, _WHY), told, tone=False)


def _how(draw: Draw) -> Draft:
    """Comment as-tu réparé la voiture ? Comment va ta mère ?"""
    word = say(draw, _HOW)
    if draw.chance(0.4):
        subject = _asker(draw) if draw.chance(0.5) else someone(draw)
        style = "swap" if subject.noun or len(subject.fr) > 1 else "inversion"
        return Draft(ask(draw, style, word, subject, Act(FARE)), "?")
    return _asked(draw, word, _told_of(draw, "past", "réparer", "ouvrir", "préparer", "trouver", "apprendre"))


def _who(draw: Draw) -> Draft:
    """Qui a ouvert la porte ? The question word is the subject: English needs no do."""
    who, tense = pronoun(draw, "qui", "who", 2), draw.pick(_TENSES)
    negation = "pas" if tense in ("present", "past") and draw.chance(0.2) else ""
    told = being(draw, who) if draw.chance(0.2) else event(draw, tense, negation, who)
    return Draft(told.state(draw), "?")


_BARRED = (*GENERIC, "traverser", "visiter", "perdre", "casser", "trouver")
_ASKABLE = tuple(frame for word, frame in _FRAMES.items() if frame.pronoun == "it" and word not in _BARRED)

_COUNTABLE = tuple(
    _FRAMES[word] for word in ("manger", "lire", "écrire", "acheter", "vendre", "ouvrir", "choisir", "prendre")
)


def _what(draw: Draw) -> Draft:
    """Qu'est-ce que tu manges ? Que manges-tu ?"""
    act = Act(draw.pick(_ASKABLE).verb, draw.pick(_TENSES))
    return _asked(draw, say(draw, _WHAT), Event(_asker(draw), act), tone=False)


def _which(draw: Draw) -> Draft:
    """Quelle pomme as-tu mangée ? Combien de livres as-tu lus ? The participle agrees with what is asked for."""
    frame = draw.pick(_COUNTABLE)
    noun = draw.pick(frame.objects)
    if "single" in noun.kinds:
        return _what(draw)
    many = draw.chance(0.5)
    what = plain(draw, noun, "none", 1) if many else plain(draw, noun, "which")
    told = Event(_asker(draw), Act(frame.verb, draw.pick(_TENSES), agreement=what.form))
    return _asked(draw, join(say(draw, _HOW_MANY), what) if many else what, told, tone=False)


_QUESTIONS: dict[Callable[[Draw], Draft], int] = {
    _whether: 6,
    _where: 3,
    _when: 2,
    _why: 3,
    _how: 2,
    _who: 3,
    _what: 2,
    _which: 2,
}
_DEALT = tuple(family for family, share in _QUESTIONS.items() for _ in range(share))


def question(draw: Draw) -> Draft:
    """A question of any kind."""
    return draw.pick(_DEALT)(draw)


_YES, _NO = idiom("oui1 ,2 = yes1 ,2"), idiom("non1 ,2 = no1 ,2")


def answer(draw: Draw) -> Draft:
    """Oui, …; non, … ne … pas."""
    yes, subject, tense = draw.chance(0.5), speaker(draw), draw.pick(_TENSES[:9])
    negation = "" if yes else "pas"
    told = being(draw, subject, "present", negation) if draw.chance(0.3) else event(draw, tense, negation, subject)
    # Whoever loves something says so: the answer follows what is told.
    return Draft(join(say(draw, _NO if told.act.negation else _YES), told.state(draw)))


# The pronoun of the one addressed, and how to ask kindly.
_ADDRESSED = (
    ("tu", 1, idiom(",1 s'2 il2 te2 plaît2 = ,1 please2")),
    ("vous", 4, idiom(",1 s'2 il2 vous2 plaît2 = ,1 please2")),
)
_ORDERED = (
    *("manger", "boire", "lire", "acheter", "ouvrir", "fermer", "laver", "prendre", "préparer", "réparer", "attendre"),
    *("écouter", "aider", "appeler", "inviter", "apprendre", "finir", "choisir", "chercher", "regarder"),
)
_COMMANDS = tuple(_FRAMES[infinitive] for infinitive in _ORDERED)


def _imperative(chosen: Verb, person: int) -> str:
    form = chosen.present[person]
    return form.removesuffix("s") if form.endswith("es") else form


def command(draw: Draw) -> Draft:
    """Ferme la porte, s'il te plaît; ne mange pas ce gâteau; donne-moi la clé."""
    french, person, please = draw.pick(_ADDRESSED)
    giving = draw.chance(0.3)
    negation = "pas" if not giving and draw.chance(0.3) else ""
    frame = draw.pick(GIFTS if giving else _COMMANDS)
    what = object_of(draw, frame, pronoun(draw, french, "you", person), "future", negation, DEFINITE)
    link, other = draw.link(), draw.link()
    fr = [(_imperative(frame.verb, person), link)]
    en = [(word, link) for word in (frame.verb.base, *frame.verb.particle)]
    if giving:
        fr, en = [*fr, ("-moi", other)], [*en, ("me", other)]
    elif negation:
        fr, en = [("ne", other), *fr, ("pas", other)], [("don't", other), *en]
    said = join(Phrase(fr, en), what)
    return Draft(join(said, say(draw, please)) if draw.chance(0.4) else said)


THANK_YOU = idiom("merci1 = thank1 you1")
_THANKS = (THANK_YOU, idiom("merci1 beaucoup2 = thank1 you1 very2 much2"))
_GREETINGS = (
    *_THANKS,
    idiom("bonjour1 = hello1"),
    idiom("salut1 = hi1"),
    idiom("bonsoir1 = good1 evening1"),
    idiom("bonne1 nuit2 = good1 night2"),
    idiom("au1 revoir1 = goodbye1"),
    idiom("à1 demain2 = see1 you1 tomorrow2"),
    idiom("à1 bientôt2 = see1 you1 soon2"),
    idiom("bonne1 chance2 = good1 luck2"),
    idiom("joyeux1 anniversaire2 = happy1 birthday2"),
    idiom("bienvenue1 = welcome1"),
    idiom("pardon1 = excuse1 me1"),
    idiom("de1 rien1 = you1 are1 welcome1"),
    idiom("oui1 = yes1"),
    idiom("non1 = no1"),
    idiom("oui1 ,2 merci3 = yes1 ,2 thank3 you3"),
    idiom("non1 ,2 merci3 = no1 ,2 thank3 you3"),
)
_CALLED = (
    idiom("mon1 ami2 = my1 friend2"),
    idiom("maman1 = Mom1"),
    idiom("papa1 = Dad1"),
    idiom("mes1 amis2 = my1 friends2"),
    idiom("les enfants1 = children1"),
)
_FOR = idiom("pour1 = for1")
_GIVEN = nouns_of("gift", "sent", "lent")


def _addressed(draw: Draw, said: Phrase, called: tuple[Idiom, ...] = _CALLED) -> Phrase:
    """With the name of whom it is said to, or without."""
    if draw.chance(0.4):
        return said
    whom = name(draw) if draw.chance(0.7) else say(draw, draw.pick(called))
    return join(said, say(draw, COMMA), whom)


def greeting(draw: Draw) -> Draft:
    """Merci. Bonjour, Susan. Bonne nuit, les enfants."""
    return Draft(_addressed(draw, say(draw, draw.pick(_GREETINGS))))


def thanks(draw: Draw) -> Draft:
    """Merci pour les roses, Paul."""
    noun = draw.pick(_GIVEN)
    plural = int("single" not in noun.kinds and draw.chance(0.4))
    owner = draw.pick((OWNERS[1], OWNERS[3], *DEFINITE))
    said = join(say(draw, draw.pick(_THANKS)), say(draw, _FOR), noun_phrase(draw, noun, owner, plural))
    return Draft(_addressed(draw, said, _CALLED[:3] if owner is OWNERS[1] else _CALLED))
