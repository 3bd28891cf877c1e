"""Encoders that learn from labels, of whole texts or of words: what their training has in common."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from clearhead.tasks.batches import Epochs, by_length
from clearhead.tasks.directory import ModelParts, Settings, describe
from clearhead.tasks.encoder_data import SPECIALS, EncoderBatch
from clearhead.tasks.labelled_data import LabelledParts
from clearhead.tasks.losses import Loss
from clearhead.tasks.prepare import (
    Figures,
    Prepared,
    Surroundings,
    build_model,
    build_tokenizer,
    find_layers,
    parts_to_train,
    start_of,
    training_settings,
)
from clearhead.tasks.recipe import Recipe
from clearhead.train.job import Job
from clearhead.train.loss import Terms

__all__ = ["LabelledRows", "LossOf", "encoder_to_train", "prepare_labelled"]


class LossOf(Protocol):
    """What a batch costs a model."""

    def __call__(self, model: Any, batch: EncoderBatch, *, smoothing: float) -> Terms: ...


@dataclass(frozen=True)
class LabelledRows:
    """Rows of tokens, each with the number of its class, or with one for each token (IGNORE where none is asked)."""

    ids: Sequence[Sequence[int]]
    classes: Sequence[int] = ()
    labels: Sequence[Sequence[int]] = ()

    @property
    def lengths(self) -> list[int]:
        return [len(row) for row in self.ids]

    def batch(self, which: Iterable[int]) -> EncoderBatch:
        chosen = [*which]
        classes = [self.classes[i] for i in chosen] if self.classes else ()
        labels = [self.labels[i] for i in chosen] if self.labels else ()
        return EncoderBatch.of([self.ids[i] for i in chosen], classes=classes, labels=labels)

    def losses(self, loss: LossOf, device: torch.device) -> Iterator[Loss]:
        """The summed loss of each batch, as a function of the model."""
        for which in by_length(self.lengths):
            yield Loss(len(which), partial(_summed, loss=loss, batch=self.batch(which).to(device)))


def _summed(model: Any, *, loss: LossOf, batch: EncoderBatch) -> Tensor:
    return loss(model, batch, smoothing=0.0)["loss"][0]


def encoder_to_train(
    task: str,
    recipe: Recipe,
    around: Surroundings,
    texts: Iterable[str],
    labels: tuple[str, ...],
    heads: Mapping[str, Any],
) -> ModelParts:
    """An encoder with these heads for these labels; its tokenizer has read the texts, where there was none."""
    start = start_of(recipe)
    tokenizer = build_tokenizer(recipe, lambda: iter(texts), SPECIALS, around.tokenizer, start)
    own = {"classes": 0, "labels": 0, "words": False, "next_sentence": False, **heads}
    model: Any = build_model(recipe, "encoder_only", tokenizer, start, heads=lambda config: own)
    return parts_to_train(recipe, model, tokenizer, Settings(task, model.config, labels=labels), start)


def prepare_labelled(
    recipe: Recipe,
    around: Surroundings,
    parts: ModelParts,
    rows: LabelledRows,
    data: LabelledParts[Any],
    *,
    loss: LossOf,
    evaluate: Callable[[ModelParts, Any], Figures],
    unit: str,
) -> Prepared[EncoderBatch]:
    """Everything up to the first step; validation is what `evaluate` says of the model so far."""

    def validate(model: nn.Module) -> dict[str, float]:
        figures = evaluate(replace(parts, model=model), data.valid)
        return {name: float(value) for name, value in figures.items()}

    epochs = Epochs.by_tokens(rows.lengths, recipe.train, around.world)
    job = Job(
        loss=partial(loss, smoothing=recipe.train.smoothing),
        counts=lambda batch: {"loss": len(batch.class_B) or batch.labels},
        batches=lambda step: [rows.batch(which) for which in epochs.step(step)],
        move=EncoderBatch.to,
        validate=validate if data.valid else None,
        save_extra=lambda folder: describe(folder, parts),
        flops=lambda batch: 3 * parts.model.flops(*batch.token_BL.shape),
        unit=unit,
        blocks=find_layers,
    )
    training = training_settings(recipe, parts.model, len(epochs))
    return Prepared(parts.model, job, training, parts.tokenizer, parts.settings, data.test)
