"""Norms: bring a vector to a known size, place by place.

`NORMS` is the table that models choose from. Batch and instance norm stand outside it: they exist to be compared with.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

__all__ = ["NORMS", "BatchNorm", "InstanceNorm", "LayerNorm", "RMSNorm", "ScaleNorm", "fix_norm"]

LayerNorm = nn.LayerNorm  # (x − μ) / √(σ² + ε) · g + b, over the last dimension [ba2016]
RMSNorm = nn.RMSNorm  # x / √(mean(x²) + ε) · g [zhang2019]


class ScaleNorm(nn.Module):
    """g · x / ‖x‖ with a single learned g, √width at first [nguyen2019 eq. 5]."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.gain = nn.Parameter(torch.tensor(math.sqrt(width)))

    def forward(self, x: Tensor) -> Tensor:
        return x * (self.gain / x.norm(dim=-1, keepdim=True).clamp(min=self.eps))


def fix_norm(x: Tensor, length: float = 1.0, eps: float = 1e-5) -> Tensor:
    """Vectors brought to one length, as FixNorm does with word embeddings [nguyen2019 §2.3]."""
    return x * (length / x.norm(dim=-1, keepdim=True).clamp(min=eps))


class BatchNorm(nn.Module):
    """Each feature over the real batch and all its positions; in evaluation, over what training saw."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x_BLD: Tensor) -> Tensor:
        return self.norm(x_BLD.transpose(1, 2)).transpose(1, 2)


class InstanceNorm(nn.Module):
    """Each feature over the positions of one sequence."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.InstanceNorm1d(width, affine=True)

    def forward(self, x_BLD: Tensor) -> Tensor:
        return self.norm(x_BLD.transpose(1, 2)).transpose(1, 2)


# name -> (width, ε) -> norm
NORMS: dict[str, Callable[[int, float], nn.Module]] = {
    "layer_norm": lambda width, eps: LayerNorm(width, eps=eps),
    "rms_norm": lambda width, eps: RMSNorm(width, eps=eps),
    "scale_norm": ScaleNorm,
}
