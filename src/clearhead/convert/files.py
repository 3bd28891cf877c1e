"""Checkpoints of others as files: one safetensors file, several with an index, or what old PyTorch pickled.

Nothing is executed and no name in a file is trusted: pickles go through PyTorch's loader of plain tensors alone, and an
index may name files of its own folder alone.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, overload
from zipfile import ZIP_STORED, ZipFile

import torch
from torch import Tensor

from clearhead.convert.mapping import shapes_of
from clearhead.errors import CheckpointError
from clearhead.nn.weights import TensorFile

__all__ = ["read_json", "tensors_of"]

SAFE, PICKLED = "model.safetensors", "pytorch_model.bin"
ARCHIVE = b"PK\x03\x04"
NAMES: dict[type[Any], str] = {dict: "object", list: "list"}


def tensors_of(folder: Path) -> Mapping[str, Tensor]:
    """All tensors of a checkpoint, by name, each read when it is asked for."""
    for name in (SAFE, PICKLED):
        read = TensorFile if name == SAFE else _unpickled
        if (folder / name).is_file():
            return read(folder / name)
        if (folder / f"{name}.index.json").is_file():
            return _Shards({place: read(folder / place) for place in _places(folder / f"{name}.index.json")})
    raise CheckpointError(f"{folder} holds no weights: there is neither {SAFE} nor {PICKLED}, nor an index of either")


@overload
def read_json(path: Path) -> dict[str, Any]: ...


@overload
def read_json(path: Path, kind: type[list[Any]]) -> list[Any]: ...


def read_json(path: Path, kind: type[Any] = dict) -> Any:
    """The JSON object, or the list, in a file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(value, kind):
        raise CheckpointError(f"{path} should hold a JSON {NAMES[kind]}, not {value!r:.60}")
    return value


class _Shards(Mapping[str, Tensor]):
    """Several files as one."""

    def __init__(self, files: Mapping[str, Mapping[str, Tensor]]) -> None:
        self.home: dict[str, Mapping[str, Tensor]] = {}
        for place, file in files.items():
            twice = next((name for name in file if name in self.home), None)
            if twice is not None:
                raise CheckpointError(f"the tensor {twice!r} is in two files, {place} and one before it")
            self.home |= dict.fromkeys(file, file)
        self.shapes = {name: shape for file in files.values() for name, shape in shapes_of(file).items()}

    def __getitem__(self, name: str) -> Tensor:
        return self.home[name][name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.home)

    def __len__(self) -> int:
        return len(self.home)


def _places(index: Path) -> list[str]:
    """The files that an index names; they must lie beside it."""
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not names or not all(isinstance(place, str) for place in names.values()):
        raise CheckpointError(f"{index} has no `weight_map` from tensors to files")
    places = sorted(set(names.values()))
    for place in places:
        if Path(place).name != place or "\\" in place or place in (".", ".."):
            raise CheckpointError(f"{index} names the file {place!r}, which does not lie in its own folder")
        if not (index.parent / place).is_file():
            raise CheckpointError(f"{index} names the file {place!r}, which is not there")
    return places


def _unpickled(path: Path) -> Mapping[str, Tensor]:
    """The tensors of a `.bin` file, by the loader that builds tensors and plain containers and nothing else."""
    try:
        zipped = _is_archive(path)
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except CheckpointError:
        raise
    except Exception as error:  # what a broken pickle makes of its reader is anybody's guess
        if type(error).__name__ == "UnpicklingError":
            raise CheckpointError(f"{path} is refused: it holds more than tensors; nothing of it was run") from error
        raise CheckpointError(f"{path} cannot be read as weights of PyTorch ({_first_line(error)})") from error
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise CheckpointError(f"{path} should hold tensors by name, not {type(found).__name__}")
    odd = next((name for name, value in found.items() if not isinstance(value, Tensor)), None)
    if odd is not None:
        raise CheckpointError(f"{path} should hold tensors by name; {odd!r} is {type(found[odd]).__name__}")
    most = path.stat().st_size  # strides of zero make a tensor of any size out of one number
    vast = next((name for name, value in found.items() if value.numel() * value.itemsize > most), None)
    if vast is not None:
        raise CheckpointError(f"{path} is refused: {vast!r} claims to be larger than the file, {[*found[vast].shape]}")
    return found


def _is_archive(path: Path) -> bool:
    """Whether it is a zip archive, as since PyTorch 1.6, by the mark that PyTorch goes by.

    In one of its own, nothing is compressed: what is would become larger than the file, or be read as other numbers.
    """
    with path.open("rb") as file:
        if file.read(len(ARCHIVE)) != ARCHIVE:
            return False
    with ZipFile(path) as archive:
        packed = next((entry.filename for entry in archive.infolist() if entry.compress_type != ZIP_STORED), None)
    if packed is not None:
        raise CheckpointError(
            f"{path} is refused: {packed!r:.60} in it is compressed, which PyTorch's own files are not"
        )
    return True


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200] or type(error).__name__
