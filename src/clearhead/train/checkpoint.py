"""One checkpoint: a folder from which the model can be used, and training can go on to the same bits.

    model.safetensors        the weights to use: averaged where there is a moving average, adapters merged
    optimizer.safetensors    `optimizer.*` Adam's moments; and only where they differ from the above,
                             `weights.*` the weights that learn, `average.*` their moving average
    state.json               step, validations so far, settings
    …                        whatever the caller adds: config.json, tokenizer.json

Random states and the position in the data are functions of the seed and the step (`seed.py`, `Job.batches`).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from clearhead.errors import CheckpointError
from clearhead.nn.weights import distinct, read_tensors, write_tensors
from clearhead.train.average import MovingAverage
from clearhead.train.disk import aside
from clearhead.train.distributed import World, gather
from clearhead.train.history import History
from clearhead.train.lora import merged
from clearhead.train.optim import optimizer_state
from clearhead.train.settings import Training

__all__ = ["Saved", "State", "read_checkpoint", "write_checkpoint"]

FORMAT_VERSION = 1


@dataclass
class State:
    """All that changes while training."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    average: MovingAverage | None = None
    step: int = 0
    history: History = field(default_factory=dict)


@dataclass(frozen=True)
class Saved:
    """What a checkpoint holds."""

    step: int
    history: History
    weights: Mapping[str, Tensor]
    optimizer: dict[str, Tensor]
    average: dict[str, Tensor]


def write_checkpoint(
    folder: Path,
    state: State,
    training: Training,
    world: World,
    *,
    save_extra: Callable[[Path], None],
    kept: str = "",
) -> None:
    """Write the folder aside and rename it into place; every rank must call this, rank 0 writes."""
    weights = gather(distinct(state.model), world)
    average = gather(state.average.averages, world) if state.average else {}
    moments = gather(optimizer_state(state.optimizer, state.model), world)
    if not world.leads:
        return
    usable = merged({**weights, **average})
    tensors = _prefixed("optimizer", moments) | _prefixed("average", average)
    if state.average or usable.keys() != weights.keys():
        tensors |= _prefixed("weights", weights)
    with aside(folder, kept=kept) as temporary:
        temporary.mkdir()
        write_tensors(temporary / "model.safetensors", usable)
        write_tensors(temporary / "optimizer.safetensors", tensors)
        (temporary / "state.json").write_text(json.dumps(_describe(state, training), indent=1), encoding="utf-8")
        save_extra(temporary)


def read_checkpoint(folder: Path) -> Saved:
    """What `write_checkpoint` wrote, on the CPU."""
    try:
        described = json.loads((folder / "state.json").read_text("utf-8"))
        version = described["format_version"]
        step = int(described["step"])
        history = {int(row["step"]): dict(row["figures"]) for row in described["history"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{folder} has no readable state.json ({error!r}), so it cannot be resumed") from error
    if version != FORMAT_VERSION:
        raise CheckpointError(f"{folder} has format_version {version!r}; this clearhead resumes {FORMAT_VERSION}")
    tensors = read_tensors(folder / "optimizer.safetensors")
    weights = _unprefixed("weights", tensors) or read_tensors(folder / "model.safetensors")
    return Saved(step, history, weights, _unprefixed("optimizer", tensors), _unprefixed("average", tensors))


def _describe(state: State, training: Training) -> dict[str, object]:
    return {
        "format_version": FORMAT_VERSION,
        "step": state.step,
        "history": [{"step": step, "figures": figures} for step, figures in state.history.items()],
        "training": asdict(training),
    }


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def _unprefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    start = f"{prefix}."
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
