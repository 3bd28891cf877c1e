"""Decisions that follow from the validations so far, as pure functions of their history."""

import math
from collections.abc import Mapping, Sequence

from clearhead.errors import ConfigError
from clearhead.train.settings import Training

__all__ = ["History", "kept_steps", "out_of_patience", "ranking"]

History = dict[int, dict[str, float]]
"""The figures of each validation, by step."""


def ranking(history: History, training: Training) -> list[int]:
    """The validated steps, best first; the earlier of equals comes first, and what is not a number not at all."""
    sign = 1 if training.better == "lower" else -1
    scores = {step: sign * _figure(figures, training.metric) for step, figures in history.items()}
    return sorted((step for step in scores if math.isfinite(scores[step])), key=lambda step: (scores[step], step))


def out_of_patience(history: History, training: Training) -> bool:
    """Whether as many validations as `patience` says have passed since the best one."""
    best = ranking(history, training)[:1]
    since = [step for step in history if not best or step > best[0]]
    return 0 < training.patience <= len(since)


def kept_steps(steps: Sequence[int], history: History, training: Training) -> set[int]:
    """Which of the checkpoints stay: the last, and the `keep` best; those never validated rank below, newest first."""
    best = [step for step in ranking(history, training) if step in steps]
    others = sorted(set(steps) - set(best), reverse=True)
    return {max(steps), *(best + others)[: training.keep]}


def _figure(figures: Mapping[str, float], metric: str) -> float:
    if metric not in figures:
        raise ConfigError(f"validation gives {sorted(figures)}, and metric={metric!r} is not among them")
    return figures[metric]
