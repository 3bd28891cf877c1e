"""Learning-rate schedules: pure functions from a step (counted from 1) to a factor of the learning rate.

With w warm-up steps, n steps in all and the floor f, each rises linearly to 1 at step w, and then

| name | factor |
|---|---|
| constant | 1 |
| linear | f + (1 − f)(1 − p), where p = (step − w) / (n − w) |
| cosine | f + (1 − f)(1 + cos πp) / 2 |
| inverse_root | √(w / step) |
| noam | d^−½ · min(step^−½, step · w^−3/2), unlike the others an absolute rate [vaswani2017 §5.3] |
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["SCHEDULES", "Schedule", "Timing", "constant", "cosine", "inverse_root", "linear", "noam"]


@dataclass(frozen=True)
class Timing:
    """The lengths that a schedule depends on; `width` (the model's) matters to `noam` alone."""

    steps: int
    warmup: int = 0
    floor: float = 0.0
    width: int = 0


Schedule = Callable[[int, Timing], float]


def constant(step: int, timing: Timing) -> float:
    return min(1.0, step / max(timing.warmup, 1))


def linear(step: int, timing: Timing) -> float:
    if step < timing.warmup:
        return step / timing.warmup
    return timing.floor + (1 - timing.floor) * (1 - _progress(step, timing))


def cosine(step: int, timing: Timing) -> float:
    if step < timing.warmup:
        return step / timing.warmup
    return timing.floor + (1 - timing.floor) * (1 + math.cos(math.pi * _progress(step, timing))) / 2


def inverse_root(step: int, timing: Timing) -> float:
    warmup = max(timing.warmup, 1)
    return float(min(step / warmup, (warmup / step) ** 0.5))


def noam(step: int, timing: Timing) -> float:
    warmup = max(timing.warmup, 1)
    return float(timing.width**-0.5 * min(step**-0.5, step * warmup**-1.5))


def _progress(step: int, timing: Timing) -> float:
    """How much of what follows the warm-up is over; stays at 1 beyond the last step."""
    return min(1.0, (step - timing.warmup) / max(timing.steps - timing.warmup, 1))


SCHEDULES: dict[str, Schedule] = {
    "constant": constant,
    "cosine": cosine,
    "inverse_root": inverse_root,
    "linear": linear,
    "noam": noam,
}
