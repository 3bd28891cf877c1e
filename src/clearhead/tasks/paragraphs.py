"""Texts of any length for translators: cut into sentences, translated, and put together with their own white space."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from clearhead.data.phrasebook.corpus import words
from clearhead.generate.beam import Found
from clearhead.tasks.answers import Answer, best_together, names_of
from clearhead.tasks.sentences import cut
from clearhead.tasks.translating import Request, Sentence, Translating
from clearhead.tasks.word_alignment import chosen_head, word_links_of_all

__all__ = ["Paragraph", "answers_to", "spoken"]


@dataclass(frozen=True)
class Paragraph:
    """A text as its sentences, each with the white space after it; white space before the first follows None."""

    pieces: tuple[tuple[Sentence | None, str], ...]

    @staticmethod
    def of(text: str, prefix: str = "", *, split: bool = True) -> "Paragraph":
        """Cut a text; its translation, if there is something to translate, begins with `prefix`."""
        whole = text.strip()
        start = len(text) - len(text.lstrip()) if whole else len(text)
        around = [("", text[:start]), (whole, text[start + len(whole) :])]
        pieces = [piece for piece in (cut(text) if split else around) if any(piece)]
        first = next((number for number, (sentence, _) in enumerate(pieces) if sentence), None)
        return Paragraph(
            tuple(
                (Sentence(sentence, prefix.rstrip() if number == first else "") if sentence else None, space)
                for number, (sentence, space) in enumerate(pieces)
            )
        )

    @property
    def sentences(self) -> list[Sentence]:
        return [sentence for sentence, _ in self.pieces if sentence is not None]

    def joined(self, way: Sequence[Answer], *, alignments: bool) -> Answer:
        """One translation of the whole, given one of each sentence; links count words from its beginning."""
        given = iter(way)
        text, links, before = "", list[tuple[int, int]](), (0, 0)
        for sentence, space in self.pieces:
            if sentence is not None:
                answer = next(given)
                text += answer.text
                links += [(source + before[0], target + before[1]) for source, target in answer.links or ()]
                before = before[0] + len(words(sentence.text)), before[1] + len(words(answer.text))
            text += space
        return Answer(
            text,
            sum(answer.score for answer in way),
            tuple(chain.from_iterable(answer.tokens for answer in way)),
            tuple(chain.from_iterable(answer.scores for answer in way)),
            tuple(links) if alignments else None,
        )


def answers_to(
    paragraphs: Sequence[Paragraph], working: Translating, request: Request, *, alignments: bool = False
) -> list[list[Answer]]:
    """The best translations of each, best first; all their sentences are decoded together."""
    sentences = [sentence for paragraph in paragraphs for sentence in paragraph.sentences]
    answered = [_answers(working, *one) for one in zip(sentences, working.decode(sentences, request), strict=True)]
    if alignments:
        answered = _aligned(working, sentences, answered)
    rest, best = iter(answered), request.decoding.best
    ways = [best_together([*islice(rest, len(paragraph.sentences))], best) for paragraph in paragraphs]
    return [
        [paragraph.joined(way, alignments=alignments) for way in found]
        for paragraph, found in zip(paragraphs, ways, strict=True)
    ]


def spoken(paragraph: Paragraph, working: Translating, request: Request) -> Iterator[str]:
    """The best translation in pieces, as it is written."""
    for sentence, space in paragraph.pieces:
        if sentence is not None:
            yield from filter(None, working.stream(sentence, request))
        if space:
            yield space


def _answers(working: Translating, sentence: Sentence, found: Found) -> list[Answer]:
    return [
        Answer(working.text(sentence, one), rank, names_of(one, working.tokenizer), tuple(one.scores))
        for one, rank in zip(found.best, found.ranks, strict=True)
    ]


def _aligned(working: Translating, sentences: Sequence[Sentence], answered: list[list[Answer]]) -> list[list[Answer]]:
    """The same answers with the links of their words; in an ensemble, as its first model sees them."""
    parts = working.members[0]
    pairs = [
        (sentence.text, one.text) for sentence, answers in zip(sentences, answered, strict=True) for one in answers
    ]
    links = word_links_of_all(parts, pairs, chosen_head(parts.settings))
    return [[replace(one, links=tuple(sorted(next(links)))) for one in answers] for answers in answered]
