"""Tables as users have them: frames of pandas, polars and Arrow, arrays, dictionaries of lists.

All of them, and files (`table_files.py`), become a `Table`: columns by name, each a NumPy array of one of four kinds.

| dtype | holds | missing |
|---|---|---|
| float64 | numbers; durations, as seconds | NaN |
| bool | truth values | |
| datetime64[s] | dates and times | NaT |
| object | whatever else: text, or values of several kinds | None |

The cells of a CSV file are text until somebody asks for numbers or dates (`table_columns.py`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from clearhead.errors import DataError

__all__ = ["Cells", "Table", "cells_of", "is_missing", "refuse_twice", "table_of", "table_of_arrow"]

Cells = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Table:
    """Columns of one length.

    columns      by name, in order
    categorical  names of columns that came as categories (pandas' and polars' own kind), whatever they hold
    text         all cells came as text, so that numbers and dates are still to be read out of them
    named        the columns came with names, not numbers; those of an array are called x0, x1, …
    places       the numbers of the rows, where the table is a part of a larger one
    """

    columns: Mapping[str, Cells]
    categorical: frozenset[str] = frozenset()
    text: bool = False
    named: bool = True
    places: range | Cells | None = None

    @property
    def rows(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def __getitem__(self, name: str) -> Cells:
        if name not in self.columns:
            raise DataError(f"the table has no column {name!r}; it has {_listed(self.columns)}")
        return self.columns[name]

    def without(self, *names: str) -> "Table":
        """The table without these columns."""
        return replace(self, columns={name: cells for name, cells in self.columns.items() if name not in names})

    def take(self, rows: slice | Cells) -> "Table":
        """Some of the rows."""
        whole = range(self.rows) if self.places is None else self.places
        places = whole[rows] if isinstance(rows, slice) else np.asarray(whole)[rows]
        return replace(self, columns={name: cells[rows] for name, cells in self.columns.items()}, places=places)

    def place(self, row: int) -> int:
        """The number of a row in the table that this one is a part of."""
        return row if self.places is None else int(self.places[row])


def table_of(data: object) -> Table:
    """A table of whatever holds one in memory: a frame, an array, a dictionary of lists, a list of rows."""
    if isinstance(data, Table):
        return data
    if hasattr(data, "toarray") and hasattr(data, "nnz"):
        raise TypeError("a sparse matrix was passed, but tables are dense: use its .toarray(), or sparse_output=False")
    package = type(data).__module__.partition(".")[0]
    if package in FRAMES:
        return FRAMES[package](data)
    if isinstance(data, Mapping):
        columns = {str(name): _of_values(str(name), values) for name, values in data.items()}
        if len({len(column) for column in columns.values()}) > 1:
            lengths = {name: len(column) for name, column in columns.items()}
            raise DataError(f"the columns of a table are of one length, these are not: {lengths}")
        return Table(columns)
    return _of_array(data)


def _of_values(name: str, values: Any) -> Cells:
    array = np.asarray(_unmasked(values), dtype=_kind(values))
    if array.ndim != 1:
        raise DataError(f"column {name!r} of a table is a list with a cell for each row, not {values!r:.60}")
    return cells_of(array)


def _kind(values: Any) -> Any:
    """A list of values of several kinds stays a list of objects: NumPy would make text of all of them."""
    if isinstance(values, np.ndarray) or not isinstance(values, Sequence):
        return None
    kinds = {type(value) for value in values}
    return None if len(kinds) == 1 or kinds <= {int, float} else object


def _unmasked(values: Any) -> Any:
    """What NumPy's mask hides is missing, whatever stands there."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    missing: dict[str, Any] = {"M": np.datetime64("NaT"), "m": np.timedelta64("NaT"), **dict.fromkeys("iuf", np.nan)}
    return np.where(np.ma.getmaskarray(values), np.array(missing.get(values.dtype.kind)), values.data)


def _of_array(data: Any) -> Table:
    array = np.asarray(_unmasked(data))
    if array.dtype.kind == "c":
        raise DataError("Complex data not supported: give the real and the imaginary part as two columns")
    if array.ndim != 2:
        raise DataError(f"a table has rows and columns, two dimensions, not {array.ndim}. Reshape your data")
    if array.dtype.kind in "US":
        array = np.array(data, dtype=object)  # from the rows again: NumPy makes text of the numbers beside text
    return Table({f"x{c}": cells_of(array[:, c]) for c in range(array.shape[1])}, named=False)


