"""Token classification: a tag for each word, such as the names in a sentence."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, NamedTuple, Self, overload

import torch

from clearhead.data.tokenizers import Tokenizer
from clearhead.evaluate.classification import classification, span_f1
from clearhead.evaluate.perplexity import mean_loss
from clearhead.tasks.batches import by_length
from clearhead.tasks.directory import ModelParts, Settings
from clearhead.tasks.encoder_data import EncoderBatch, frame
from clearhead.tasks.labelled_data import LabelledParts, Tagged, label_numbers, parts_of_labels, read_tagged
from clearhead.tasks.labelled_training import LabelledRows, encoder_to_train, prepare_labelled
from clearhead.tasks.losses import Loss
from clearhead.tasks.prepare import Figures, Prepared, Surroundings, fit_parts, simple_recipe
from clearhead.tasks.pretrained import Pretrained
from clearhead.tasks.recipe import Data, Recipe
from clearhead.train.loss import IGNORE, Terms, cross_entropy

__all__ = ["TaggedWord", "TokenClassifier"]

OUTSIDE = "O"
WORD = re.compile(r"\w+|[^\w\s]")


class TaggedWord(NamedTuple):
    """A word and its tag."""

    word: str
    tag: str


class TokenClassifier(Pretrained):
    """An encoder that tags each word.

    >>> sentences = [(["Mary", "sleeps"], ["B-PER", "O"])]
    >>> classifier = TokenClassifier.fit(sentences, preset="bert-tiny", steps=1, vocabulary=300)
    >>> [tagged.word for tagged in classifier.label("Mary sleeps.")]
    ['Mary', 'sleeps', '.']
    """

    TASK = "token_classification"

    def __init__(self, parts: ModelParts) -> None:
        super().__init__(parts)
        self.labels = parts.settings.labels

    @classmethod
    def fit(
        cls,
        data: str | Path | Sequence[Tagged],
        *,
        valid: str | Path | Sequence[Tagged] | None = None,
        preset: str = "bert-tiny",
        steps: int = 1_000,
        vocabulary: int = 4_000,
        out: str | Path | None = None,
        recipe: Recipe | None = None,
    ) -> Self:
        """Learn from tagged sentences: a CoNLL file, or pairs of words and tags.

        A `recipe` decides everything else in place of preset, steps and vocabulary; `out` keeps the run directory.
        """
        recipe = recipe or simple_recipe(
            cls.TASK, preset, steps, valid is not None, {"vocabulary": vocabulary}, {"weight_decay": 0.01}
        )
        watched = None if valid is None else read_tagged(valid, recipe.data)
        parts = LabelledParts(read_tagged(data, recipe.data), watched)
        return cls(fit_parts(cls.prepare(recipe, parts), recipe, None if out is None else Path(out)))

    @classmethod
    def prepare(
        cls, recipe: Recipe, data: LabelledParts[Tagged] | None = None, around: Surroundings | None = None
    ) -> Prepared[EncoderBatch]:
        """Everything up to the first step; `data` takes the place of the recipe's own."""
        around = around or Surroundings()
        data = data or parts_of_labels(recipe.data, read_tagged)
        labels = (OUTSIDE, *sorted({tag for _, tags in data.train for tag in tags} - {OUTSIDE}))
        texts = [" ".join(words) for words, _ in data.train]
        parts = encoder_to_train(cls.TASK, recipe, around, texts, labels, {"labels": len(labels), "pooler": "none"})
        for part in (data.valid, data.test):  # an unknown tag is refused now, not in the middle of training
            label_numbers((tag for _, tags in part or () for tag in tags), labels)
        return prepare_labelled(
            recipe,
            around,
            parts,
            _rows(data.train, parts.tokenizer, parts.settings),
            data,
            loss=_loss,
            evaluate=lambda parts, valid: cls(parts).evaluate(valid),
            unit="words",
        )

    @overload
    def label(self, text: str) -> list[TaggedWord]: ...

    @overload
    def label(self, text: list[str]) -> list[list[TaggedWord]]: ...

    def label(self, text: str | list[str]) -> list[TaggedWord] | list[list[TaggedWord]]:
        """The words of a text, or of each of several, with their tags."""
        if isinstance(text, str):
            return self.label([text])[0]
        sentences = [WORD.findall(each) for each in text]
        return [[*map(TaggedWord, *row)] for row in zip(sentences, self.tags(sentences)[0], strict=True)]

    @torch.inference_mode()
    def tags(self, sentences: Sequence[Sequence[str]]) -> tuple[list[list[str]], list[torch.Tensor]]:
        """The tags of words that are given one by one, and the logits behind them; what no row can hold is outside."""
        rows = [_Row.of(words, self.tokenizer, self.config.length) for words in sentences]
        tags = [[OUTSIDE] * len(words) for words in sentences]
        logits = [torch.empty(0, len(self.labels)) for _ in sentences]
        for which in by_length([len(row.ids) for row in rows]):
            batch = EncoderBatch.of([rows[i].ids for i in which]).to(self.device)
            logits_BLC = self.model.labels(batch.token_BL, count_B=batch.count_B).cpu()
            for i, logits_LC in zip(which, logits_BLC, strict=True):
                logits[i] = logits_LC[rows[i].starts]
                for place, number in enumerate(logits[i].argmax(-1).tolist()):
                    tags[i][place] = self.labels[number]
        return tags, logits

    def evaluate(self, data: str | Path | Sequence[Tagged], how: Data | None = None) -> Figures:
        """F1 of spans (precision and recall too), accuracy of tags, and the plain loss over all words."""
        sentences = read_tagged(data, how)
        gold = [list(tags) for _, tags in sentences]
        found, logits = self.tags([words for words, _ in sentences])
        numbers = [label_numbers(tags, self.labels)[: len(row)] for tags, row in zip(gold, logits, strict=True)]
        total, count = cross_entropy(torch.cat(logits), torch.tensor([*chain.from_iterable(numbers)]))
        spans = span_f1(found, gold)
        accuracy = classification([*chain.from_iterable(found)], [*chain.from_iterable(gold)]).accuracy
        loss = mean_loss(float(total), int(count))
        figures: Figures = {"sentences": len(gold), "loss": loss, "accuracy": accuracy, "span_f1": spans.f1}
        return figures | {"span_precision": spans.precision, "span_recall": spans.recall}

    def losses(self, data: str | Path | Sequence[Tagged], how: Data | None = None) -> Iterator[Loss]:
        """The summed loss of each batch of sentences, as a function of the model."""
        rows = _rows(read_tagged(data, how), self.tokenizer, self.parts.settings)
        return rows.losses(_loss, self.device)


