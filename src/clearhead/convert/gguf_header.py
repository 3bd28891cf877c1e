"""What stands before the weights of a GGUF file: settings by name, and where each tensor lies.

    magic, version, number of tensors, number of settings
    settings   name, type, value
    tensors    name, dimensions (the innermost first), type, offset
    weights    from the next multiple of `general.alignment` on

Nothing is believed: a length is compared with what is left of the file before anything of it is read, so that a file
that claims more than it has costs one sentence and no memory.
"""

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, final

from clearhead.errors import CheckpointError

__all__ = ["Header", "Place", "read_header"]

MAGIC, VERSIONS = b"GGUF", (2, 3)
DIMENSIONS = 4
# Types of settings: numbers by their code in `struct`, then those that say their own length.
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, LIST = 8, 9


@dataclass(frozen=True)
class Place:
    """A tensor in the file: its shape, the innermost dimension last, its type, and its bytes."""

    shape: tuple[int, ...]
    type: int
    start: int
    length: int


@dataclass(frozen=True)
class Header:
    """The settings of a file, and its tensors by name."""

    settings: dict[str, Any]
    tensors: dict[str, Place]


def read_header(path: Path, blocks: Callable[[int], tuple[int, int]]) -> Header:
    """Read what stands before the weights.

    `blocks` says of a type of tensors how many numbers make up a block, and how many bytes it has; an unknown type
    is a ValueError.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _header(_Cursor(data), blocks)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{str(path)!r} cannot be read as a GGUF file: {error}") from error


@final
class _Cursor:
    """A place in the file that moves behind whatever is read there."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.place, self.size = data, 0, len(data)

    def take(self, count: int) -> bytes:
        left = self.size - self.place
        if count > left:
            raise ValueError(f"at byte {self.place} it claims {count} more bytes, and {left} are left")
        self.place += count
        return self.data[self.place - count : self.place]

    def number(self, code: str) -> Any:
        return self.numbers(code, 1)[0]

    def numbers(self, code: str, count: int) -> tuple[Any, ...]:
        taken = self.take(count * struct.calcsize(f"<{code}"))
        return struct.unpack(f"<{count}{code}", taken)

    def text(self) -> str:
        return self.take(self.number("Q")).decode()

    def value(self, type: int) -> Any:
        if type in NUMBERS:
            return self.number(NUMBERS[type])
        if type == TEXT:
            return self.text()
        if type == LIST:
            return self.values(self.number("I"), self.number("Q"))
        raise ValueError(f"at byte {self.place} it has a setting of the type {type}, which does not exist")

    def values(self, type: int, count: int) -> list[Any]:
        if type in NUMBERS:
            return list(self.numbers(NUMBERS[type], count))
        if type == TEXT:
            return [self.text() for _ in range(count)]
        raise ValueError(f"at byte {self.place} it has a list of the type {type}, and lists are of numbers or texts")


def _header(cursor: _Cursor, blocks: Callable[[int], tuple[int, int]]) -> Header:
    magic, version = cursor.take(len(MAGIC)), cursor.number("I")
    if magic != MAGIC or version not in VERSIONS:
        raise ValueError(f"it begins with {magic!r} and version {version}; known are {MAGIC!r} and versions {VERSIONS}")
    tensor_count, setting_count = cursor.numbers("Q", 2)
    settings: dict[str, Any] = {}
    for _ in range(setting_count):
        name = cursor.text()
        if name in settings:
            raise ValueError(f"the setting {name!r} is there twice")
        settings[name] = cursor.value(cursor.number("I"))
    alignment = settings.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"general.alignment is {alignment!r}")
    tensors: dict[str, Place] = {}
    for _ in range(tensor_count):
        name = cursor.text()
        if name in tensors:
            raise ValueError(f"the tensor {name!r} is there twice")
        tensors[name] = _place(cursor, name, blocks)
    first = -(-cursor.place // alignment) * alignment
    return Header(settings, {name: _within(place, first, name, cursor.size) for name, place in tensors.items()})


def _place(cursor: _Cursor, name: str, blocks: Callable[[int], tuple[int, int]]) -> Place:
    count = cursor.number("I")
    if not 1 <= count <= DIMENSIONS:
        raise ValueError(f"the tensor {name!r} has {count} dimensions")
    shape = tuple(reversed(cursor.numbers("Q", count)))
    type, offset = cursor.number("I"), cursor.number("Q")
    numbers, bytes_each = blocks(type)
    if 0 in shape or shape[-1] % numbers:
        raise ValueError(f"rows of the tensor {name!r} of shape {shape} do not divide into blocks of {numbers}")
    return Place(shape, type, offset, prod(shape) // numbers * bytes_each)


def _within(place: Place, first: int, name: str, size: int) -> Place:
    start = first + place.start
    if start + place.length > size:
        raise ValueError(f"the tensor {name!r} of shape {place.shape} would end at byte {start + place.length}, "
                         f"and the file at {size}")  # fmt: skip
    return Place(place.shape, place.type, start, place.length)