def cells_of(values: Cells) -> Cells:
    """One column as one of the four kinds."""
    if values.dtype.kind in "iuf":
        return values.astype(np.float64)
    if values.dtype.kind == "b":
        return values
    if values.dtype.kind == "M":
        return values.astype("datetime64[s]")
    if values.dtype.kind == "m":
        seconds: Cells = values / np.timedelta64(1, "s")
        return seconds
    if values.dtype.kind == "c":
        raise DataError("Complex data not supported: give the real and the imaginary part as two columns")
    objects = np.empty(len(values), dtype=object)
    objects[:] = [None if is_missing(value) else value for value in values.tolist()]
    return objects


def is_missing(value: object) -> bool:
    """None, NaN, NaT and pandas' NA, the last of which equals nothing and is not even false."""
    named = type(value).__name__ in ("NAType", "NaTType")
    return value is None or named or (isinstance(value, float) and math.isnan(value))


def _of_pandas(frame: Any) -> Table:
    if not hasattr(frame, "columns"):
        raise DataError(f"a table has rows and columns, two dimensions, not {frame.ndim}. Reshape your data")
    names = [str(name) for name in frame.columns]
    refuse_twice(names, "the frame")
    columns, categorical = {}, set()
    for name, (_, series) in zip(names, frame.items(), strict=True):
        if str(series.dtype) == "category":
            categorical.add(name)
        kind = getattr(series.dtype, "kind", "O")
        if kind in "iuf":
            columns[name] = series.to_numpy(dtype=np.float64, na_value=np.nan)
        elif kind == "M" and not str(series.dtype).startswith(("date32", "date64")):  # Arrow's days are objects
            naive = series.dt.tz_convert("UTC").dt.tz_localize(None) if series.dt.tz is not None else series
            columns[name] = cells_of(naive.to_numpy(dtype="datetime64[s]"))
        elif kind == "m":
            columns[name] = cells_of(series.to_numpy(dtype="timedelta64[us]"))
        elif kind == "b" and not series.isna().any():
            columns[name] = series.to_numpy(dtype=bool)
        else:
            columns[name] = cells_of(series.to_numpy(dtype=object))
    return Table(columns, frozenset(categorical), named=all(isinstance(name, str) for name in frame.columns))


def _of_polars(frame: Any) -> Table:
    if not hasattr(frame, "iter_columns"):
        raise DataError("a table has rows and columns: give a polars DataFrame; a LazyFrame needs .collect() first")
    columns, categorical = {}, set()
    for series in frame.iter_columns():
        kind = series.dtype
        if str(kind).startswith(("Categorical", "Enum")):
            categorical.add(series.name)
        if kind.is_numeric():
            columns[series.name] = series.cast(float).to_numpy()
        elif str(kind).startswith(("Date", "Datetime", "Duration")):
            columns[series.name] = cells_of(series.to_numpy())
        elif str(kind) == "Boolean" and not series.null_count():
            columns[series.name] = series.to_numpy().astype(bool)
        else:
            objects = np.empty(len(series), dtype=object)
            objects[:] = series.to_list()
            columns[series.name] = objects
    return Table(columns, frozenset(categorical))


def table_of_arrow(batch: Any) -> Table:
    """A table or a record batch of Arrow, of a Parquet file for one; the index that pandas wrote is no column."""
    if not hasattr(batch, "schema"):
        raise DataError(f"a table has rows and columns: give an Arrow Table, not a {type(batch).__name__}")
    names = [name for name in batch.schema.names if not name.startswith("__index_level_")]
    refuse_twice(names, "the table")
    arrays = {name: batch.column(name) for name in names}
    categorical = frozenset(name for name in names if str(arrays[name].type).startswith("dictionary"))
    return Table({name: _of_arrow(array) for name, array in arrays.items()}, categorical)


def _of_arrow(array: Any) -> Cells:
    kind = str(array.type)
    if kind.startswith(("int", "uint", "float", "double", "halffloat", "decimal")):
        return np.asarray(array.cast("float64", safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
    if kind.startswith(("date", "timestamp")):
        return np.asarray(array.cast("timestamp[s]", safe=False).to_numpy(zero_copy_only=False)).astype("datetime64[s]")
    if kind.startswith("duration"):
        return cells_of(array.to_numpy(zero_copy_only=False))
    if kind == "bool" and not array.null_count:
        return np.asarray(array.to_numpy(zero_copy_only=False), dtype=bool)
    objects = np.empty(len(array), dtype=object)
    objects[:] = array.to_pylist()
    return objects


FRAMES = {"pandas": _of_pandas, "polars": _of_polars, "pyarrow": table_of_arrow}


def refuse_twice(names: Sequence[str], where: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{where} has more than one column named {twice[0]!r}: rename all but one")


def _listed(names: Mapping[str, object], most: int = 8) -> str:
    shown = ", ".join(map(repr, islice(names, most)))
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
