"""What training is given: functions over batches that it never looks into."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import torch
from torch import nn

from clearhead.errors import ConfigError
from clearhead.train.blocks import find_blocks
from clearhead.train.loss import Terms

__all__ = ["Job"]

Batch = TypeVar("Batch")


def _stay(batch: Batch, device: torch.device) -> Batch:
    return batch


def _nothing(folder: Path) -> None: ...


@dataclass(frozen=True)
class Job(Generic[Batch]):
    """One training job.

    `batches(step)` gives the micro-batches of this rank for an optimiser step (counted from 1); it must be a pure
    function of the step, so that resuming has nothing to replay. With more ranks than sentences it may be empty.
    `counts(batch)` says beforehand what `loss(model, batch)` will count for each term: the sums of all
    micro-batches and ranks are divided by the counts of all of them.
    """

    loss: Callable[[nn.Module, Batch], Terms]
    counts: Callable[[Batch], Mapping[str, int]]
    batches: Callable[[int], list[Batch]]
    terms: tuple[str, ...] = ("loss",)  # the names of the loss's terms; the loss that is shown is their sum
    move: Callable[[Batch, torch.device], Batch] = _stay
    validate: Callable[[nn.Module], Mapping[str, float]] | None = None  # in evaluation mode, on every rank
    samples: Callable[[nn.Module], list[str]] | None = None  # lines to show at each validation
    save_extra: Callable[[Path], None] = _nothing  # adds config.json and the like to a checkpoint's folder
    flops: Callable[[Batch], float] | None = None  # of a forward and backward pass, for the share of peak
    unit: str = "tokens"  # what the first term counts
    blocks: Callable[[nn.Module], list[nn.Module]] = find_blocks  # what to recompute or shard one at a time

    def __post_init__(self) -> None:
        if not self.terms or len(set(self.terms)) < len(self.terms):
            raise ConfigError(f"the terms of a loss need different names, at least one: terms={self.terms!r}")
        if len(self.terms) > 1 and "loss" in self.terms:
            raise ConfigError(f"none of several terms may be called 'loss', their sum is: terms={self.terms!r}")
