"""Scores: how well a key answers a query, before the softmax.

Most scores are a dot product after a small preparation of the query or the key, and for these the fused kernel
serves: `prepare` and `scale` say all. `raw` is the score before the scale, for those who look.
"""

import math
from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import ConfigError

__all__ = ["SCORES", "Additive", "Cosine", "Dot", "General", "Score"]


class Score(Protocol):
    """What attention asks of a score: s_BHLM = scale · raw(q_BHLK, k_BHMK)."""

    scale: float
    fused: bool  # raw(q, k) is the plain dot product of what `prepare` returns

    def prepare(self, q_BHLK: Tensor, k_BGMK: Tensor) -> tuple[Tensor, Tensor]: ...

    def raw(self, q_BHLK: Tensor, k_BHMK: Tensor) -> Tensor: ...


class Dot(nn.Module):
    """qᵀk, times a scale: 1 for the plain one, 1/√K for the scaled one [vaswani2017 §3.2.1]."""

    fused = True

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def prepare(self, q_BHLK: Tensor, k_BGMK: Tensor) -> tuple[Tensor, Tensor]:
        return q_BHLK, k_BGMK

    def raw(self, q_BHLK: Tensor, k_BHMK: Tensor) -> Tensor:
        return q_BHLK @ k_BHMK.transpose(-1, -2)


class General(nn.Module):
    """qᵀWk, one W per head [luong2015 §3.1]; it starts as I/√K, where the scaled dot product stands."""

    fused = True

    def __init__(self, heads: int, head_width: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.weight_HKK = nn.Parameter((torch.eye(head_width) * head_width**-0.5).repeat(heads, 1, 1))

    def prepare(self, q_BHLK: Tensor, k_BGMK: Tensor) -> tuple[Tensor, Tensor]:
        return q_BHLK @ self.weight_HKK, k_BGMK

    def raw(self, q_BHLK: Tensor, k_BHMK: Tensor) -> Tensor:
        q_BHLK, k_BHMK = self.prepare(q_BHLK, k_BHMK)
        return q_BHLK @ k_BHMK.transpose(-1, -2)


class Cosine(nn.Module):
    """The cosine of the angle between q and k, times a scale.

    Unit vectors in K dimensions drawn at random have a dot product of standard deviation 1/√K,
    so the scale √K starts the softmax where the scaled dot product starts it.
    """

    fused = True

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def prepare(self, q_BHLK: Tensor, k_BGMK: Tensor) -> tuple[Tensor, Tensor]:
        return F.normalize(q_BHLK, dim=-1), F.normalize(k_BGMK, dim=-1)

    def raw(self, q_BHLK: Tensor, k_BHMK: Tensor) -> Tensor:
        q_BHLK, k_BHMK = self.prepare(q_BHLK, k_BHMK)
        return q_BHLK @ k_BHMK.transpose(-1, -2)


class Additive(nn.Module):
    """vᵀ tanh(W q + U k), one v, W and U per head [bahdanau2014 A.1.2]; Luong's concat is the same, [W; U] stacked."""

    fused = False

    def __init__(self, heads: int, head_width: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        bound = 1 / math.sqrt(head_width)
        self.query_HKK = nn.Parameter(torch.empty(heads, head_width, head_width).uniform_(-bound, bound))
        self.key_HKK = nn.Parameter(torch.empty(heads, head_width, head_width).uniform_(-bound, bound))
        self.vector_HK = nn.Parameter(torch.empty(heads, head_width).uniform_(-bound, bound))

    def prepare(self, q_BHLK: Tensor, k_BGMK: Tensor) -> tuple[Tensor, Tensor]:
        return q_BHLK, k_BGMK

    def raw(self, q_BHLK: Tensor, k_BHMK: Tensor) -> Tensor:
        sum_BHLMK = (q_BHLK @ self.query_HKK)[:, :, :, None] + (k_BHMK @ self.key_HKK)[:, :, None]
        return torch.einsum("bhlmk,hk->bhlm", torch.tanh(sum_BHLMK), self.vector_HK)


def _positive(temperature: float) -> float:
    if not temperature > 0:
        raise ConfigError(f"the temperature of a softmax must be above zero: {temperature=}")
    return temperature


# name -> (heads, head width, temperature) -> score. The temperature divides the score: towards 0 the softmax
# becomes the arg max, towards infinity the mean (of what a position bias that stands outside the scale leaves).
SCORES: dict[str, Callable[[int, int, float], Score]] = {
    "dot": lambda heads, width, temperature: Dot(1 / _positive(temperature)),
    "scaled_dot": lambda heads, width, temperature: Dot(width**-0.5 / _positive(temperature)),
    "general": lambda heads, width, temperature: General(heads, width, 1 / _positive(temperature)),
    "additive": lambda heads, width, temperature: Additive(heads, width, 1 / _positive(temperature)),
    "cosine": lambda heads, width, temperature: Cosine(width**0.5 / _positive(temperature)),
}
