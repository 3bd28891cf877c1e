"""Text with labels: one label for a text (classification), or one for each word (named entities)."""

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from clearhead.data.sources import Line, lines, records, suffix_of, text_of
from clearhead.errors import DataError

__all__ = ["LabelledText", "TaggedSentence", "labelled_texts", "tagged_sentences"]

DOCUMENT_START = "-DOCSTART-"


class LabelledText(NamedTuple):
    """A text, its label, and the line that it stood on."""

    label: str
    text: str
    line: Line


class TaggedSentence(NamedTuple):
    """Words with one tag each, and the line of the first word."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    line: Line


def labelled_texts(
    path: Path, *, label: str = "label", text: str = "text", encoding: str = "utf-8"
) -> Iterator[LabelledText]:
    """Texts with one label each.

    `.csv` has a header, of which the columns `label` and `text` are read; `.jsonl` has fields of these names;
    in any other file a line is the label, a tab or a space, and the text.
    """
    empty = True
    for row in READERS.get(suffix_of(path), _plain)(path, label, text, encoding):
        empty = False
        if not row.label.strip() or not row.text.strip():
            raise DataError(f"{row.line.where}: a label and a text are wanted; one of them is missing")
        yield LabelledText(row.label.strip(), row.text.strip(), row.line)
    if empty:
        raise DataError(f"{str(path)!r} holds no labelled text")


def tagged_sentences(path: Path, *, encoding: str = "utf-8") -> Iterator[TaggedSentence]:
    """Sentences as CoNLL has them: a word a line, its tag in the last column, a blank line between sentences."""
    rows: list[list[str]] = []
    start: Line | None = None
    width = 0
    for line in lines(path, encoding):
        cells = line.text.split()
        if not cells:
            if start is not None:
                yield _sentence(rows, start)
            rows, start = [], None
        elif cells[0] != DOCUMENT_START:
            width = width or len(cells)
            if len(cells) != width or width < 2:
                raise DataError(f"{line.where}: {max(width, 2)} columns are wanted, not {len(cells)}")
            rows.append(cells)
            start = start or line
    if start is not None:
        yield _sentence(rows, start)
    if not width:
        raise DataError(f"{str(path)!r} holds no tagged sentence")


def _sentence(rows: list[list[str]], start: Line) -> TaggedSentence:
    return TaggedSentence(tuple(row[0] for row in rows), tuple(row[-1] for row in rows), start)


def _plain(path: Path, _label: str, _text: str, encoding: str) -> Iterator[LabelledText]:
    for line in lines(path, encoding):
        if line.text.strip():
            label, _, text = line.text.partition("\t" if "\t" in line.text else " ")
            yield LabelledText(label, text, line)


def _recorded(path: Path, label: str, text: str, encoding: str) -> Iterator[LabelledText]:
    for record in records(path, encoding):
        value = record.values.get(label)
        # Labels are often numbers; as text they are what a user expects to read again.
        named = str(value) if isinstance(value, int | float) else text_of(record, label)
        yield LabelledText(named, text_of(record, text), record.line)


def _table(path: Path, label: str, text: str, encoding: str) -> Iterator[LabelledText]:
    current = Line("", path, 0)

    def fed() -> Iterator[str]:
        nonlocal current
        for current in lines(path, encoding, ends=True):
            yield current.text

    reader = csv.reader(fed(), strict=True)
    header: list[str] = []
    try:
        for row in reader:
            if not header:
                header = _checked_header([name.strip() for name in row], (label, text), current)
            elif len(row) != len(header) and row:
                raise DataError(f"{current.where}: {len(header)} columns are wanted, not {len(row)}")
            elif row:
                yield LabelledText(row[header.index(label)], row[header.index(text)], current)
    except csv.Error as error:
        raise DataError(f"{current.where}: not CSV: {error}") from error


def _checked_header(header: list[str], wanted: tuple[str, str], line: Line) -> list[str]:
    missing = next((name for name in wanted if name not in header), None)
    if missing is not None:
        raise DataError(f"{line.where}: no column is called {missing!r}; there are {header}")
    return header


READERS: dict[str, Callable[[Path, str, str, str], Iterator[LabelledText]]] = {".csv": _table, ".jsonl": _recorded}
