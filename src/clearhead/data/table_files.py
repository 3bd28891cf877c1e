"""Tables in files: CSV and Parquet, read whole or some rows at a time, and copied with more columns.

A text file names its columns in the first line. Its cells lose the spaces around them, and those of `MISSING` mean that
there is no value.
"""

import csv
import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import islice, starmap
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from clearhead.data.sources import existing, suffix_of
from clearhead.data.tables import Cells, Table, refuse_twice, table_of, table_of_arrow
from clearhead.errors import DataError, MissingPackageError

__all__ = [
    "MISSING",
    "any_table",
    "copy_parquet",
    "copy_text",
    "is_parquet",
    "parquet_batches",
    "read_chunks",
    "read_table",
    "table_of_text",
    "text_chunks",
]

MISSING = frozenset({"", "?", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "none", "#N/A", "<NA>"})
"""Cells of a text file that mean: there is no value."""

DELIMITERS = {".csv": ",;\t|", ".tsv": "\t", ".txt": "\t,;|", ".data": ",;\t|", ".test": ",;\t|"}
CHUNK = 1 << 14


def any_table(data: object) -> Table:
    """A table of whatever holds one: the path of a file, or anything that `table_of` takes."""
    return read_table(Path(data)) if isinstance(data, str | Path) else table_of(data)


def read_table(path: Path) -> Table:
    """A whole file."""
    chunks = list(read_chunks(path))
    if len(chunks) == 1:
        return chunks[0]
    names = chunks[0].columns
    joined = {name: np.concatenate([chunk.columns[name] for chunk in chunks]) for name in names}
    return Table(joined, chunks[0].categorical, chunks[0].text)


def read_chunks(path: Path, rows: int = CHUNK) -> Iterator[Table]:
    """A file as tables of at most so many rows each, in order; a file without any row is refused."""
    chunks: Iterator[Table]
    if is_parquet(existing(path)):
        chunks = map(table_of_arrow, parquet_batches(path, rows))
    else:
        chunks = starmap(table_of_text, text_chunks(path, rows))
    empty = True
    for chunk in chunks:
        empty = False
        yield chunk
    if empty:
        raise DataError(f"{str(path)!r} holds no rows")


def text_chunks(path: Path, rows: int = CHUNK) -> Iterator[tuple[list[str], list[list[str]]]]:
    """The names of the columns, and so many rows at a time of a text file as they stand there, without outer spaces."""
    try:
        with _opened(path) as file:
            delimiter = _delimiter(path, file.readline())
            file.seek(0)
            lines = csv.reader(file, delimiter=delimiter, skipinitialspace=True, strict=True)
            names = [name.strip() for name in next(lines, [])]
            if not any(names):
                raise DataError(f"{path}, line 1: the names of the columns are wanted here")
            refuse_twice(names, f"{path}, line 1")
            while batch := list(islice(_checked(lines, len(names), path), rows)):
                yield names, batch
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no utf-8 text: byte {error.start} is 0x{error.object[error.start]:02x}") from error
    except csv.Error as error:
        raise DataError(f"{path}, line {lines.line_num}: {error}") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: not a whole gzip file: {error}") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def table_of_text(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Rows of text as a table; cells that mean nothing are missing."""
    cells = [np.array(list(map(_cell, column)), dtype=object) for column in zip(*rows, strict=True)]
    return Table(dict(zip(names, cells, strict=True)), text=True)


def _opened(path: Path) -> TextIO:
    unpack: Any = gzip.open if path.suffix.lower() == ".gz" else open
    file: TextIO = unpack(path, "rt", newline="", encoding="utf-8-sig")
    return file


def _checked(lines: Any, width: int, path: Path) -> Iterator[list[str]]:
    for row in lines:
        if not row:
            continue
        if len(row) != width:
            raise DataError(f"{path}, line {lines.line_num}: {len(row)} cells, but there are {width} columns")
        yield row


def _cell(text: str) -> str | None:
    text = text.strip()
    return None if text in MISSING else text


def _delimiter(path: Path, header: str) -> str:
    """The delimiter that splits the header into the most columns; inside of quotes there is none."""
    bare = re.sub(r'"[^"]*"', "", header)
    return max(DELIMITERS.get(suffix_of(path), ",;\t|"), key=bare.count)


def parquet_batches(path: Path, rows: int = CHUNK) -> Iterator[Any]:
    """A Parquet file as record batches of at most so many rows each, by the optional package that reads it."""
    parquet = _arrow("pyarrow.parquet")
    try:
        yield from parquet.ParquetFile(path).iter_batches(batch_size=rows)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}") from error


def _arrow(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingPackageError("Parquet files need the package 'pyarrow': install clearhead[tables]") from error


def is_parquet(path: Path) -> bool:
    """Whether the name of the file says so."""
    return suffix_of(path) in (".parquet", ".pq")


Added = Callable[[Table], Mapping[str, Cells]]


def copy_text(source: Path, out: TextIO, added: Added, rows: int = CHUNK) -> int:
    """Write the table as CSV with the columns that `added` computes of each part; returns how many rows there were.

    Rows, their order and their cells stay as they are.
    """
    writer = csv.writer(out, lineterminator="\n")
    count = 0
    for names, cells, table in _parts(source, rows):
        more = added(replace(table, places=range(count, count + table.rows)))
        refuse_twice([*names, *more], f"{str(source)!r} with the added columns")
        if not count:
            writer.writerow([*names, *more])
        extra = zip(*(values.tolist() for values in more.values()), strict=True)
        writer.writerows([*row, *values] for row, values in zip(cells, extra, strict=True))
        count += len(cells)
    if not count:
        raise DataError(f"{str(source)!r} holds no rows")
    return count


def _parts(source: Path, rows: int) -> Iterator[tuple[list[str], list[list[Any]], Table]]:
    if not is_parquet(existing(source)):
        for names, cells in text_chunks(source, rows):
            yield names, cells, table_of_text(names, cells)
        return
    for batch in parquet_batches(source, rows):
        columns = [batch.column(name).to_pylist() for name in batch.schema.names]
        yield list(batch.schema.names), [list(row) for row in zip(*columns, strict=True)], table_of_arrow(batch)


def copy_parquet(source: Path, target: Path, added: Added, rows: int = CHUNK) -> int:
    """The same from one Parquet file to another; types, and the index that pandas keeps in it, stay as they are."""
    arrow, parquet = _arrow("pyarrow"), _arrow("pyarrow.parquet")
    writer = None
    count = 0
    try:
        for batch in parquet_batches(existing(source), rows):
            whole = arrow.Table.from_batches([batch])
            part = replace(table_of_arrow(batch), places=range(count, count + whole.num_rows))
            more = added(part)
            refuse_twice([*whole.column_names, *more], f"{str(source)!r} with the added columns")
            for name, values in more.items():
                whole = whole.append_column(name, arrow.array(values.tolist()))
            writer = writer or parquet.ParquetWriter(target, whole.schema)
            writer.write_table(whole)
            count += whole.num_rows
    finally:
        if writer is not None:
            writer.close()
    if not count:
        raise DataError(f"{str(source)!r} holds no rows")
    return count
