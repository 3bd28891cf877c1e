"""The settings of a training run, as one frozen value."""

from dataclasses import dataclass

from clearhead.errors import ConfigError
from clearhead.train.schedule import SCHEDULES, Timing

__all__ = ["BETTER", "PRECISIONS", "PROGRESS", "Training"]

BETTER = ("lower", "higher")
PRECISIONS = ("float32", "bf16")
PROGRESS = ("auto", "bar", "lines", "json", "quiet")


@dataclass(frozen=True)
class Training:
    """How to train; what to train on is a `Job`.

    Steps are optimiser steps and are counted from 1. A count of 0 switches its feature off.
    """

    steps: int
    seed: int = 0
    accumulate: int = 1  # micro-batches per step on each rank; read by whoever builds `Job.batches`
    device: str = "auto"  # a torch device, or "auto": a GPU where there is one
    precision: str = "float32"
    compile: bool = False
    checkpoint_activations: bool = False  # recompute the blocks in the backward pass: less memory, more time
    shard: bool = False  # FSDP2: parameters, gradients and optimizer state spread over the ranks

    learning_rate: float = 1e-3  # the peak; for "noam" the factor before the paper's formula, usually 1 or 2
    schedule: str = "cosine"
    warmup: int = 0
    floor: float = 0.0  # where cosine and linear end, as a share of the peak
    width: int = 0  # the model's width, for "noam" alone
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-9
    weight_decay: float = 0.0
    clip: float = 1.0  # largest global gradient norm
    ema: float = 0.0  # decay of the moving average of the weights, which is then what is validated and kept
    freeze: tuple[str, ...] = ()  # patterns of parameter names that do not learn, such as "encoder.*"

    validate_every: int = 0
    metric: str = "loss"  # which of validate's figures decides what is best
    better: str = "lower"
    patience: int = 0  # validations without a better one before stopping
    checkpoint_every: int = 0
    keep: int = 3  # so many of the best checkpoints stay, and the last

    log_every: int = 10
    progress: str = "auto"
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name in ("steps", "accumulate", "keep", "log_every"):
            _require(self, name, getattr(self, name) >= 1, "must be at least 1")
        for name in ("seed", "warmup", "width", "validate_every", "patience", "checkpoint_every"):
            _require(self, name, getattr(self, name) >= 0, "must not be negative")
        for name in ("learning_rate", "eps"):
            _require(self, name, getattr(self, name) > 0, "must be above 0")
        for name in ("weight_decay", "clip"):
            _require(self, name, getattr(self, name) >= 0, "must not be negative")
        for name in ("floor", "ema"):
            _require(self, name, 0 <= getattr(self, name) < 1, "must lie in [0, 1)")
        _require(self, "betas", all(0 <= beta < 1 for beta in self.betas), "must lie in [0, 1)")
        for name, known in (
            ("schedule", sorted(SCHEDULES)),
            ("precision", PRECISIONS),
            ("better", BETTER),
            ("progress", PROGRESS),
        ):
            _require(self, name, getattr(self, name) in known, f"must be one of {', '.join(known)}")
        _require(self, "width", self.schedule != "noam" or self.width > 0, "must be the model's width for 'noam'")
        _require(self, "patience", not self.patience or self.validate_every > 0, "needs validate_every")

    @property
    def timing(self) -> Timing:
        return Timing(steps=self.steps, warmup=self.warmup, floor=self.floor, width=self.width)


def _require(training: Training, name: str, holds: bool, rule: str) -> None:
    if not holds:
        raise ConfigError(f"training setting {name} {rule}: {name}={getattr(training, name)!r}")
