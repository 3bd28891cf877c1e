"""Sentence pairs: tab-separated lines, two parallel files, or JSON lines with two fields."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from clearhead.data.sources import Line, Tally, existing, lines, records, suffix_of, text_of
from clearhead.data.typed import hasty, is_chosen
from clearhead.errors import ConfigError, DataError

__all__ = ["Pair", "PairSource"]


class Pair(NamedTuple):
    """A sentence and its counterpart, and the line of the first."""

    source: str
    target: str
    line: Line


@dataclass(frozen=True)
class PairSource:
    """Where pairs come from.

    With `target`, `path` and `target` are parallel files, one sentence a line. Otherwise `path` is JSON lines,
    of which `fields` are read (`("translation.fr", "translation.en")`), or tab-separated, of which `columns` are
    read, counted from 0; further columns are ignored. A pair of which a side is blank is skipped and counted. A share
    of the pairs, `as_typed`, comes once more with its source as people type it (`data/typed.py`).
    """

    path: Path
    target: Path | None = None
    fields: tuple[str, str] = ("source", "target")
    columns: tuple[int, int] = (0, 1)
    encoding: str = "utf-8"
    as_typed: float = 0.0

    def __post_init__(self) -> None:
        if min(self.columns) < 0:
            raise ConfigError(f"columns are counted from 0: {self.columns=}")

    def files(self) -> tuple[Path, ...]:
        """The files to read, in order."""
        paths = (self.path,) if self.target is None else (self.path, self.target)
        return tuple(existing(path) for path in paths)

    def pairs(self, tally: Tally | None = None) -> Iterator[Pair]:
        """Every whole pair; what was skipped is in the tally."""
        tally = Tally() if tally is None else tally
        empty = True
        for source, target, line in self._rows(tally):
            pair = Pair(source.strip(), target.strip(), line)
            if pair.source and pair.target:
                empty = False
                yield pair
                if is_chosen(pair.source, self.as_typed):
                    yield pair._replace(source=hasty(pair.source))
            else:
                tally.skip(line.where)
        if empty:
            raise DataError(f"{str(self.path)!r} holds no pair of sentences")

    def _rows(self, tally: Tally) -> Iterator[Pair]:
        if self.target is not None:
            return _parallel(self.path, self.target, self.encoding, tally)
        if suffix_of(self.path) == ".jsonl":
            return _recorded(self.path, self.fields, self.encoding, tally)
        return _tabbed(self.path, self.columns, self.encoding, tally)


def _parallel(source: Path, target: Path, encoding: str, tally: Tally) -> Iterator[Pair]:
    counts = [0, 0]
    for left, right in zip_longest(lines(source, encoding, tally), lines(target, encoding, tally)):
        counts = [counts[0] + (left is not None), counts[1] + (right is not None)]
        if left is not None and right is not None:
            yield Pair(left.text, right.text, left)
    if counts[0] != counts[1]:
        raise DataError(f"parallel files need as many lines: {source} has {counts[0]}, {target} has {counts[1]}")


def _recorded(path: Path, fields: tuple[str, str], encoding: str, tally: Tally) -> Iterator[Pair]:
    for record in records(path, encoding, tally):
        yield Pair(text_of(record, fields[0]), text_of(record, fields[1]), record.line)


def _tabbed(path: Path, columns: tuple[int, int], encoding: str, tally: Tally) -> Iterator[Pair]:
    wanted = max(columns) + 1
    for line in lines(path, encoding, tally):
        cells = line.text.split("\t")
        if len(cells) >= wanted:
            yield Pair(cells[columns[0]], cells[columns[1]], line)
        elif line.text.strip():
            raise DataError(f"{line.where}: {wanted} columns separated by tabs are wanted, not {len(cells)}")
