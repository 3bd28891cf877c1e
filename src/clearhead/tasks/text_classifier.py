"""Text classification: from labelled texts to a classifier, by `[CLS]` or by pooling."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self, overload

import torch
from torch import Tensor

from clearhead.data.tokenizers import Tokenizer
from clearhead.evaluate.classification import classification
from clearhead.evaluate.perplexity import mean_loss
from clearhead.tasks.batches import by_length
from clearhead.tasks.directory import ModelParts
from clearhead.tasks.encoder_data import EncoderBatch, frame
from clearhead.tasks.labelled_data import Example, LabelledParts, label_numbers, parts_of_labels, read_labelled
from clearhead.tasks.labelled_training import LabelledRows, encoder_to_train, prepare_labelled
from clearhead.tasks.losses import Loss
from clearhead.tasks.prepare import Figures, Prepared, Surroundings, fit_parts, simple_recipe
from clearhead.tasks.pretrained import Pretrained
from clearhead.tasks.recipe import Data, Recipe
from clearhead.train.loss import Terms, cross_entropy

__all__ = ["TextClassifier"]


class TextClassifier(Pretrained):
    """An encoder that says of which class a text is.

    >>> texts = [("good", "+"), ("bad", "-")]
    >>> classifier = TextClassifier.fit(texts, preset="bert-tiny", steps=1, vocabulary=300)
    >>> classifier.classify("good") in ("+", "-")
    True
    """

    TASK = "text_classification"

    def __init__(self, parts: ModelParts) -> None:
        super().__init__(parts)
        self.labels = parts.settings.labels

    @classmethod
    def fit(
        cls,
        data: str | Path | Sequence[Example],
        *,
        valid: str | Path | Sequence[Example] | None = None,
        preset: str = "bert-tiny",
        steps: int = 1_000,
        vocabulary: int = 4_000,
        out: str | Path | None = None,
        recipe: Recipe | None = None,
    ) -> Self:
        """Learn from texts with labels: a file, or pairs of text and label.

        A `recipe` decides everything else in place of preset, steps and vocabulary; `out` keeps the run directory.
        """
        recipe = recipe or simple_recipe(
            cls.TASK, preset, steps, valid is not None, {"vocabulary": vocabulary}, {"weight_decay": 0.01}
        )
        watched = None if valid is None else read_labelled(valid, recipe.data)
        parts = LabelledParts(read_labelled(data, recipe.data), watched)
        return cls(fit_parts(cls.prepare(recipe, parts), recipe, None if out is None else Path(out)))

    @classmethod
    def prepare(
        cls, recipe: Recipe, data: LabelledParts[Example] | None = None, around: Surroundings | None = None
    ) -> Prepared[EncoderBatch]:
        """Everything up to the first step; `data` takes the place of the recipe's own."""
        around = around or Surroundings()
        data = data or parts_of_labels(recipe.data, read_labelled)
        texts, answers = zip(*data.train, strict=True)
        labels = tuple(sorted(set(answers)))
        parts = encoder_to_train(cls.TASK, recipe, around, texts, labels, {"classes": len(labels)})
        rows = _rows(texts, parts.tokenizer, parts.settings.config.length)
        for part in (data.valid, data.test):  # an unknown label is refused now, not in the middle of training
            label_numbers((label for _, label in part or ()), labels)
        return prepare_labelled(
            recipe,
            around,
            parts,
            LabelledRows(rows, classes=label_numbers(answers, labels)),
            data,
            loss=_loss,
            evaluate=lambda parts, valid: cls(parts).evaluate(valid),
            unit="texts",
        )

    @overload
    def classify(self, text: str) -> str: ...

    @overload
    def classify(self, text: list[str]) -> list[str]: ...

    def classify(self, text: str | list[str]) -> str | list[str]:
        """The most probable label of a text, or of each of several."""
        if isinstance(text, str):
            return self.classify([text])[0]
        return [self.labels[number] for number in self._logits(text).argmax(-1).tolist()]

    @overload
    def predict(self, text: str) -> dict[str, float]: ...

    @overload
    def predict(self, text: list[str]) -> list[dict[str, float]]: ...

    def predict(self, text: str | list[str]) -> dict[str, float] | list[dict[str, float]]:
        """The probability of each label for a text, or for each of several."""
        if isinstance(text, str):
            return self.predict([text])[0]
        return [dict(zip(self.labels, row, strict=True)) for row in self._logits(text).softmax(-1).tolist()]

    def evaluate(self, data: str | Path | Sequence[Example], how: Data | None = None) -> Figures:
        """Accuracy, macro F1 and the plain loss over all texts."""
        texts, answers = zip(*read_labelled(data, how), strict=True)
        gold_B = torch.tensor(label_numbers(answers, self.labels))
        logits_BC = self._logits(texts).cpu()
        total, count = cross_entropy(logits_BC, gold_B)
        scores = classification(logits_BC.argmax(-1).tolist(), gold_B.tolist())
        loss = mean_loss(float(total), int(count))
        return {"texts": len(texts), "loss": loss, "accuracy": scores.accuracy, "macro_f1": scores.macro_f1}

    def losses(self, data: str | Path | Sequence[Example], how: Data | None = None) -> Iterator[Loss]:
        """The summed loss of each batch of texts, as a function of the model."""
        texts, answers = zip(*read_labelled(data, how), strict=True)
        rows = _rows(texts, self.tokenizer, self.config.length)
        return LabelledRows(rows, classes=label_numbers(answers, self.labels)).losses(_loss, self.device)

    @torch.inference_mode()
    def _logits(self, texts: Sequence[str]) -> Tensor:
        rows = _rows(texts, self.tokenizer, self.config.length)
        logits_BC = torch.empty(len(rows), len(self.labels), device=self.device)
        for which in by_length([len(row) for row in rows]):
            batch = EncoderBatch.of([rows[i] for i in which]).to(self.device)
            logits_BC[which] = self.model.classes(batch.token_BL, count_B=batch.count_B)
        return logits_BC


def _rows(texts: Sequence[str], tokenizer: Tokenizer, longest: int) -> list[list[int]]:
    return [frame(ids, tokenizer, longest) for ids in tokenizer.encode_batch(texts)]


def _loss(model: Any, batch: EncoderBatch, *, smoothing: float) -> Terms:
    hidden = model.hidden(batch.token_BL, count_B=batch.count_B, pack=True)
    logits_BC = model.class_head(model.pooled(*hidden))
    return {"loss": cross_entropy(logits_BC, batch.class_B, smoothing=smoothing)}
