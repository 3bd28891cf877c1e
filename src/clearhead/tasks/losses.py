"""Losses of the tasks, as sums over real targets."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from clearhead.nn.heads import Unembedding
from clearhead.train.loss import smoothed_entropy

__all__ = ["Loss", "word_loss"]


@dataclass(frozen=True)
class Loss:
    """The summed loss of one batch as a function of the model, and how many rows the batch has."""

    rows: int
    of: Callable[[Any], Tensor]

    def __call__(self, model: Any) -> Tensor:
        return self.of(model)


def word_loss(output: Unembedding, x_ND: Tensor, target_N: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Σ KL(q ‖ p) over the targets that are not below zero, and how many they are.

    q is the target with `smoothing` spread evenly over the vocabulary [szegedy2016 §7]; without any this is the
    cross-entropy.
    """
    count = (target_N >= 0).sum()
    total = output.loss(x_ND, target_N, smoothing)
    return total - count * smoothed_entropy(smoothing, output.linear.out_features), count
