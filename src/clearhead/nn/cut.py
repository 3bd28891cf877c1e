"""Queries, keys and values cut out of one projection, and their gradients joined again without a copy.

PyTorch joins the gradients of the pieces of a tensor by copying them into a new one. Where a kernel has written them
side by side already, as the projection lay, they are one tensor as they are: this spares a pass over three times the
stream in every layer.
"""

from typing import Any

import torch
from torch import Tensor

__all__ = ["cut_heads", "room_beside"]


def cut_heads(x_BLHK: Tensor, heads: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Pieces of so many heads each, (B, heads, L, K), as views."""
    if torch.compiler.is_compiling() or not (x_BLHK.requires_grad and torch.is_grad_enabled()):
        return _cut(x_BLHK, heads)
    pieces: tuple[Tensor, ...] = _Cut.apply(x_BLHK, heads)  # type: ignore[no-untyped-call]
    return pieces


def room_beside(like: Tensor, heads: tuple[int, ...], length: int) -> tuple[Tensor, ...]:
    """Room for pieces of so many heads each, side by side in one tensor."""
    room_BLHK = like.new_empty(like.shape[0], length, sum(heads), like.shape[-1])
    return _cut(room_BLHK, heads)


def _cut(x_BLHK: Tensor, heads: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(piece_BLHK.transpose(1, 2) for piece_BLHK in x_BLHK.split_with_sizes(heads, 2))


class _Cut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_BLHK: Tensor, heads: tuple[int, ...]) -> tuple[Tensor, ...]:
        ctx.heads = heads
        return _cut(x_BLHK, heads)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        first = grads[0]
        B, _, L, K = first.shape
        width = sum(ctx.heads) * K
        place = first.storage_offset()
        for grad in grads:
            beside = grad.stride() == (L * width, K, width, 1) and grad.storage_offset() == place
            if not beside or grad.untyped_storage().data_ptr() != first.untyped_storage().data_ptr():
                return torch.cat([one.transpose(1, 2) for one in grads], 2), None
            place += grad.shape[1] * K
        return first.as_strided((B, L, sum(ctx.heads), K), (L * width, width, K, 1)), None
