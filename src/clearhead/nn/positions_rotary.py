"""Rotary positions: queries and keys turned, so that their dot product depends on the distance alone [su2021]."""

import torch
from torch import Tensor, nn

from clearhead.errors import ShapeError
from clearhead.nn.positions_absolute import angles

__all__ = ["Rotation"]


class Rotation(nn.Module):
    """Turn each pair of columns of a head by position · base^(−2i/K) [su2021 eq. 15].

    Pairs are (i, i + K/2), or (2i, 2i + 1) when `interleaved`; one is a permutation of the other.
    """

    def __init__(self, head_width: int, base: float = 10_000.0, *, interleaved: bool = False) -> None:
        super().__init__()
        if head_width % 2:
            raise ShapeError(f"rotary positions turn pairs of columns, so the head width must be even: {head_width=}")
        self.head_width, self.base, self.interleaved = head_width, base, interleaved

    def forward(self, x_BHLK: Tensor, position_BL: Tensor) -> Tensor:
        angle_BLK = angles(position_BL, self.head_width, self.base)[:, None]  # K/2 of them, one axis for the heads
        cos_BLK, sin_BLK = angle_BLK.cos().to(x_BHLK.dtype), angle_BLK.sin().to(x_BHLK.dtype)
        if self.interleaved:
            first, second = x_BHLK[..., ::2], x_BHLK[..., 1::2]
        else:
            first, second = x_BHLK.chunk(2, dim=-1)
        turned = (first * cos_BLK - second * sin_BLK, first * sin_BLK + second * cos_BLK)
        return torch.stack(turned, dim=-1).flatten(-2) if self.interleaved else torch.cat(turned, dim=-1)
