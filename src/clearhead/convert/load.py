"""Another project's checkpoint as a model of ours."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.convert.families import FAMILIES
from clearhead.convert.family import Family
from clearhead.convert.files import read_json, tensors_of
from clearhead.convert.mapping import fill
from clearhead.errors import CheckpointError, ConfigError
from clearhead.models.presets import build
from clearhead.nn.weights import unfilled

__all__ = ["Foreign", "is_foreign", "load_foreign", "model_of"]

CONFIG = "config.json"


@dataclass(frozen=True)
class Foreign:
    """A model of another project, made of our parts: the model, our config of it, and their own config.json."""

    model: nn.Module
    config: Any
    about: Mapping[str, Any]


def is_foreign(folder: Path) -> bool:
    """Whether the folder is laid out as Hugging Face has it."""
    return (folder / CONFIG).is_file() and "model_type" in read_json(folder / CONFIG)


def load_foreign(
    folder: Path, *, dtype: torch.dtype | None = torch.float32, change: Callable[[Any], Any] | None = None
) -> Foreign:
    """The model of such a folder; `change` is made to our config before the model is built."""
    about = read_json(folder / CONFIG)
    _family(about, folder)  # before the weights are looked for
    return model_of(about, tensors_of(folder), source=folder, dtype=dtype, change=change)


def model_of(
    about: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    *,
    source: Path,
    dtype: torch.dtype | None = torch.float32,
    change: Callable[[Any], Any] | None = None,
) -> Foreign:
    """The model that a config.json and tensors, both as Hugging Face names things, are of.

    dtype   of the weights; None keeps them as they are stored
    """
    family = _family(about, source)
    tensors = family.spelled(tensors)
    try:
        config = family.read(about, tensors.keys())
        config = config if change is None else change(config)
        with unfilled(), _numbers(dtype or _stored(tensors)):
            model = build(config)
    except (ConfigError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{source / CONFIG} cannot be used: {_reason(error)}") from error
    fill(model, family.rows(config), tensors, source=str(source), ignored=family.ignored)
    return Foreign(model.eval(), config, about)


def _family(about: Mapping[str, Any], source: Path) -> Family:
    kind = about.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise CheckpointError(f"{source} is a model of type {kind!r}; this clearhead reads {', '.join(FAMILIES)}")
    return FAMILIES[kind]


def _reason(error: Exception) -> str:
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error)


def _stored(tensors: Mapping[str, Tensor]) -> torch.dtype:
    """The numbers in which the largest tensor is stored."""
    return max(tensors.values(), key=Tensor.numel).dtype


@contextlib.contextmanager
def _numbers(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
