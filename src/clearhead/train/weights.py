"""Weights as files: safetensors, each tied tensor stored once, names and shapes checked before anything is loaded."""

import errno
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from clearhead.errors import CheckpointError

__all__ = ["distinct", "load_tensors", "load_weights", "read_tensors", "save_weights", "write_tensors"]


def distinct(model: nn.Module) -> dict[str, Tensor]:
    """The model's state, tied tensors under their first name only; the tensors are the live ones, not copies."""
    seen: set[Tensor] = set()
    state: dict[str, Tensor] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if tensor not in seen:
            seen.add(tensor)
            state[name] = tensor.detach()
    return state


def save_weights(model: nn.Module, path: Path) -> None:
    """Write the model's state as safetensors."""
    write_tensors(path, distinct(model))


def load_weights(model: nn.Module, path: Path) -> None:
    """Read what `save_weights` wrote into a model of the same architecture; what is tied stays tied."""
    load_tensors(model, read_tensors(path), source=path)


def load_tensors(model: nn.Module, tensors: Mapping[str, Tensor], *, source: Path) -> None:
    """Copy the tensors into the model; every name and shape must agree, else nothing is changed."""
    own = distinct(model)
    problem = _difference(tensors, own)
    if problem:
        raise CheckpointError(f"{source} is of another architecture than this model: {problem}")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def _difference(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> str:
    missing, extra = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    if missing:
        return f"it lacks {missing[0]!r}" + (f" and {len(missing) - 1} more tensors" if missing[1:] else "")
    if extra:
        return f"it has {extra[0]!r}" + (f" and {len(extra) - 1} more tensors" if extra[1:] else "") + " besides"
    for name, tensor in wanted.items():
        if found[name].shape != tensor.shape:
            return f"its {name!r} has shape {tuple(found[name].shape)}, here it is {tuple(tensor.shape)}"
    return ""


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write named tensors as one safetensors file; a full disk is an OSError, as for any other file."""
    try:
        save_file({name: _own_memory(tensor) for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        code = re.search(r"os error (\d+)", str(error))
        raise OSError(int(code[1]) if code else errno.EIO, str(error), str(path)) from error


def _own_memory(tensor: Tensor) -> Tensor:
    """The tensor alone in its storage, as safetensors wants it."""
    plain = tensor.detach().cpu().contiguous()
    return plain if plain.untyped_storage().nbytes() == plain.nbytes else plain.clone()


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file, by name."""
    try:
        return load_file(path)
    except FileNotFoundError as error:
        raise CheckpointError(f"there are no weights at {path}") from error
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read as safetensors ({error}); it may be cut short") from error
