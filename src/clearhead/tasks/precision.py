"""In which numbers a loaded model computes, and on how many threads."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from clearhead.errors import ConfigError
from clearhead.nn.int8 import Int8Linear, to_int8
from clearhead.nn.layout import for_decoding
from clearhead.nn.tables import pick

__all__ = ["PRECISIONS", "check_savable", "compile_step", "for_use"]


# Each makes a model that was just loaded ready for use, in place.
PRECISIONS: Mapping[str, Callable[[nn.Module], nn.Module]] = MappingProxyType(
    {"float32": for_decoding, "int8": to_int8}
)


def for_use(model: nn.Module, precision: str, threads: int | None = None) -> None:
    """Make the model ready for use; `threads` are those of PyTorch, in the whole process."""
    prepare = pick(PRECISIONS, precision, "precision")
    if threads is not None:
        if threads < 1:
            raise ConfigError(f"at least one thread is needed: threads={threads}")
        torch.set_num_threads(threads)
    prepare(model)


def compile_step(model: Any) -> None:
    """Let PyTorch compile the step of decoding, which takes a minute or two when it is first used.

    Rows that begin at different lengths cannot be compiled as a whole, and take several times as long to begin with.
    """
    model.step = torch.compile(model.step)


def check_savable(model: nn.Module) -> None:
    """Refuse to write weights that were rounded for use: what was rounded off would be lost."""
    if any(isinstance(module, Int8Linear) for module in model.modules()):
        raise ConfigError("a model in int8 is for use, not for saving: load it in float32 and save that")