class _Row(NamedTuple):
    """A sentence as a row of ids, and where in it each word starts: there its tag is told."""

    ids: list[int]
    starts: list[int]

    @staticmethod
    def of(words: Sequence[str], tokenizer: Tokenizer, longest: int) -> "_Row":
        pieces = tokenizer.pieces(" ".join(words))
        ends = [piece.end for piece in pieces]
        begins = accumulate((len(word) + 1 for word in words[:-1]), initial=0)
        starts = [1 + bisect_right(ends, begin) for begin in begins] if words else []
        ids = frame([piece.id for piece in pieces], tokenizer, longest)
        return _Row(ids, [start for start in starts if start < len(ids) - 1])

    def targets(self, numbers: Sequence[int]) -> list[int]:
        """The tags' numbers at the starts of words, nothing elsewhere."""
        targets = [IGNORE] * len(self.ids)
        for start, number in zip(self.starts, numbers, strict=False):
            targets[start] = number
        return targets


def _rows(sentences: Sequence[Tagged], tokenizer: Tokenizer, settings: Settings) -> LabelledRows:
    rows = [_Row.of(words, tokenizer, settings.config.length) for words, _ in sentences]
    numbers = (label_numbers(tags, settings.labels) for _, tags in sentences)
    return LabelledRows(
        [row.ids for row in rows], labels=[row.targets(of) for row, of in zip(rows, numbers, strict=True)]
    )


def _loss(model: Any, batch: EncoderBatch, *, smoothing: float) -> Terms:
    hidden_BLD, rows = model.hidden(batch.token_BL, count_B=batch.count_B, pack=True)
    label_BL = rows.pack(batch.label_BL)
    logits_BLC = model.label_head(hidden_BLD)
    return {"loss": cross_entropy(logits_BLC.flatten(0, 1), label_BL.flatten(), smoothing=smoothing)}
