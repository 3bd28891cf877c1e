"""The blocks of a model: the pieces that are recomputed (activation checkpointing) or sharded one at a time."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

__all__ = ["find_blocks", "recomputing"]


def find_blocks(model: nn.Module) -> list[nn.Module]:
    """The members of the model's outermost `nn.ModuleList`s, each once: the layers of its stacks."""
    if isinstance(model, nn.ModuleList):
        return [*dict.fromkeys(model)]
    return [*dict.fromkeys(block for child in model.children() for block in find_blocks(child))]


@contextmanager
def recomputing(blocks: Sequence[nn.Module]) -> Iterator[None]:
    """Inside, each block keeps only its input and computes the rest again in the backward pass [chen2016].

    Takes effect while the block is training and gradients are wanted; the random draws are repeated too.
    """
    for block in blocks:
        block.forward = partial(_forward, block, block.forward)
    try:
        yield
    finally:
        for block in blocks:
            del block.forward


def _forward(block: nn.Module, forward: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    if not (block.training and torch.is_grad_enabled()):
        return forward(*arguments, **options)
    return checkpoint(forward, *arguments, use_reentrant=False, **options)
