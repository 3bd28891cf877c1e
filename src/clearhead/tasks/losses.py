"""Losses of the tasks, as sums over real targets."""

import math

from torch import Tensor

from clearhead.nn.heads import Unembedding

__all__ = ["smoothed_entropy", "word_loss"]


def word_loss(output: Unembedding, x_ND: Tensor, target_N: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Σ KL(q ‖ p) over the targets that are not below zero, and how many they are.

    q is the target with `smoothing` spread evenly over the vocabulary [szegedy2016 §7]; without any this is the
    cross-entropy.
    """
    count = (target_N >= 0).sum()
    total = output.loss(x_ND, target_N, smoothing)
    return total - count * smoothed_entropy(smoothing, output.linear.out_features), count


def smoothed_entropy(smoothing: float, classes: int) -> float:
    """The entropy, in nats, of a target of which `smoothing` is spread evenly over all classes."""
    rest = smoothing / classes
    target = 1 - smoothing + rest
    return -target * math.log(target) - ((classes - 1) * rest * math.log(rest) if rest else 0.0)
