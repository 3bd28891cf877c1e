"""Translators that many requests share."""

from asyncio import wrap_future
from collections.abc import Sequence, Set
from dataclasses import replace
from itertools import islice
from typing import Any, final

import torch
from torch import Tensor

from clearhead.generate.beam import Found
from clearhead.generate.decode import Decoded, Manner
from clearhead.generate.decoding import Decoding
from clearhead.generate.filters import history_filters
from clearhead.generate.greedy import take_best
from clearhead.generate.sample import drawing
from clearhead.serve.engine import Between, Engine
from clearhead.serve.guards import RefusedError
from clearhead.serve.limits import Limits
from clearhead.serve.work import Budget, Line
from clearhead.tasks.answers import Answer, best_together, names_of
from clearhead.tasks.paragraphs import Paragraph
from clearhead.tasks.translating import Request, Sentence, Translating
from clearhead.tasks.translator import Translator

__all__ = ["ServedTranslator", "manner_of"]


def manner_of(decoding: Decoding, ends: Set[int], rivals: int = 0) -> Manner:
    """How one row is written as this decoding says, without search."""
    choose = drawing(decoding, 1) if decoding.temperature else take_best
    return Manner(choose, tuple(history_filters(decoding, ends)), rivals)


@final
class ServedTranslator:
    """A translator behind an engine: sentences of all requests are written together."""

    TASK = Translator.TASK

    def __init__(self, name: str, translator: Translator, budget: Budget, limits: Limits) -> None:
        self.name, self.limits = name, limits
        self.languages: tuple[str, ...] = translator.parts.settings.languages
        self.working, self.searching = Translating(translator.members), Translating(translator.members)
        self.engine = Engine(name, budget, self)
        self.searching.model = Between(self.searching.model, self.engine.between)

    @property
    def model(self) -> Any:
        return self.working.model

    @property
    def ends(self) -> Set[int]:
        return frozenset({self.working.config.eos})

    def start(self, lines: Sequence[Line], room: int) -> tuple[Any, Tensor, Tensor | None]:
        token_BT = torch.tensor([line.prompt for line in lines], device=self.working.device)
        return self.working.start([line.source for line in lines], room=room), token_BT, None

    async def answers(self, texts: list[str], options: dict[str, Any]) -> list[list[Answer]]:
        """The best translations of each text; what `Translator.answers` gives."""
        self.engine.check()
        request = replace(self.working.request(options), most=self.limits.tokens)
        self.limits.check("beams", request.decoding.beams, "beams")
        paragraphs = [Paragraph.of(text) for text in texts]
        sentences = [sentence for paragraph in paragraphs for sentence in paragraph.sentences]
        self.limits.check("sentences", len(sentences), "sentences")
        found = await self._found(sentences, request)
        answered = (self._answers(*one) for one in zip(sentences, found, strict=True))
        parts = ([*islice(answered, len(paragraph.sentences))] for paragraph in paragraphs)
        return [
            [paragraph.joined(way, alignments=False) for way in best_together(part, request.decoding.best)]
            for paragraph, part in zip(paragraphs, parts, strict=True)
        ]

    async def _found(self, sentences: Sequence[Sentence], request: Request) -> list[Found]:
        """The translations of each sentence, in the order of the sentences."""
        decoding = request.decoding
        rows = self.working.reader.encode_batch([sentence.text for sentence in sentences])
        self._check_read(max(map(len, rows), default=0))
        if decoding.searches or decoding.contrast or decoding.best > 1:
            # Contrastive search looks into the model, and cannot be interrupted.
            working = self.working if decoding.contrast else self.searching
            return await wrap_future(self.engine.call(request, lambda items: working.decode(items, request), sentences))
        lines = {number: self._line(row, request) for number, row in enumerate(rows) if row}
        found = await wrap_future(self.engine.write([*lines.values()]))
        written = dict(zip(lines, found, strict=True))
        each = (written.get(number, Decoded()) for number in range(len(rows)))
        return [Found([one], [one.score]) for one in each]

    def _check_read(self, tokens: int) -> None:
        """Refuse a sentence that is too long for the model, or for one step: no step can be interrupted."""
        self.working.check_fits(tokens)
        most = self.engine.budget.tokens
        if tokens > most:
            raise RefusedError(
                400,
                f"a sentence has {tokens:,} tokens, and at most {most:,} are read at once: break it up",
                "sentence_too_long",
            )

    def _line(self, source: list[int], request: Request) -> Line:
        longest = self.working.limit(len(source), 0, request)
        return Line(list(self.working.frame.begin), longest, manner_of(request.decoding, self.ends), source)

    def _answers(self, sentence: Sentence, found: Found) -> list[Answer]:
        return [
            Answer(self.working.text(sentence, one), rank, names_of(one, self.working.tokenizer), tuple(one.scores))
            for one, rank in zip(found.best, found.ranks, strict=True)
        ]
