"""Averages of weights: over several checkpoints [vaswani2017 §6.1], and over the steps as training goes on."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from clearhead.errors import CheckpointError, ConfigError
from clearhead.nn.stored import Restored
from clearhead.nn.weights import read_tensors
from clearhead.train.distributed import spread_like

__all__ = ["MovingAverage", "average"]

WEIGHTS = "model.safetensors"


def average(paths: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of the weights of several checkpoint folders (or safetensors files) of one architecture.

    Sums are kept in float64; tensors of whole numbers are taken from the last, weights in 8 bits are none of these.
    """
    if not paths:
        raise ConfigError("averaging needs at least one checkpoint, none was given")
    sums: dict[str, Tensor] = {}
    latest: dict[str, Tensor] = {}
    for path in paths:
        latest = dict(Restored(read_tensors(path / WEIGHTS if path.is_dir() else path), path))
        shapes = {name: tensor.shape for name, tensor in latest.items()}
        if sums and shapes != {name: tensor.shape for name, tensor in sums.items()}:
            raise CheckpointError(f"{path} is of another architecture than {paths[0]}: they cannot be averaged")
        for name, tensor in latest.items():
            sums[name] = sums.get(name, 0) + tensor.double()
    return {
        name: (sums[name] / len(paths)).to(tensor.dtype) if tensor.is_floating_point() else tensor
        for name, tensor in latest.items()
    }


class MovingAverage:
    """The exponential moving average of the learning parameters: a ← a + (1 − β)(w − a) after each step.

    β grows as (1 + step) / (10 + step) up to `decay`, so that the random start is soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.averages = {name: p.detach().clone() for name, p in self.parameters.items()}

    def update(self, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, average in self.averages.items():
            average.lerp_(self.parameters[name].detach(), 1 - decay)

    def load(self, averages: Mapping[str, Tensor]) -> None:
        """Go on from the averages of a checkpoint."""
        if averages.keys() != self.averages.keys():
            raise CheckpointError("the moving average in the checkpoint is of other parameters than those that learn")
        self.averages = {name: spread_like(averages[name], p) for name, p in self.parameters.items()}

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside, the model has the averages as its weights; afterwards its own again, to the bit."""
        own = {name: p.detach().clone() for name, p in self.parameters.items()}
        try:
            self._set(self.averages)
            yield
        finally:
            self._set(own)

    def _set(self, values: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(values[name])
