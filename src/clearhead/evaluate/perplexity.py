"""Perplexity from a summed cross-entropy and its count."""

import math

__all__ = ["mean_loss", "perplexity"]


def mean_loss(total: float, count: int) -> float:
    """Nats per token; not a number where nothing was counted."""
    return total / count if count else math.nan


def perplexity(total: float, count: int) -> float:
    """exp(total / count), infinite where that is beyond a float.

    >>> round(perplexity(2 * math.log(10), 2), 6)
    10.0
    """
    try:
        return math.exp(mean_loss(total, count))
    except OverflowError:
        return math.inf
