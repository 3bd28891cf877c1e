"""Weights that take less room in a file than in memory: in 16 bits, or in 8 with a scale for each row.

    W_r ≈ s_r · q_r          s_r = max |W_r| / 127,    q_r = round(W_r / s_r), whole numbers from −127 to 127

A row is what stands along the last dimension: the weights of one output, the vector of one word. These are the rows and
scales of `nn/int8.py` too, so a model that computes in int8 is the same whether or not its file was rounded before.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from clearhead.errors import CheckpointError

__all__ = ["STORES", "Restored", "packed"]

SCALE = ".scale"
STEPS = 127
LEAST = 1e-30


def _in_8_bits(name: str, tensor: Tensor) -> dict[str, Tensor]:
    if tensor.dim() < 2:  # biases and norms are few, and the rest leans on them
        return {name: tensor}
    scale = tensor.float().abs().amax(-1).clamp(min=LEAST) / STEPS
    return {name: (tensor.float() / scale[..., None]).round().to(torch.int8), name + SCALE: scale}


# name -> (a tensor's name, the tensor) -> what stands for it in the file
STORES: Mapping[str, Callable[[str, Tensor], dict[str, Tensor]]] = MappingProxyType(
    {
        "float32": lambda name, tensor: {name: tensor},
        "float16": lambda name, tensor: {name: tensor.half()},
        "int8": _in_8_bits,
    }
)


def packed(tensors: Mapping[str, Tensor], store: str) -> dict[str, Tensor]:
    """Named tensors as they are written; whatever is not a broken number stays as it is."""
    made: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        made |= STORES[store](name, tensor) if tensor.is_floating_point() else {name: tensor}
    return made


class Restored(Mapping[str, Tensor]):
    """Tensors of a file by the names that they have in the model, those in 8 bits multiplied by their scales."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = tensors
        scales = {name + SCALE for name in tensors}
        self.names = tuple(name for name in tensors if name not in scales)

    def __getitem__(self, name: str) -> Tensor:
        tensor = self.tensors[name]
        if name + SCALE not in self.tensors:
            return tensor
        scale = self.tensors[name + SCALE]
        if scale.shape != tensor.shape[:-1]:
            raise CheckpointError(f"{name!r} has shape {tuple(tensor.shape)}, its scales {tuple(scale.shape)}")
        return tensor.to(scale.dtype) * scale[..., None]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)
