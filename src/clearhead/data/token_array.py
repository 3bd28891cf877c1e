"""Token arrays: the ids of many documents end to end, in memory or memory-mapped, with the place of each.

On disk an array is two files of plain little-endian integers: `NAME.ids` (uint16 where the vocabulary allows,
else uint32) and `NAME.offsets` (int64; document i is `ids[offsets[i]:offsets[i + 1]]`).
"""

import mmap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import DataError

__all__ = ["ArrayWriter", "TokenArray", "damaged", "narrowest"]

OFFSETS = np.dtype("<i8")


def damaged(folder: Path) -> DataError:
    """What to say of an array that is not as it was written."""
    return DataError(f"the corpus {str(folder)!r} is damaged; delete that folder and it will be built again")


def narrowest(vocabulary: int) -> np.dtype[Any]:
    """The smallest type that holds every id of a vocabulary."""
    return np.dtype("<u2" if vocabulary <= 1 << 16 else "<u4")


@final
@dataclass(frozen=True, eq=False)
class TokenArray:
    """Documents as ids. What is read from it is copied, as int64; a mapped array takes up no memory between reads."""

    ids: NDArray[Any]
    offsets: NDArray[np.int64]
    maps: tuple[mmap.mmap, ...] = ()

    @classmethod
    def of(cls, documents: Iterable[Sequence[int]]) -> "TokenArray":
        """An array in memory."""
        rows = [np.asarray(ids, dtype=np.int64) for ids in documents]
        offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        return cls(np.concatenate([np.empty(0, np.int64), *rows]), offsets)

    @classmethod
    def open(cls, folder: Path, name: str, dtype: np.dtype[Any]) -> "TokenArray":
        """Map the array that an `ArrayWriter` left in `folder`."""
        ids, ids_map = _mapped(folder / f"{name}.ids", dtype)
        offsets, offsets_map = _mapped(folder / f"{name}.offsets", OFFSETS)
        if not len(offsets) or offsets[-1] != len(ids):
            raise damaged(folder)
        return cls(ids, offsets, tuple(found for found in (ids_map, offsets_map) if found is not None))

    def __len__(self) -> int:
        """How many documents."""
        return len(self.offsets) - 1

    @property
    def size(self) -> int:
        """How many tokens."""
        return len(self.ids)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of tokens of each document."""
        return np.diff(self.offsets)

    def documents(self, which: Iterable[int]) -> list[NDArray[np.int64]]:
        """The ids of some documents."""
        return self.spans((int(self.offsets[index]), int(self.offsets[index + 1])) for index in which)

    def spans(self, spans: Iterable[tuple[int, int]]) -> list[NDArray[np.int64]]:
        """Stretches [start, stop) of the stream of all tokens."""
        found = [self.ids[start:stop].astype(np.int64) for start, stop in spans]
        self.release()
        return found

    def part(self, start: int, stop: int) -> "TokenArray":
        """The stretch [start, stop) of the stream, which shares the same storage; a document across an end is cut."""
        within = self.offsets[(self.offsets > start) & (self.offsets < stop)]
        return TokenArray(self.ids[start:stop], np.concatenate([[start], within, [stop]]) - start, self.maps)

    def release(self) -> None:
        """Give mapped pages back, or the resident size would grow to that of the file."""
        for mapped in self.maps:
            if hasattr(mapped, "madvise"):
                mapped.madvise(mmap.MADV_DONTNEED)


@final
class ArrayWriter:
    """Writes an array as it comes, a document or a part of one at a time."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._ids = open(folder / f"{name}.ids", "wb")  # noqa: SIM115
        self._offsets = open(folder / f"{name}.offsets", "wb")  # noqa: SIM115
        self._offsets.write(np.zeros(1, OFFSETS).tobytes())
        self._size = 0

    def add(self, ids: Sequence[int], *, last: bool = True) -> None:
        """Append ids; `last` ends the document."""
        self._ids.write(np.asarray(ids, dtype=self._dtype).tobytes())
        self._size += len(ids)
        if last:
            self._offsets.write(np.array([self._size], OFFSETS).tobytes())

    def __enter__(self) -> "ArrayWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ids.close()
        self._offsets.close()


def _mapped(file: Path, dtype: np.dtype[Any]) -> tuple[NDArray[Any], mmap.mmap | None]:
    try:
        with open(file, "rb") as handle:
            if not handle.seek(0, 2):  # an empty file cannot be mapped
                return np.empty(0, dtype), None
            mapped = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError as error:
        raise damaged(file.parent) from error
    if len(mapped) % dtype.itemsize:
        raise damaged(file.parent)
    return np.frombuffer(mapped, dtype), mapped
