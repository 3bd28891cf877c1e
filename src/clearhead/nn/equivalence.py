"""Attention that is something else: a fully connected layer, a convolution [cordonnier2020].

Both are exact, because the weights are what they are *after* the softmax: a head that may look at one place only gives
that place the weight one. A head that may look nowhere gives zeros, which is what a convolution pads with.
"""

import torch
from torch import Tensor, nn

from clearhead.errors import ShapeError
from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.masks import Mask

__all__ = ["convolution_as_attention", "linear_as_attention"]


def _copying(width: int, heads: int, out: nn.Linear) -> MultiHeadAttention:
    """Attention whose every head hands on what it looks at: W^V = I; W^O is `out`, whatever its output width."""
    attention = MultiHeadAttention(width, heads, head_width=width)
    with torch.no_grad():
        for parameter in attention.project.parameters():
            parameter.zero_()
        attention.matrices()["v"].copy_(torch.eye(width).repeat(heads, 1))
    attention.out = out
    return attention


@torch.no_grad()
def linear_as_attention(layer: nn.Linear, positions: int) -> tuple[MultiHeadAttention, Mask]:
    """A layer over the flattened (positions × D) input: one head per position, every row of head i's weights = e_i.

    Each position of attention(x, mask=mask) is layer(x.flatten()).
    """
    if layer.in_features % positions:
        raise ShapeError(f"the inputs must divide into positions: in_features={layer.in_features}, {positions=}")
    allowed_HLM = torch.eye(positions, dtype=torch.bool)[:, None, :].expand(-1, positions, -1)
    return _copying(layer.in_features // positions, positions, layer), Mask(allowed=allowed_HLM)


@torch.no_grad()
def convolution_as_attention(layer: nn.Conv2d, height: int, width: int) -> tuple[MultiHeadAttention, Mask]:
    """A k × k convolution that keeps the size, over pixels line by line: one head per offset, W^O the kernel."""
    k = layer.kernel_size[0]
    form = (layer.kernel_size, layer.padding, layer.stride, layer.dilation, layer.groups, layer.padding_mode)
    if k % 2 == 0 or form != ((k, k), (k // 2, k // 2), (1, 1), (1, 1), 1, "zeros"):
        raise ShapeError(f"only odd square kernels that keep the size, undivided, padded with zeros: {layer}")
    # kernel (out, in, row, column): head = (row, column), and within a head the input channels
    out = nn.Linear(k * k * layer.in_channels, layer.out_channels, bias=layer.bias is not None)
    out.weight.copy_(layer.weight.permute(0, 2, 3, 1).flatten(1))
    if layer.bias is not None:
        out.bias.copy_(layer.bias)
    return _copying(layer.in_channels, k * k, out), Mask(allowed=_offsets(k, height, width))


def _offsets(k: int, height: int, width: int) -> Tensor:
    """(k², pixels, pixels): head (r, c) of a pixel looks at the pixel (r − k//2, c − k//2) away, if there is one."""
    row, column = torch.arange(height).repeat_interleave(width), torch.arange(width).repeat(height)
    down, right = row[None, :] - row[:, None], column[None, :] - column[:, None]
    return torch.stack([(down == r - k // 2) & (right == c - k // 2) for r in range(k) for c in range(k)])
