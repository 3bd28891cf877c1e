"""Greedy decoding: the most probable token at each step."""

from collections.abc import Sequence

from torch import Tensor

from clearhead.generate.best import best

__all__ = ["take_best"]


def take_best(score_BV: Tensor, rows: Sequence[int]) -> Tensor:
    """The best token of each row."""
    return best(score_BV, 1).place_NK[:, 0]
