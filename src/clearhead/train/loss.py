"""Losses as sums with their counts, so that whoever trains can normalise them over any number of batches and ranks."""

import math
from collections.abc import Mapping

from torch import Tensor
from torch.nn import functional

from clearhead.errors import ConfigError

__all__ = ["IGNORE", "Term", "Terms", "cross_entropy", "smoothed_entropy"]

Term = tuple[Tensor, Tensor | int]
Terms = Mapping[str, Term]

IGNORE = -100
"""The target that is no target: padding, or a word that was not masked."""


def cross_entropy(logits_NV: Tensor, target_N: Tensor, *, smoothing: float = 0.0, ignore: int = IGNORE) -> Term:
    """Σ KL(q ‖ softmax(logits)) over the real targets, and how many there are.

    q gives 1 − ε + ε/V to the target and ε/V to every other word (ε = `smoothing`) [szegedy2016 §7,
    vaswani2017 §5.4]. At ε = 0 this is the cross-entropy; otherwise it is the smoothed cross-entropy less
    the entropy of q, hence 0 for the best possible prediction.
    """
    if not 0 <= smoothing < 1:
        raise ConfigError(f"label smoothing must lie in [0, 1): {smoothing=}")
    count = (target_N != ignore).sum()
    total = functional.cross_entropy(
        logits_NV.float(), target_N, ignore_index=ignore, label_smoothing=smoothing, reduction="sum"
    )
    return total - count * smoothed_entropy(smoothing, logits_NV.shape[-1]), count


def smoothed_entropy(smoothing: float, classes: int) -> float:
    """The entropy, in nats, of a target of which `smoothing` is spread evenly over all classes."""
    rest = smoothing / classes
    target = 1 - smoothing + rest
    return -target * math.log(target) - ((classes - 1) * rest * math.log(rest) if rest else 0.0)
