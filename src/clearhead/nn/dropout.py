"""Dropout (Srivastava et al. 2014) at a tenth of the price that PyTorch asks for it on a CPU.

`F.dropout` on a CPU draws one slow Bernoulli number per element, on one core. Here one 64-bit word of SFC64
decides four elements, each by comparing its own 16 bits with a threshold, so that the rate is exact to 1/65536:

    y = x * mask / (1 - rate),   mask ~ Bernoulli(1 - rate),   rate = round(65536 p) / 65536

Every mask starts from one number drawn from PyTorch's own CPU generator. So `torch.manual_seed` reproduces it,
a restored generator state resumes it, `torch.utils.checkpoint` recomputes it, and the number of threads does not
matter. The backward pass keeps one byte per element. Devices other than the CPU take PyTorch's own dropout.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from clearhead.errors import ConfigError

__all__ = ["Dropout", "check_rate", "dropout", "keep_mask", "keep_scale"]

_LEVELS = 1 << 16
_SEEDS = (1 << 63) - 1


class Dropout(nn.Module):
    """Set each element to zero with probability `p` and scale the rest by 1 / (1 - p), in training only."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = check_rate(p)

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p) if self.training else x

    def extra_repr(self) -> str:
        return f"p={self.p}"


def dropout(x: Tensor, p: float) -> Tensor:
    """Drop elements of `x` with probability `p`; the identity where `p` is zero."""
    if p == 0.0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p)
    if torch.compiler.is_compiling():
        return x * (keep_mask(x.shape, p, x.device).to(x.dtype) * keep_scale(p))
    dropped: Tensor = _Dropout.apply(x, p)
    return dropped


def keep_mask(shape: Sequence[int], p: float, device: torch.device | str = "cpu") -> Tensor:
    """Ones (keep) and zeros (drop, with probability `p`) as bytes, from PyTorch's generator of that device.

    They are uint8 and not bool because converting bool to float is 3 to 5 times slower, and choosing by
    `torch.where` or `masked_fill`, which mispredict a branch per random element, 10 times.
    """
    if torch.device(device).type != "cpu":
        return torch.empty(tuple(shape), dtype=torch.uint8, device=device).bernoulli_(1.0 - p)
    seed = torch.randint(_SEEDS, ())
    if torch.compiler.is_compiling():
        traced: Tensor = torch.ops.clearhead.keep_mask(seed, shape, p)
        return traced
    return _draw(seed, shape, p)


def keep_scale(p: float) -> float:
    """The factor that keeps the mean: 1 / (1 - rate), with the rate that the mask really has."""
    return _LEVELS / (_LEVELS - _threshold(p))


def check_rate(p: float) -> float:
    """`p` itself, refused unless 0 <= p < 1."""
    if not 0.0 <= p < 1.0:
        raise ConfigError(f"a dropout rate must be at least 0 and below 1: {p=}")
    return p


def _threshold(p: float) -> int:
    return min(round(p * _LEVELS), _LEVELS - 1)


def _draw(seed: Tensor, shape: Sequence[int], p: float) -> Tensor:
    count = math.prod(shape)
    words = np.random.SFC64(int(seed)).random_raw(-(-count // 4))
    keep = words.view(np.uint16)[:count] >= _threshold(p)
    return torch.from_numpy(keep.view(np.uint8)).view(tuple(shape))


# A compiler sees the drawing as one opaque operation whose result follows from the seed, which it is given as a
# tensor: so it neither breaks the graph nor takes two equal calls for one.
_traced = torch.library.custom_op(
    "clearhead::keep_mask", _draw, mutates_args=(), schema="(Tensor seed, SymInt[] shape, float p) -> Tensor"
)


@_traced.register_fake
def _(seed: Tensor, shape: Sequence[int], p: float) -> Tensor:
    return seed.new_empty(shape, dtype=torch.uint8)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        mask = keep_mask(x.shape, p)
        ctx.save_for_backward(mask)
        ctx.scale = keep_scale(p)
        return _scaled_product(x, mask, ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return _scaled_product(grads[0], mask, ctx.scale), None


def _scaled_product(x: Tensor, mask: Tensor, scale: float) -> Tensor:
    """scale * x * mask, with the converted mask as the only new memory."""
    y = mask.to(x.dtype)
    return torch.addcmul(y.new_zeros(()), x, y, value=scale, out=y)
