"""The built-in bilingual corpus: French-English sentence pairs from a small grammar, with gold alignments.

    from clearhead.data.phrasebook.corpus import sentences
    for pair in sentences(3, seed=7):
        print(pair.source, "→", pair.target)

About 600 English words (inflected forms, counted in lower case) and the 1100 French forms that they translate make
more sentences than anybody needs. A pair is a pure function of the seed. Sentences are spelled as people write them
(capitals, final mark, a space before the French question mark); one in twenty of the short statements is in lower
case without its mark, as people type them: « je suis étudiant » → "i am a student".

Every source has one target, whatever the seed. Where French leaves a choice, it is made once and for all:
- « il », « elle » alone are he and she; in a second clause they are whatever noun they stand for.
- « vous » is several people; tu and vous are both you.
- The present is the simple present (the weather is raining), passé composé the simple past, « va » + verb "going to".
- « du pain » is bread as a habit and some bread once; « pas de pain » is not any bread.
- « le thé », « les chats » after aimer and adorer are tea and cats in general.
- « son » belongs to the subject; « lui » is said only where an earlier clause tells him from her.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

from clearhead.data.phrasebook.adjectives import adjective
from clearhead.data.phrasebook.adjuncts import TO
from clearhead.data.phrasebook.clauses import narration
from clearhead.data.phrasebook.compound import contrast, reason, sequence, weather
from clearhead.data.phrasebook.grammar import Draft, Draw, plain, pronoun, say
from clearhead.data.phrasebook.nouns import noun
from clearhead.data.phrasebook.predicates import Act, state
from clearhead.data.phrasebook.relatives import relative
from clearhead.data.phrasebook.schemas import SCHEMAS, schema, schema_sentence
from clearhead.data.phrasebook.states import (
    comparison,
    description,
    existence,
    feeling,
    introduction,
    job,
    location,
    pointing,
)
from clearhead.data.phrasebook.surface import Word, english, french, spell_english, spell_french
from clearhead.data.phrasebook.talk import THANK_YOU, answer, command, greeting, question, thanks
from clearhead.data.phrasebook.verbs import ETRE, verb
from clearhead.errors import ConfigError

__all__ = ["EXAMPLES", "FAMILIES", "Pair", "Referent", "sentences", "splits", "words"]

_QUOTE = "['\u2019]"
_INVERTED = r"-(?:t-)?(?:je|tu|ils?|elles?|on|nous|vous|ce|moi|toi|le|la|les|lui|leur)\b"
_WORD = re.compile(
    "|".join(
        (
            rf"aujourd{_QUOTE}hui|o{_QUOTE}clock",
            rf"\w+n{_QUOTE}t\b",
            rf"{_QUOTE}s\b",
            rf"\w+{_QUOTE}(?!s\b)",
            _INVERTED,
            rf"\w+(?:(?!{_INVERTED})-\w+)*",
            r"[^\w\s]",
        )
    ),
    re.IGNORECASE,
)


def words(text: str) -> list[str]:
    """The words of a French or English text; alignments count in them.

    Punctuation marks are words. An elided word keeps its apostrophe and ends there (l' + animal), an inverted
    pronoun starts at its hyphen (manges + -tu, parle + -t-il, est + -ce + qu'), the genitive is a word (Mary + 's);
    English contractions (didn't, can't), compounds (grand-mère), aujourd'hui and o'clock stay whole.

    >>> words("Est-ce que l'animal n'a pas traversé la rue ?")
    ['Est', '-ce', 'que', "l'", 'animal', "n'", 'a', 'pas', 'traversé', 'la', 'rue', '?']
    >>> words("Mary's cat didn't sleep.")
    ['Mary', "'s", 'cat', "didn't", 'sleep', '.']
    """
    return _WORD.findall(text)


@dataclass(frozen=True)
class Referent:
    """Which noun a pronoun stands for: their places among the words of source and target."""

    pronoun_source: int
    noun_source: int
    pronoun_target: int
    noun_target: int


@dataclass(frozen=True)
class Pair:
    """A French sentence, its English translation, and which of their words translate each other.

    alignment   {(i, j)}: `words(source)[i]` and `words(target)[j]` correspond, by construction
    referent    what the pronoun of a because-clause stands for, where that is a noun of the sentence
    """

    source: str
    target: str
    alignment: frozenset[tuple[int, int]]
    referent: Referent | None = None


# Each kind of sentence with its share.
FAMILIES: dict[Callable[[Draw], Draft], int] = {
    narration: 30,
    question: 14,
    schema: 14,
    description: 6,
    reason: 6,
    contrast: 5,
    sequence: 4,
    relative: 4,
    job: 3,
    feeling: 4,
    location: 3,
    existence: 3,
    pointing: 3,
    comparison: 2,
    command: 4,
    answer: 2,
    thanks: 2,
    greeting: 1,
    introduction: 1,
    weather: 1,
}
_DEALT = tuple(family for family, share in FAMILIES.items() for _ in range(share))
_SHORT, _LOWER = 7, 0.05


def _pair(draft: Draft, *, lower: bool = False) -> Pair:
    """Spell a draft; its links become pairs of word indices."""
    phrase, end, bits = draft
    source, target = french([*phrase.fr, (end, 0)]), english([*phrase.en, (end, 0)])
    linked = [(j, b) for j, (_, b) in enumerate(target) if b]
    links = [(i, j) for i, (_, a) in enumerate(source) if a for j, b in linked if a & b]
    referent = Referent(*[_at(bit, side) for side in (source, target) for bit in bits]) if bits else None
    if lower:
        source.pop()
        target.pop()
        return Pair(spell_french(source).lower(), spell_english(target).lower(), frozenset(links), referent)
    links.append((len(source) - 1, len(target) - 1))
    return Pair(spell_french(source), spell_english(target), frozenset(links), referent)


def _at(bit: int, side: list[Word]) -> int:
    return next(i for i, (_, links) in enumerate(side) if links & bit)


def _stream(seed: int) -> Iterator[Pair]:
    """Pairs without end, each source once."""
    draw, seen = Draw(seed), set[str]()
    while True:
        draw.restart()
        draft = draw.pick(_DEALT)(draw)
        lower = draft.end == "." and len(draft.phrase.fr) <= _SHORT and draw.chance(_LOWER)
        pair = _pair(draft, lower=lower)
        if pair.source not in seen:
            seen.add(pair.source)
            yield pair


def sentences(count: int, seed: int = 0) -> Iterator[Pair]:
    """The first `count` pairs of the stream of `seed`; no source occurs twice."""
    if count < 0:
        raise ConfigError(f"a corpus has no fewer than 0 sentences: {count=}")
    return islice(_stream(seed), count)


def splits(train: int, valid: int, test: int, seed: int = 0) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """Three disjoint corpora: no source and no target is in two of them, not even in other case or without its mark.

    The examples of the literature are the first training pairs and in no other part; what is frequent (Merci.) is
    mostly in the training part, since that part is dealt first.
    """
    if min(train, valid, test) < 0:
        raise ConfigError(f"a part has no fewer than 0 sentences: {train=}, {valid=}, {test=}")
    rest = (pair for pair in _stream(seed) if pair.source not in _EXAMPLE_SOURCES)
    first = list(islice(chain(EXAMPLES, rest), train))
    taken = _bare([*EXAMPLES, *first])
    others = []
    for size in (valid, test):
        fresh = (pair for pair in rest if taken.isdisjoint(_bare([pair])))
        others.append(list(islice(fresh, size)))
        taken |= _bare(others[-1])
    return first, others[0], others[1]


def _bare(pairs: list[Pair]) -> set[str]:
    """Sources and targets in lower case and without their marks."""
    return {text.lower().rstrip(" .?") for pair in pairs for text in (pair.source, pair.target)}


def _examples() -> Iterator[Pair]:
    """The literature's own sentences, said by the same grammar."""
    draw = Draw(0)
    je = pronoun(draw, "je", "I", 0)
    student = Draft(state(draw, je, Act(ETRE), plain(draw, noun("étudiant"), "job")))
    thanked = Draft(say(draw, THANK_YOU))
    for said in (student, thanked):
        yield _pair(said)
        yield _pair(said, lower=True)
    for giver, receiver in (("Susan", "Mary"), ("Mary", "Susan")):
        who, roses, whom = plain(draw, noun(giver)), plain(draw, noun("rose"), "a", 1), plain(draw, noun(receiver))
        yield _pair(Draft(state(draw, who, Act(verb("donner"), "past"), roses, say(draw, TO), whom)))
    for road in ("route", "rue"):
        for why in ("fatigué", "large"):
            doer, thing = plain(draw, noun("animal")), plain(draw, noun(road))
            meant = doer if why == "fatigué" else thing
            yield _pair(schema_sentence(draw, SCHEMAS[0], doer, thing, meant, adjective(why)))


EXAMPLES: tuple[Pair, ...] = tuple(_examples())
_EXAMPLE_SOURCES = frozenset(pair.source for pair in EXAMPLES)
