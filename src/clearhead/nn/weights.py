"""Weights as files: safetensors, each tied tensor stored once, names and shapes checked before anything is loaded."""

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from clearhead.errors import CheckpointError
from clearhead.nn.stored import Restored, packed

__all__ = [
    "TensorFile",
    "distinct",
    "finite",
    "load_tensors",
    "load_weights",
    "read_tensors",
    "save_weights",
    "unfilled",
    "write_tensors",
]


def distinct(model: nn.Module) -> dict[str, Tensor]:
    """The model's state, tied tensors under their first name only; the tensors are the live ones, not copies."""
    seen: set[Tensor] = set()
    state: dict[str, Tensor] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if tensor not in seen:
            seen.add(tensor)
            state[name] = tensor.detach()
    return state


def save_weights(model: nn.Module, path: Path, store: str | None = None) -> None:
    """Write the model's state as safetensors: as it is, or in as many bits as a row of `STORES` says."""
    state = distinct(model)
    write_tensors(path, state if store is None else packed(state, store))


def load_weights(model: nn.Module, path: Path) -> None:
    """Read what `save_weights` wrote into a model of the same architecture; what is tied stays tied.

    Each tensor goes straight into its place: the model is in memory once.
    """
    load_tensors(model, Restored(TensorFile(path), path), source=path)
    for name, tensor in distinct(model).items():
        if not finite(tensor):
            raise CheckpointError(f"{path} is broken: {name!r} holds values that are not numbers")


def load_tensors(model: nn.Module, tensors: Mapping[str, Tensor], *, source: Path | str) -> None:
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


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: dict[str, str] | None = None) -> None:
    """Write named tensors, and words about them, as one safetensors file; a full disk is an OSError, as ever."""
    try:
        save_file({name: _own_memory(tensor) for name, tensor in tensors.items()}, path, about)
    except SafetensorError as error:
        code = re.search(r"os error (\d+)", str(error))
        raise OSError(int(code[1]) if code else errno.EIO, str(error), str(path)) from error
    with contextlib.suppress(OSError):  # on a file system without rights there is nothing to mend
        path.chmod(0o666 & ~_mask())  # safetensors would leave the file to its owner alone


def _mask() -> int:
    """The rights that new files do not get here; they can only be read by setting them."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _own_memory(tensor: Tensor) -> Tensor:
    """The tensor alone in its storage, as safetensors wants it."""
    plain = tensor.detach().cpu().contiguous()
    return plain if plain.untyped_storage().nbytes() == plain.nbytes else plain.clone()


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file, by name."""
    with _readable(path):
        return load_file(path)


class TensorFile(Mapping[str, Tensor]):
    """A safetensors file, of which nothing is read before it is asked for.

    The file is opened anew for each tensor: an open one keeps every page that was ever read of it in memory, which
    would be the whole model a second time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with _readable(path), safe_open(path, "pt") as file:
            self.shapes = {name: tuple(file.get_slice(name).get_shape()) for name in list(file.keys())}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.shapes:
            raise KeyError(name)
        with _readable(self.path), safe_open(self.path, "pt") as file:
            tensor: Tensor = file.get_tensor(name)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise CheckpointError(f"there are no weights at {path}") from error
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read as safetensors ({error}); it may be cut short") from error


def finite(tensor: Tensor) -> bool:
    """Whether every value is a number. A sum says so in one pass, unless it overflows."""
    return bool(tensor.sum().isfinite()) or bool(tensor.isfinite().all())


class _NothingDrawn(TorchFunctionMode):
    """Tensors keep what they hold where a random value would be put into them."""

    # Those of `nn.init` that are intercepted as a whole; the others end in the methods.
    DRAWN = frozenset(
        {torch.Tensor.normal_, torch.Tensor.uniform_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_}
    )

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if func in self.DRAWN:
            return args[0] if args else named["tensor"]
        return func(*args, **named)


@contextlib.contextmanager
def unfilled() -> Iterator[None]:
    """Models built in here have no first values: for those who load others at once."""
    with _NothingDrawn():
        yield
