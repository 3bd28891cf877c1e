"""Rotary positions: queries and keys turned, so that their dot product depends on the distance alone [su2021]."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError, ShapeError
from clearhead.nn.positions_absolute import angles, frequencies

__all__ = ["Rotation", "Stretch"]


@dataclass(frozen=True)
class Stretch:
    """Slower turns, for texts longer than those that a model was first trained on.

    factor     pairs turn at 1/factor of their speed: positions are interpolated [chen2023]
    length     None for all pairs alike. Otherwise, as Llama 3 has it [dubey2024], only for pairs that turn less than
               `low` times within this length; those that turn more than `high` times keep their speed, and between
               there is a line
    """

    factor: float = 1.0
    length: int | None = None
    low: float = 1.0
    high: float = 4.0

    def __post_init__(self) -> None:
        if not self.factor > 0 or not self.low < self.high:
            raise ConfigError(f"rotary positions are stretched by a factor above 0 and between low < high: {self}")

    def __call__(self, frequency: Tensor) -> Tensor:
        if self.factor == 1.0:
            return frequency
        if self.length is None:
            return frequency / self.factor
        turns = self.length * frequency / (2 * math.pi)
        kept = ((turns - self.low) / (self.high - self.low)).clamp(0, 1)
        return frequency * (kept + (1 - kept) / self.factor)


class Rotation(nn.Module):
    """Turn each pair of columns of a head by position · base^(−2i/K) [su2021 eq. 15].

    Pairs are (i, i + K/2), or (2i, 2i + 1) when `interleaved`; one is a permutation of the other.
    """

    def __init__(
        self, head_width: int, base: float = 10_000.0, *, interleaved: bool = False, stretch: Stretch | None = None
    ) -> None:
        super().__init__()
        if head_width % 2:
            raise ShapeError(f"rotary positions turn pairs of columns, so the head width must be even: {head_width=}")
        self.head_width, self.base, self.interleaved = head_width, base, interleaved
        self.stretch = Stretch() if stretch is None else stretch

    def forward(self, x_BHLK: Tensor, position_BL: Tensor) -> Tensor:
        frequency_K = self.stretch(frequencies(self.head_width, self.base, position_BL.device))  # K/2 of them
        angle_BLK = angles(position_BL, frequency_K)[:, None]  # one axis for the heads
        cos_BLK, sin_BLK = angle_BLK.cos().to(x_BHLK.dtype), angle_BLK.sin().to(x_BHLK.dtype)
        if self.interleaved:
            first, second = x_BHLK[..., ::2], x_BHLK[..., 1::2]
        else:
            first, second = x_BHLK.chunk(2, dim=-1)
        turned = (first * cos_BLK - second * sin_BLK, first * sin_BLK + second * cos_BLK)
        return torch.stack(turned, dim=-1).flatten(-2) if self.interleaved else torch.cat(turned, dim=-1)
