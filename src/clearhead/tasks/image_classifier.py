"""Image classification: a vision Transformer that says what an image shows."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Self, overload

import torch
from torch import Tensor, nn

from clearhead import __version__
from clearhead.data.batch import row_batches
from clearhead.data.images import ImageReader
from clearhead.errors import CheckpointError, ConfigError, DataError
from clearhead.evaluate.classification import classification
from clearhead.evaluate.perplexity import mean_loss
from clearhead.models.presets import PRESETS, build
from clearhead.models.vit import VitConfig
from clearhead.nn.tables import pick
from clearhead.tasks.batches import Epochs, by_length
from clearhead.tasks.directory import ModelParts, Settings, describe
from clearhead.tasks.labelled_data import label_numbers
from clearhead.tasks.loading import load_model
from clearhead.tasks.prepare import Figures, find_layers
from clearhead.tasks.pretrained import Pretrained
from clearhead.train.job import Job
from clearhead.train.loop import train
from clearhead.train.loss import Terms, cross_entropy
from clearhead.train.seed import derive, seed_everything
from clearhead.train.settings import Training

__all__ = ["ImageBatch", "ImageClassifier"]

Example = tuple[Any, str]  # an image, in any form that `ImageReader.read` takes, and its label


class ImageBatch(NamedTuple):
    """Images as the model reads them, and their classes."""

    image_BCLM: Tensor
    class_B: Tensor

    def to(self, device: torch.device) -> "ImageBatch":
        return ImageBatch(self.image_BCLM.to(device), self.class_B.to(device))


class ImageClassifier(Pretrained):
    """A vision Transformer that says of which class an image is.

    An image is the path of a file, an image of Pillow's, or an array (height, width[, channels]) of bytes or of numbers
    between 0 and 1.

    >>> dark, bright = torch.zeros(28, 28).numpy(), torch.ones(28, 28).numpy()
    >>> classifier = ImageClassifier.fit([dark, bright], ["night", "day"], steps=1)
    >>> classifier.classify(dark) in ("night", "day")
    True
    """

    TASK = "image_classification"

    def __init__(self, parts: ModelParts) -> None:
        config = parts.settings.config
        if not isinstance(config, VitConfig) or not config.classes:
            raise CheckpointError("to classify images, a vision Transformer with classes is needed, and this is none")
        labels = parts.settings.labels or tuple(f"LABEL_{number}" for number in range(config.classes))
        if len(labels) != config.classes:
            raise CheckpointError(f"the model knows {config.classes} classes, and {len(labels)} have a name")
        super().__init__(parts)
        self.reader: ImageReader = parts.tokenizer
        self.labels = labels

    @classmethod
    def fit(
        cls,
        images: Sequence[Any],
        labels: Sequence[object],
        *,
        valid: Sequence[Example] | None = None,
        preset: str | VitConfig = "vit-tiny",
        steps: int = 500,
        rows: int = 32,
        out: str | Path | None = None,
        training: Training | None = None,
    ) -> Self:
        """Learn from images with their labels, `rows` of them at each step; all are held in memory.

        The preset, or a config in its place, decides to which size images are scaled and whether they are grey.
        `training` decides everything else in place of steps; `out` keeps the run directory.
        """
        if len(images) != len(labels):
            raise DataError(f"each image needs one label: {len(images)} images, {len(labels)} labels")
        examples = _examples([*zip(images, labels, strict=True)])
        watched = None if valid is None else _examples(valid)
        names = tuple(sorted({label for _, label in examples}))
        settings = Settings(cls.TASK, _config(preset, len(names)), labels=names)
        training = training or _usual(steps, watched=valid is not None)
        with TemporaryDirectory() as temporary:
            directory = Path(temporary) / "run" if out is None else Path(out)
            seed_everything(derive(training.seed))
            model = build(settings.config)
            epochs = Epochs(
                lambda epoch: row_batches(len(examples), rows=rows, seed=training.seed, epoch=epoch),
                accumulate=training.accumulate,
            )
            card = _card(settings, len(examples), rows, training)
            job = _job(model, settings, examples, watched, epochs, card)
            train(model, job, training, run_directory=directory, fleeting=out is None)
            return cls(load_model(directory))

    @overload
    def classify(self, image: list[Any]) -> list[str]: ...

    @overload
    def classify(self, image: Any) -> str: ...

    def classify(self, image: Any) -> str | list[str]:
        """The most probable label of an image, or of each of a list of them."""
        if not isinstance(image, list):
            return self.classify([image])[0]
        return [self.labels[number] for number in self._logits(image).argmax(-1).tolist()]

    @overload
    def predict(self, image: list[Any]) -> list[dict[str, float]]: ...

    @overload
    def predict(self, image: Any) -> dict[str, float]: ...

    def predict(self, image: Any) -> dict[str, float] | list[dict[str, float]]:
        """The probability of each label for an image, or for each of a list of them."""
        if not isinstance(image, list):
            return self.predict([image])[0]
        return [dict(zip(self.labels, row, strict=True)) for row in self._logits(image).softmax(-1).tolist()]

    def evaluate(self, data: Sequence[Example]) -> Figures:
        """Accuracy, macro F1 and the plain loss over pairs of an image and its label."""
        images, answers = zip(*_examples(data), strict=True)
        gold_B = torch.tensor(label_numbers(answers, self.labels))
        logits_BC = self._logits(images).cpu()
        total, count = cross_entropy(logits_BC, gold_B)
        scores = classification(logits_BC.argmax(-1).tolist(), gold_B.tolist())
        loss = mean_loss(float(total), int(count))
        return {"images": len(images), "loss": loss, "accuracy": scores.accuracy, "macro_f1": scores.macro_f1}

    @torch.inference_mode()
    def _logits(self, images: Sequence[Any]) -> Tensor:
        logits_BC = torch.empty(len(images), len(self.labels), device=self.device)
        tokens = 1 + (self.config.image // self.config.patch) ** 2
        for which in by_length([tokens] * len(images)):
            image_BCLM = _read([images[i] for i in which], self.reader, self.config.image)
            logits_BC[which] = self.model.classes(image_BCLM.to(self.device))
        return logits_BC


def _examples(data: Sequence[tuple[Any, object]]) -> list[Example]:
    """Pairs of image and label, checked as far as this goes without reading the images."""
    if not isinstance(data, Sequence) or any(not isinstance(pair, tuple | list) or len(pair) != 2 for pair in data):
        raise DataError("a list of pairs of image and label is wanted")
    if not data:
        raise DataError("images with labels are wanted, and there is none")
    return [(image, str(label)) for image, label in data]


def _read(images: Sequence[Any], reader: ImageReader, side: int) -> Tensor:
    """Images as one tensor; all must have the size that the model reads."""
    arrays = [reader.read(image) for image in images]
    for image, (_, height, width) in zip(images, (array.shape for array in arrays), strict=True):
        if (height, width) != (side, side):
            named = f"{str(image)!r}" if isinstance(image, str | Path) else "an image"
            raise DataError(
                f"{named} is {height} × {width} pixels large where the model reads {side} × {side}, and its settings "
                f"do not scale it to that"
            )
    return torch.stack([torch.from_numpy(array) for array in arrays])


def _config(wanted: str | VitConfig, classes: int) -> VitConfig:
    """The config of a preset or the given one, for so many classes."""
    config = pick(PRESETS, wanted, "preset") if isinstance(wanted, str) else wanted
    if not isinstance(config, VitConfig):
        raise ConfigError(f"image_classification needs a model of the architecture vit, and {wanted} is none")
    return replace(config, classes=classes)


def _usual(steps: int, *, watched: bool) -> Training:
    """A tenth of the steps is warm-up, ten times it is validated."""
    tenth = steps // 10
    return Training(steps, warmup=tenth, validate_every=max(1, tenth) if watched else 0, weight_decay=0.01)


def _job(
    model: Any,
    settings: Settings,
    examples: Sequence[Example],
    valid: Sequence[Example] | None,
    epochs: Epochs,
    card: str,
) -> Job[ImageBatch]:
    """What the training loop is given."""
    c: VitConfig = settings.config
    reader = ImageReader(c.channels, (c.image, c.image), mean=(0.5,) * c.channels, std=(0.5,) * c.channels)
    parts = ModelParts(model, reader, settings, card)
    images, answers = zip(*examples, strict=True)
    all_images = ImageBatch(_read(images, reader, c.image), torch.tensor(label_numbers(answers, settings.labels)))
    label_numbers((label for _, label in valid or ()), settings.labels)  # refused now, not in the middle of training

    def validate(model: nn.Module) -> dict[str, float]:
        figures = ImageClassifier(replace(parts, model=model)).evaluate(valid or ())
        return {name: float(value) for name, value in figures.items()}

    return Job(
        loss=_loss,
        counts=lambda batch: {"loss": len(batch.class_B)},
        batches=lambda step: [ImageBatch(*(x[which] for x in all_images)) for which in epochs.step(step)],
        move=ImageBatch.to,
        validate=None if valid is None else validate,
        save_extra=lambda folder: describe(folder, parts),
        flops=lambda batch: 3 * model.flops(len(batch.class_B)),
        unit="images",
        blocks=find_layers,
    )


def _card(settings: Settings, count: int, rows: int, training: Training) -> str:
    """README.md of the model directory."""
    lines = [
        f"# Image classification, {len(settings.labels)} classes",
        "",
        f"- Architecture: {settings.architecture}, trained by clearhead {__version__} on torch {torch.__version__}",
        f"- Data: {count} images given in Python",
        f"- Seed: {training.seed}",
        f"- Training: {training.steps} steps of {rows} images, learning rate {training.learning_rate:g}",
        "",
    ]
    return "\n".join(lines)


def _loss(model: Any, batch: ImageBatch) -> Terms:
    return {"loss": cross_entropy(model.classes(batch.image_BCLM), batch.class_B)}
