"""Another project's checkpoint as a model of ours."""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.convert.families import FAMILIES
from clearhead.convert.family import Family
from clearhead.convert.files import read_json, tensors_of
from clearhead.convert.mapping import Row, fill, fit
from clearhead.errors import CheckpointError, ConfigError
from clearhead.models.presets import build
from clearhead.nn.weights import unfilled

__all__ = ["Foreign", "is_foreign", "load_foreign", "model_of"]

CONFIG = "config.json"
SHARED = 1000  # layers of the same weights, at most


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
        config, ignored = family.read(about, tensors.keys()), family.ignored
        if change is not None:  # what the model had without it, such as a head, may be there
            ignored += tuple(re.escape(name) for row in family.rows(config) for name in row.theirs)
            config = change(config)
        _check_depth(config, len(tensors))
        rows = family.rows(config)
        with unfilled(), torch.device("meta"):  # memory is taken once there are tensors of these sizes
            outline = build(config)
    except (ArithmeticError, KeyError, RuntimeError, TypeError, ValueError) as error:
        said = source / CONFIG if source.is_dir() else source
        raise CheckpointError(f"{said} cannot be used: {_reason(error)}") from error
    fit(outline, rows, tensors, source=str(source), ignored=ignored)
    _check_twins(family, rows, tensors, source)
    with unfilled(), _numbers(dtype or _stored(tensors)):
        model = build(config)
    fill(model, rows, tensors, source=str(source), ignored=ignored)
    return Foreign(model.eval(), config, about)


def _check_twins(family: Family, rows: Sequence[Row], tensors: Mapping[str, Tensor], source: Path) -> None:
    """Refuse a tensor that is not read because it is another one under a second name, where it is not."""
    read = {name for row in rows for name in row.theirs}
    for twin, name in family.twins:
        if twin in tensors and twin not in read and name in read and not _same(tensors[twin], tensors[name]):
            raise CheckpointError(
                f"{source} has two different tensors {twin!r} and {name!r}, which its config.json says are one "
                "(tie_word_embeddings)"
            )


def _same(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.to(other.dtype), other)


def _check_depth(config: Any, tensors: int) -> None:
    """Refuse more layers than can be: each has tensors of its own, unless they are shared."""
    layers = sum(getattr(config, name, 0) for name in ("layers", "encoder_layers", "decoder_layers"))
    if layers > max(tensors, SHARED):
        raise ConfigError(f"{layers} layers cannot be made of {tensors} tensors")


def _family(about: Mapping[str, Any], source: Path) -> Family:
    kind = about.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise CheckpointError(f"{source} is a model of type {kind!r}; this clearhead reads {', '.join(FAMILIES)}")
    return FAMILIES[kind]


def _reason(error: Exception) -> str:
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error).partition("\n")[0]


def _stored(tensors: Mapping[str, Tensor]) -> torch.dtype:
    """The numbers in which the largest tensor is stored, of those that are no masks or counts."""
    real = (tensor for tensor in tensors.values() if tensor.is_floating_point())
    return max(real, key=Tensor.numel, default=torch.empty(0, dtype=torch.float32)).dtype


@contextlib.contextmanager
def _numbers(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
