"""Verbs in a sentence: tense, negation, object pronouns and word order, in both languages at once."""

from typing import NamedTuple

from clearhead.data.phrasebook.grammar import Draw, Idiom, Phrase, join, say
from clearhead.data.phrasebook.surface import Word
from clearhead.data.phrasebook.verbs import AVOIR, ETRE, HELPERS, Verb

__all__ = ["Act", "ask", "state"]


class Act(NamedTuple):
    """What is said of a subject, before it is conjugated.

    tense       present, past (passé composé), imperfect, or that of a helper: future, want, can, must
    negation    "", pas, plus, jamais
    clitic      an object pronoun: before the French verb, after the English one
    agreement   the form of a direct object that stands before the verb: the participle agrees with it
    """

    verb: Verb
    tense: str = "present"
    negation: str = ""
    adverb: Idiom | None = None
    clitic: Phrase | None = None
    agreement: int = 0


class _Predicate(NamedTuple):
    """A conjugated verb in pieces, so that a statement and a question can order them."""

    lead: list[Word]  # ne, object pronouns
    finite: Word
    rest: list[Word]  # pas, adverb, participle or infinitive
    auxiliary: list[Word]  # what English puts before the subject of a question
    main: list[Word]
    tail: list[Word]  # anymore


class _Links(NamedTuple):
    """The bits of a verb, of the finite word before it (the same bit where English has one word), of ne and pas."""

    main: int
    first: int
    no: int
    asking: int


_REFLEXIVE = ("me", "te", "se", "nous", "vous", "se")
_PAST = ("past", "imperfect")


def _predicate(draw: Draw, subject: Phrase, act: Act, asked: bool = False, asking: int = 0) -> _Predicate:
    """Conjugate for `subject`; `asked` wants an English auxiliary, which `asking` (the bit of est-ce que) is linked to.

    « n'a pas mangé » = "didn't eat": n', a and pas are linked to the do-support, the participle to the verb.
    """
    helper = HELPERS.get(act.tense)
    speaker = helper.en if helper else act.verb
    supported = not speaker.auxiliary and (asked or act.negation in ("pas", "plus"))
    main = draw.link()
    first = draw.link() if helper or (supported and act.tense in _PAST) else main
    links = _Links(main, first, draw.link() if act.negation else 0, asking)
    adverb = say(draw, act.adverb) if act.adverb else Phrase([], [])
    lead, finite, rest = _french(subject, act, links, adverb.fr)
    auxiliary, words = _english(subject.person, act, links, adverb.en, supported)
    tail = [("anymore", links.no)] if act.negation == "plus" else []
    return _Predicate(lead, (finite, first), rest, auxiliary, words, tail)


def _french(subject: Phrase, act: Act, links: _Links, adverb: list[Word]) -> tuple[list[Word], str, list[Word]]:
    verb, person, no = act.verb, subject.person, links.no
    helper = HELPERS.get(act.tense)
    clitics = [(_REFLEXIVE[person], links.main)] if verb.reflexive else []
    clitics += act.clitic.fr if act.clitic else []
    lead = [("ne", no)] if no else []
    rest = [(act.negation, no), *adverb] if no else [*adverb]
    if helper:
        return lead, helper.fr.present[person], [*rest, *clitics, (verb.infinitive, links.main)]
    lead += clitics
    if act.tense == "past":
        auxiliary = ETRE if verb.with_etre else AVOIR
        participle = verb.participles[subject.form if verb.with_etre else act.agreement]
        return lead, auxiliary.present[person], [*rest, (participle, links.main)]
    return lead, verb.imperfect(person) if act.tense == "imperfect" else verb.present[person], rest


def _english(
    person: int, act: Act, links: _Links, adverb: list[Word], supported: bool
) -> tuple[list[Word], list[Word]]:
    main, first, no, asking = links
    helper = HELPERS.get(act.tense)
    speaker, own = (helper.en, first) if helper else (act.verb, main)
    past = act.tense in _PAST
    middle = [("never", no)] if act.negation == "jamais" else adverb
    no = no if act.negation in ("pas", "plus") else 0
    form = (speaker.en_past if past else speaker.en_present)[person]
    after = [*((word, first) for word in helper.link), (act.verb.base, main)] if helper else []
    after += [(word, main) for word in act.verb.particle]
    if speaker.auxiliary:
        apart = [("not", no)] if no and form == "am" else []
        return [_contracted(form, own | asking, no)], [*apart, *middle, *after]
    if supported:
        do = "did" if past else "does" if person == 2 else "do"
        links_of_do = asking | no | (first if past else 0) or own
        return [_contracted(do, links_of_do, no)], [*middle, (speaker.base, own), *after]
    return [], [*middle, (form, own), *after]


def _contracted(form: str, links: int, no: int) -> Word:
    """An auxiliary with its negation, if any: is, isn't; "am" takes none."""
    if not no or form == "am":
        return form, links
    return ("can't" if form == "can" else form + "n't"), links | no


def state(draw: Draw, subject: Phrase, act: Act, *complements: Phrase) -> Phrase:
    """A statement."""
    lead, finite, rest, auxiliary, main, tail = _predicate(draw, subject, act)
    said = join(*complements)
    objects = act.clitic.en if act.clitic else []
    fr = [*subject.fr, *lead, finite, *rest, *said.fr]
    return Phrase(fr, [*subject.en, *auxiliary, *main, *objects, *said.en, *tail])


def ask(draw: Draw, style: str, word: Phrase, subject: Phrase, act: Act, *complements: Phrase) -> Phrase:
    """A question, with a question word (or an empty one) and in one of four French styles.

    est-ce que   Où est-ce que tu vas ?
    inversion    Où vas-tu ?        the subject is a pronoun
    swap         Où va Paul ?       the verb is one word
    tone         Tu vas où ?
    """
    asking = draw.link() if style == "est-ce que" else 0
    lead, finite, rest, auxiliary, main, tail = _predicate(draw, subject, act, True, asking)
    orders: dict[str, list[Word]] = {
        "est-ce que": [("est", asking), ("-ce", asking), ("que", asking), *subject.fr, *lead, finite, *rest],
        "inversion": [*lead, finite, _inverted(subject, finite), *rest],
        "swap": [*lead, finite, *rest, *subject.fr],
        "tone": [*subject.fr, *lead, finite, *rest],
    }
    said = join(*complements)
    fr = [*orders[style], *said.fr]
    objects = act.clitic.en if act.clitic else []
    return Phrase(
        [*fr, *word.fr] if style == "tone" else [*word.fr, *fr],
        [*word.en, *auxiliary, *subject.en, *main, *objects, *said.en, *tail],
    )


def _inverted(subject: Phrase, finite: Word) -> Word:
    """The pronoun after its verb: -tu, -il, and -t-il after a vowel."""
    text, links = subject.fr[0]
    return ("-t-" if subject.person == 2 and finite[0][-1] in "ae" else "-") + text, links
