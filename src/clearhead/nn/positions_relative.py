"""Relative positions: a term on the score that depends on the distance between query and key.

Each bias is called as bias(q_BHLK, k_BGMK, position_BL) and returns something that broadcasts to (B, H, L, M); key m
stands at position m. `inside` says whether the term belongs inside the scaled score, as (qᵀk + bias) · scale, or is
added after the scale.
"""

import math

import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.nn.positions_absolute import sinusoid

__all__ = [
    "AlibiBias",
    "BucketBias",
    "DistanceBias",
    "DistanceValue",
    "SinusoidalDistanceBias",
    "alibi_slopes",
    "bucket",
]


def _distances(position_BL: Tensor, keys: int) -> Tensor:
    """How far query l stands behind key m: position − m, positive in the past."""
    return position_BL[:, :, None] - torch.arange(keys, device=position_BL.device)


class DistanceBias(nn.Module):
    """qᵀ a_clip(j−i): a learned key vector per distance, shared by the heads [shaw2018 eq. 4]; row clip + i − j."""

    inside = True

    def __init__(self, head_width: int, clip: int) -> None:
        super().__init__()
        self.clip = clip
        self.table_RK = nn.Parameter(torch.randn(2 * clip + 1, head_width) * head_width**-0.5)

    def forward(self, q_BHLK: Tensor, k_BGMK: Tensor, position_BL: Tensor) -> Tensor:
        slot_BLM = _distances(position_BL, k_BGMK.shape[2]).clamp(-self.clip, self.clip) + self.clip
        every_BHLR = q_BHLK @ self.table_RK.T
        return every_BHLR.gather(-1, slot_BLM[:, None].expand(*q_BHLK.shape[:3], -1))


class DistanceValue(nn.Module):
    """Σ_j w_ij a_clip(j−i): a learned value vector per distance, added to what is read [shaw2018 eq. 3]; rows alike."""

    def __init__(self, head_width: int, clip: int) -> None:
        super().__init__()
        self.clip = clip
        self.table_RK = nn.Parameter(torch.randn(2 * clip + 1, head_width) * head_width**-0.5)

    def forward(self, weights_BHLM: Tensor, position_BL: Tensor) -> Tensor:
        slot_BLM = _distances(position_BL, weights_BHLM.shape[3]).clamp(-self.clip, self.clip) + self.clip
        mass_BHLR = weights_BHLM.new_zeros(*weights_BHLM.shape[:3], 2 * self.clip + 1)
        mass_BHLR = mass_BHLR.scatter_add(-1, slot_BLM[:, None].expand_as(weights_BHLM), weights_BHLM)
        return mass_BHLR @ self.table_RK


def bucket(distance: Tensor, buckets: int, farthest: int, *, causal: bool) -> Tensor:
    """The group that a distance falls into: near ones alone, far ones by their logarithm [raffel2020 §2.1].

    Where the future is seen as well, it has the upper half of the buckets.

    >>> bucket(torch.tensor([0, 1, 15, 16, 500, -3]), 32, 128, causal=True).tolist()
    [0, 1, 15, 16, 31, 0]
    """
    if causal:
        offset, distance = torch.zeros_like(distance), distance.clamp(min=0)
    else:
        buckets //= 2
        offset, distance = (distance < 0) * buckets, distance.abs()
    exact = buckets // 2
    ratio = torch.log(distance.clamp(min=1).float() / exact) / math.log(farthest / exact)
    far = (exact + (ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
    return offset + torch.where(distance < exact, distance, far)


class BucketBias(nn.Module):
    """A learned number per head and bucket of distances [raffel2020 §2.1]."""

    inside = False

    def __init__(self, heads: int, buckets: int = 32, farthest: int = 128, *, causal: bool = False) -> None:
        super().__init__()
        if not 1 <= buckets // (2 if causal else 4) < farthest:
            raise ConfigError(
                "half of a side's buckets hold one distance each: there must be one such bucket, and `farthest` beyond "
                f"them: {buckets=}, {farthest=}"
            )
        self.buckets, self.farthest, self.causal = buckets, farthest, causal
        self.table = nn.Embedding(buckets, heads)

    def forward(self, q_BHLK: Tensor, k_BGMK: Tensor, position_BL: Tensor) -> Tensor:
        distance_BLM = _distances(position_BL, k_BGMK.shape[2])
        slot_BLM = bucket(distance_BLM, self.buckets, self.farthest, causal=self.causal)
        bias_BLMH: Tensor = self.table(slot_BLM)
        return bias_BLMH.permute(0, 3, 1, 2)


def alibi_slopes(heads: int) -> list[float]:
    """2^(−8/h), 2^(−16/h), … for a power of two; otherwise every other one of the next power fills up [press2022 §3].

    >>> alibi_slopes(4)
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    between = [2 ** (-4 * (i + 1) / power) for i in range(0, 2 * power, 2)]
    return slopes + between[: heads - power]


class AlibiBias(nn.Module):
    """−slope_h · |i − j| [press2022 §3]; nothing is learned."""

    inside = False

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.slope_H: Tensor
        self.register_buffer("slope_H", torch.tensor(alibi_slopes(heads)), persistent=False)

    def forward(self, q_BHLK: Tensor, k_BGMK: Tensor, position_BL: Tensor) -> Tensor:
        distance_BLM = _distances(position_BL, k_BGMK.shape[2]).abs()
        # DIFF[press2022]: the paper sees the past alone; the distance to the future is penalised alike here
        return -self.slope_H[:, None, None] * distance_BLM[:, None]


class SinusoidalDistanceBias(nn.Module):
    """uᵀk + (q + v)ᵀ W r(i − j), with r a sinusoid: terms (b), (c) and (d) of the score [dai2019 §3.3]."""

    inside = True

    def __init__(self, heads: int, head_width: int, base: float = 10_000.0) -> None:
        super().__init__()
        self.heads, self.base, self.width = heads, base, 2 * ((heads * head_width + 1) // 2)
        self.project = nn.Linear(self.width, heads * head_width, bias=False)
        self.content_HK = nn.Parameter(torch.zeros(heads, head_width))
        self.position_HK = nn.Parameter(torch.zeros(heads, head_width))

    def forward(self, q_BHLK: Tensor, k_BGMK: Tensor, position_BL: Tensor) -> Tensor:
        keys = k_BGMK.shape[2]
        # A query stands among its keys, so every distance lies between 1 − M and M − 1.
        distance_R = torch.arange(1 - keys, keys, device=q_BHLK.device)
        sinusoid_RW = sinusoid(distance_R, self.width, self.base, halves=True).to(q_BHLK.dtype)
        r_HKR = self.project(sinusoid_RW).unflatten(-1, (self.heads, -1)).permute(1, 2, 0)
        every_BHLR = (q_BHLK + self.position_HK[:, None]) @ r_HKR
        slot_BLM = _distances(position_BL, keys) + (keys - 1)
        by_distance_BHLM = every_BHLR.gather(-1, slot_BLM[:, None].expand(*q_BHLK.shape[:3], -1))
        groups = self.content_HK.unflatten(0, (k_BGMK.shape[1], -1))  # the heads that share keys, side by side
        by_content_BHLM = (groups @ k_BGMK.transpose(-1, -2)).flatten(1, 2)[:, :, None]  # the same for all queries
        return by_distance_BHLM + by_content_BHLM
