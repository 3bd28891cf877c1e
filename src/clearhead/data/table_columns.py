"""What a column of a table is: inferred once from the training data, and read in the same way ever after.

| kind | is | becomes |
|---|---|---|
| number | numbers, whole ones included; durations, as seconds | a number |
| category | text, values of several kinds, whatever is said to be one | a category |
| boolean | truth values, `true` and `TRUE` of a file among them | a category |
| date | dates and times | numbers: the day since 1970, and its parts that vary |
| constant | one value everywhere | nothing |
| empty | no value at all | nothing |
| identifier | a different text in each row, or whole numbers one after the other | nothing |
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from clearhead.data.tables import Cells, Table
from clearhead.errors import DataError

__all__ = ["KINDS", "PARTS", "Column", "categories_in", "columns_of", "dates_in", "numbers_in", "texts_in"]

FEW = 20  # rows of which it cannot be said that a column only counts them
NUMERIC = (bool, int, float, Decimal, timedelta, np.number, np.bool_)
WHOLE = re.compile(r"(0|-?[1-9][0-9]*)\.0")  # as pandas writes whole numbers of a column that has gaps
TRUTHS = {
    "true": "True",
    "TRUE": "True",
    "false": "False",
    "FALSE": "False",
}  # as polars, R and spreadsheets write them


@dataclass(frozen=True)
class Column:
    """One column as it was found: its kind, how many values differ, how many are missing."""

    name: str
    kind: str
    distinct: int
    missing: int

    @property
    def used(self) -> bool:
        return self.kind in KINDS


KINDS = ("number", "category", "boolean", "date")
"""The kinds that a model learns from."""


def columns_of(table: Table, categories: Sequence[str] = ()) -> tuple[Column, ...]:
    """What each column is; those named in `categories` are categories, whatever they hold."""
    for name in categories:
        table[name]
    forced = {*categories, *table.categorical}
    return tuple(_column(name, cells, name in forced, table.text) for name, cells in table.columns.items())


def _column(name: str, cells: Cells, forced: bool, text: bool) -> Column:
    kind = "category" if forced else _kind(cells, text)
    present = _present(kind, cells, name)
    distinct, missing = len(set(present.tolist())), len(cells) - len(present)
    if not distinct:
        kind = "empty"
    elif distinct == 1 and not missing:
        kind = "constant"
    elif not forced and distinct == len(cells) >= FEW and _counts_rows(kind, present):
        kind = "identifier"
    return Column(name, kind, distinct, missing)


def _present(kind: str, cells: Cells, name: str) -> Cells:
    """The values that are not missing, read as the kind has it."""
    values: Cells
    if kind == "number":
        values = numbers_in(cells, name)
        return values[~np.isnan(values)]
    if kind == "date":
        values = dates_in(cells, name)
        return values[~np.isnat(values)]
    return np.array([text for text in categories_in(cells) if text is not None], dtype=object)


def _kind(cells: Cells, text: bool) -> str:
    if cells.dtype != object:
        return {"f": "number", "b": "boolean", "M": "date"}[cells.dtype.kind]
    present = [cell for cell in cells if cell is not None]
    if all(isinstance(cell, bool | np.bool_) for cell in present):
        return "boolean" if present else "number"
    if all(isinstance(cell, NUMERIC) for cell in present):
        return "number"
    if all(isinstance(cell, date | datetime) for cell in present):
        return "date"
    if text and _all(_number, present):
        return "number"
    if text and {TRUTHS.get(cell, cell) for cell in present} <= {"True", "False"}:
        return "boolean"
    if text and _all(datetime.fromisoformat, present):
        return "date"
    return "category"


def _all(read: Callable[[str], object], cells: Sequence[str]) -> bool:
    """Whether every cell can be read so."""
    try:
        for cell in cells:
            read(cell)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _counts_rows(kind: str, present: Cells) -> bool:
    """Whether values that all differ say no more than which row this is: any text, or 5, 6, 7, …"""
    return kind == "category" or (kind == "number" and bool((np.diff(present) == 1).all()))


def numbers_in(cells: Cells, name: str, place: Callable[[int], int] = int) -> Cells:
    """A column as float64, NaN where a value is missing; infinite ones are refused, by the `place` of their row."""
    if cells.dtype.kind == "M":
        raise DataError(f"column {name!r} holds dates, where numbers are wanted")
    try:
        present = [np.nan if cell is None else _number(cell) for cell in cells] if cells.dtype == object else cells
        values = np.array(present, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        row = next(i for i, cell in enumerate(cells) if cell is not None and not _all(_number, [cell]))
        raise DataError(f"column {name!r} holds numbers, but row {place(row)} has {cells[row]!r}") from error
    if np.isinf(values).any():
        row = place(int(np.isinf(values).argmax()))
        raise DataError(f"column {name!r} contains infinity (inf) in row {row}: leave the cell empty, or bound it")
    return values


def _number(cell: Any) -> float:
    if isinstance(cell, str) and "_" in cell:
        raise ValueError(f"{cell!r} is a code or a range, though Python would read a number")
    return cell.total_seconds() if isinstance(cell, timedelta) else float(cell)


def dates_in(cells: Cells, name: str) -> Cells:
    """A column as datetime64[s], NaT where a value is missing; what has a time zone is brought to UTC."""
    if cells.dtype.kind == "M":
        return cells
    try:
        moments = [_moment(cell) for cell in cells]
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"column {name!r} holds dates: {error}") from error
    return np.array(moments, dtype="datetime64[s]")


def _moment(cell: object) -> str | None:
    if cell is None:
        return None
    if isinstance(cell, str):
        cell = datetime.fromisoformat(cell)
    if not isinstance(cell, date):
        raise TypeError(f"{cell!r} is none")
    if isinstance(cell, datetime) and cell.tzinfo is not None:
        cell = cell.astimezone(UTC)
    return cell.isoformat()[:19]


def texts_in(cells: Cells) -> Cells:
    """A column as text or None, a whole number written alike wherever it comes from: 1 for 1, 1.0, "1", "1.0"."""
    if cells.dtype.kind == "f":
        values, place = np.unique(cells, return_inverse=True)  # few values, many cells
        return np.array([None if np.isnan(value) else _text(value) for value in values], dtype=object)[place]
    texts = np.empty(len(cells), dtype=object)
    texts[:] = [None if cell is None else _text(cell) for cell in cells.tolist()]
    return texts


def categories_in(cells: Cells) -> Cells:
    """A column as text or None, a truth value too written alike wherever it comes from: True for true and TRUE."""
    texts = texts_in(cells)
    texts[:] = [TRUTHS.get(text, text) for text in texts]
    return texts


def _text(value: object) -> str:
    if isinstance(value, str):
        return value.removesuffix(".0") if WHOLE.fullmatch(value) else value
    if isinstance(value, float | np.floating) and float(value).is_integer():
        value = int(value)
    return str(value)


def _since(unit: str, of: str) -> Callable[[Cells], Cells]:
    """How many of `unit` have passed since the last `of` began."""
    return lambda moments: (moments.astype(f"datetime64[{unit}]") - moments.astype(f"datetime64[{of}]")).astype(float)


def _days(moments: Cells) -> Cells:
    days: Cells = moments.astype("int64") / 86_400
    return days


def _weekday(moments: Cells) -> Cells:
    weekday: Cells = (moments.astype("datetime64[D]").astype("int64") + 3) % 7.0  # the first day of 1970 was a Thursday
    return weekday


# name -> (dates, none of them missing) -> numbers
PARTS: dict[str, Callable[[Cells], Cells]] = {
    "day": _days,
    "month": _since("M", "Y"),
    "day_of_month": _since("D", "M"),
    "weekday": _weekday,
    "hour": _since("h", "D"),
}
