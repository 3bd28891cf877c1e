"""Absolute positions: a vector per place, added to the embedding."""

import math

import torch
from torch import Tensor, nn

from clearhead.errors import ShapeError

__all__ = ["LearnedEmbedding", "SinusoidalEmbedding", "angles", "frequencies", "sinusoid"]


def frequencies(width: int, base: float, device: torch.device) -> Tensor:
    """base^(−2i/width) for i < width/2: one for each pair of columns; computed in float64."""
    exponent = torch.arange(0, width, 2, dtype=torch.float64, device=device) / width
    return torch.exp(exponent * -math.log(base))


def angles(position: Tensor, frequency: Tensor) -> Tensor:
    """position · frequency, one angle for each pair of columns.

    Angles are float32, as is customary: beyond position 10⁵ the fastest pair is off by 10⁻² of a turn, and no trained
    model is there.
    """
    return position[..., None].float() * frequency.float()


def sinusoid(position: Tensor, width: int, base: float = 10_000.0, *, halves: bool = False) -> Tensor:
    """PE(pos, 2i) = sin(pos / base^(2i/width)), PE(pos, 2i+1) = cos of the same [vaswani2017 §3.5].

    With `halves` all sines come first, then all cosines: a permutation of the columns.

    >>> sinusoid(torch.tensor([0]), 4).tolist()
    [[0.0, 1.0, 0.0, 1.0]]
    >>> sinusoid(torch.tensor([0]), 4, halves=True).tolist()
    [[0.0, 0.0, 1.0, 1.0]]
    """
    if width % 2:
        raise ShapeError(f"sinusoidal positions go by pairs of columns, so the width must be even: {width=}")
    angle = angles(position, frequencies(width, base, position.device))
    if halves:
        return torch.cat([angle.sin(), angle.cos()], dim=-1)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)


class SinusoidalEmbedding(nn.Module):
    """x + PE(position); fixed, not learned, and defined for every position."""

    def __init__(self, width: int, base: float = 10_000.0, *, halves: bool = False) -> None:
        super().__init__()
        if width % 2:
            raise ShapeError(f"sinusoidal positions go by pairs of columns, so the width must be even: {width=}")
        self.width, self.base, self.halves = width, base, halves

    def forward(self, x_BLD: Tensor, position_BL: Tensor) -> Tensor:
        return x_BLD + sinusoid(position_BL, self.width, self.base, halves=self.halves).to(x_BLD.dtype)


class LearnedEmbedding(nn.Module):
    """x + a learned row per position; there are `length` of them and no more."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(length, width)

    def forward(self, x_BLD: Tensor, position_BL: Tensor) -> Tensor:
        length = _reach(position_BL)
        if length > self.table.num_embeddings:
            raise ShapeError(
                f"{length} positions are more than the {self.table.num_embeddings} that this model has learned: "
                "shorten the input, or build the model with a larger `length` or with positions that have no end"
            )
        return x_BLD + self.table(position_BL)


def _reach(position_BL: Tensor) -> int:
    """One more than the last position; while compiling only the shape can be looked at."""
    if torch.compiler.is_compiling() or position_BL.is_meta or not position_BL.numel():
        return position_BL.shape[1]
    return int(position_BL.max()) + 1
