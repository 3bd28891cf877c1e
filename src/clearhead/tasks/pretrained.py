"""What the classes of all tasks have in common: they are made around a model, and read and write its directory."""

from pathlib import Path
from typing import ClassVar, Self

import torch

from clearhead.tasks.directory import ModelParts, save_model
from clearhead.tasks.loading import load_model

__all__ = ["Pretrained"]


class Pretrained:
    """A model with its tokenizer and settings; what is done with it is the task's."""

    TASK: ClassVar[str]

    def __init__(self, parts: ModelParts) -> None:
        self.parts = parts
        self.model, self.tokenizer = parts.model, parts.tokenizer
        self.config = parts.settings.config

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return next(iter(self.model.parameters())).device

    @classmethod
    def from_pretrained(cls, folder: str | Path, *, precision: str = "float32", threads: int | None = None) -> Self:
        """The model of a model directory, of a run's best checkpoint, or of a folder or file of others.

        precision   "float32", or "int8": weights in 8 bits, for use alone
        threads     of PyTorch, in the whole process
        """
        return cls(load_model(folder, cls.TASK, precision=precision, threads=threads))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write a new model directory."""
        save_model(Path(folder), self.parts)
