"""Weights that take less room in a file than in memory: in 16 bits, or in 8 with a scale for each row.

    W_r ≈ s_r · q_r          s_r = max |W_r| / 127,    q_r = round(W_r / s_r), whole numbers from −127 to 127

A row is what stands along the last dimension: the weights of one output, the vector of one word. These are the rows and
scales of `nn/int8.py` too, so that linear layers in int8 are the same whether or not their file was rounded before.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from clearhead.errors import CheckpointError
from clearhead.nn.tables import pick

__all__ = ["STORES", "Restored", "packed"]

SCALE = ".scale"
STEPS = 127
LEAST = 1e-30


def _in_8_bits(name: str, tensor: Tensor) -> dict[str, Tensor]:
    if tensor.dim() < 2 or not tensor.numel():  # biases and norms are few, and the rest leans on them
        return {name: tensor}
    scale = tensor.float().abs().amax(-1).clamp(min=LEAST) / STEPS
    return {name: (tensor.float() / scale[..., None]).round().to(torch.int8), name + SCALE: scale}


# name -> (a tensor's name, the tensor) -> what stands for it in the file
STORES: Mapping[str, Callable[[str, Tensor], dict[str, Tensor]]] = MappingProxyType(
    {
        "float32": lambda name, tensor: {name: tensor.float()},
        "float16": lambda name, tensor: {name: tensor.half()},
        "int8": _in_8_bits,
    }
)


def packed(tensors: Mapping[str, Tensor], store: str) -> dict[str, Tensor]:
    """Named tensors as they are written; counts and the like, which are whole numbers, stay as they are."""
    pack = pick(STORES, store, "store")
    made: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        made |= pack(name, tensor) if tensor.is_floating_point() else {name: tensor}
    return made


class Restored(Mapping[str, Tensor]):
    """Tensors of a file by the names that they have in the model, those in 8 bits multiplied by their scales."""

    def __init__(self, tensors: Mapping[str, Tensor], source: object) -> None:
        self.tensors, self.source = tensors, source
        scales = {name + SCALE for name in tensors}
        self.names = tuple(name for name in tensors if name not in scales)

    def __getitem__(self, name: str) -> Tensor:
        tensor = self.tensors[name]
        if tensor.dtype != torch.int8:
            return tensor
        scale = self.tensors.get(name + SCALE)
        if scale is None or scale.shape != tensor.shape[:-1]:
            found = "has no scales" if scale is None else f"has scales for {tuple(scale.shape)}"
            raise CheckpointError(f"{self.source} is broken: {name!r}, of shape {tuple(tensor.shape)}, {found}")
        return tensor.to(scale.dtype) * scale[..., None]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)
