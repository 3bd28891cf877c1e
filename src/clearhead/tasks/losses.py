"""Losses of the tasks, as sums over real targets."""

from torch import Tensor

from clearhead.nn.heads import Unembedding
from clearhead.train.loss import smoothed_entropy

__all__ = ["word_loss"]


def word_loss(output: Unembedding, x_ND: Tensor, target_N: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Σ KL(q ‖ p) over the targets that are not below zero, and how many they are.

    q is the target with `smoothing` spread evenly over the vocabulary [szegedy2016 §7]; without any this is the
    cross-entropy.
    """
    count = (target_N >= 0).sum()
    total = output.loss(x_ND, target_N, smoothing)
    return total - count * smoothed_entropy(smoothing, output.linear.out_features), count
