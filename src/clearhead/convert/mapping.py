"""Tensors of another project's checkpoint and of ours: which is which, and the way there and back.

A map is a list of rows. A row says of one tensor of ours what it is made of over there; both directions follow from it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from clearhead.errors import CheckpointError
from clearhead.nn.weights import distinct, finite

__all__ = ["Row", "Tensors", "fill", "fit", "layer", "shapes_of", "spill"]

SHOWN = 10  # of the tensors that do not fit


@dataclass(frozen=True)
class Row:
    """One tensor of ours, and what it is made of over there.

    theirs      one name, or several that lie one after another in our first dimension (q, k, v; gate, up)
    sizes       lengths of the pieces; equal parts where not said
    transposed  a matrix is (inputs, outputs) there: GPT-2's Conv1D
    skip        so many first rows of theirs have no counterpart (RoBERTa's, BART's positions); zeros on the way out
    lead        theirs has one more leading dimension, of 1
    flipped     theirs has the first dimension in the opposite order
    """

    ours: str
    theirs: tuple[str, ...]
    sizes: tuple[int, ...] = ()
    transposed: bool = False
    skip: int = 0
    lead: bool = False
    flipped: bool = False


# A checkpoint: its tensors by name, each read when it is asked for where they lie in a file.
Tensors = Mapping[str, Tensor]


def layer(ours: str, theirs: str, modules: Iterable[Row], ends: Sequence[str] = ("weight", "bias")) -> list[Row]:
    """The rows of the tensors (`ends`) of modules, whose names stand behind these two prefixes."""
    return [
        replace(row, ours=f"{ours}{row.ours}.{end}", theirs=tuple(f"{theirs}{name}.{end}" for name in row.theirs))
        for row in modules
        for end in ends
    ]


@torch.no_grad()
def fill(model: nn.Module, rows: Sequence[Row], tensors: Tensors, *, source: str, ignored: Sequence[str] = ()) -> None:
    """Every tensor straight into its final place, each read once; what does not fit is told all together.

    source    where the checkpoint comes from, for complaints
    ignored   regular expressions of names that may be there and that no row asks for
    """
    parts, shapes = list(_parts(model, rows)), shapes_of(tensors)
    complaints = _misfits(parts, shapes, ignored)
    for row, name, part in parts:
        if shapes.get(name) == _shape_there(row, part) and not finite(part.copy_(_here(row, tensors[name]))):
            complaints.append(f"{name!r} holds NaN or infinity")
    _refuse(complaints, source)


def fit(model: nn.Module, rows: Sequence[Row], tensors: Tensors, *, source: str, ignored: Sequence[str] = ()) -> None:
    """Refuse what `fill` would refuse by names and shapes: nothing is read, and the model may be on the device meta."""
    _refuse(_misfits(list(_parts(model, rows)), shapes_of(tensors), ignored), source)


def shapes_of(tensors: Tensors) -> Mapping[str, tuple[int, ...]]:
    """The shape of each tensor, by name: as `shapes` says where the tensors lie in a file, so that none is read."""
    said: Mapping[str, tuple[int, ...]] | None = getattr(tensors, "shapes", None)
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()} if said is None else said


def _misfits(
    parts: Sequence[tuple[Row, str, Tensor]], shapes: Mapping[str, tuple[int, ...]], ignored: Sequence[str]
) -> list[str]:
    """What is missing, of another shape, or surplus."""
    wanted = {name: _shape_there(row, part) for row, name, part in parts}
    missing = [f"{name!r} is missing" for name in wanted if name not in shapes]
    misshapen = [
        f"{name!r} has shape {shapes[name]} instead of {shape}"
        for name, shape in wanted.items()
        if shapes.get(name, shape) != shape
    ]
    carries_nothing = re.compile("|".join(ignored) or r"(?!)")
    surplus = [name for name in sorted(shapes.keys() - wanted.keys()) if not carries_nothing.fullmatch(name)]
    return missing + misshapen + [f"{name!r} is surplus" for name in surplus]


def _refuse(complaints: Sequence[str], source: str) -> None:
    if complaints:
        raise CheckpointError(f"{source} does not fit this model in {len(complaints)} tensors: {_first(complaints)}")


@torch.no_grad()
def spill(model: nn.Module, rows: Sequence[Row]) -> dict[str, Tensor]:
    """The model's tensors under their names and in their layout; views of ours wherever the layout is the same."""
    return {name: _there(row, part) for row, name, part in _parts(model, rows)}


def _parts(model: nn.Module, rows: Sequence[Row]) -> Iterator[tuple[Row, str, Tensor]]:
    """Each tensor of theirs: its row, its name, and its place in ours."""
    own = distinct(model)
    unmapped = sorted(own.keys() ^ {row.ours for row in rows})
    if unmapped:
        raise CheckpointError(f"the map is not of this model, names that only one of them has: {_first(unmapped)}")
    for row in rows:
        whole = own[row.ours]
        pieces = whole.split(row.sizes or len(whole) // len(row.theirs)) if len(row.theirs) > 1 else (whole,)
        yield from zip([row] * len(pieces), row.theirs, pieces, strict=True)


def _here(row: Row, tensor: Tensor) -> Tensor:
    """Theirs as ours lies."""
    tensor = tensor[0] if row.lead else tensor
    tensor = tensor.mT if row.transposed and tensor.dim() > 1 else tensor
    tensor = tensor[row.skip :] if row.skip else tensor
    return tensor.flip(0) if row.flipped else tensor


def _there(row: Row, part: Tensor) -> Tensor:
    """Ours as theirs lies."""
    part = part.flip(0) if row.flipped else part
    part = torch.cat([part.new_zeros(row.skip, *part.shape[1:]), part]) if row.skip else part
    part = part.mT.contiguous() if row.transposed and part.dim() > 1 else part
    return part[None] if row.lead else part


def _shape_there(row: Row, part: Tensor) -> tuple[int, ...]:
    return tuple(_there(row, part.to("meta")).shape)


def _first(names: Sequence[str]) -> str:
    """The first few, and how many there are besides."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"
