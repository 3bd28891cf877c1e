"""What users have: text files, folders of them, `.gz`, JSON lines. Every error names the file and the line.

Text is read as a stream, so a file may be larger than memory. Bytes are UTF-8, with or without a byte-order
mark, unless `encoding` says otherwise; lines end with LF, CRLF or CR.
"""

import codecs
import difflib
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from clearhead.errors import ConfigError, DataError

__all__ = ["Line", "Record", "Stretch", "Tally", "TextSource", "existing", "lines", "records", "suffix_of", "text_of"]

LONGEST_LINE = 999_999
STRETCH = 1 << 14  # characters: large enough to be worth a call, small enough to share among cores
WORD_START = re.compile(r" ?\S")
SUFFIXES = frozenset({".txt", ".text", ".md", ".rst", ".jsonl", ""})
UNITS = ("file", "line")


class Line(NamedTuple):
    """One line of a file, without its end."""

    text: str
    path: Path
    number: int

    @property
    def where(self) -> str:
        return f"{self.path}, line {self.number}"


class Record(NamedTuple):
    """One JSON object, and the line that it stood on."""

    values: Mapping[str, Any]
    line: Line


class Stretch(NamedTuple):
    """A part of a document, cut between lines; `last` says that the document ends with it."""

    text: str
    last: bool


@dataclass
class Tally:
    """What reading went through so far; a reader that is given one counts into it."""

    read: int = 0  # bytes as they lie on the disk
    skipped: int = 0
    first_skipped: str = ""

    def skip(self, where: str) -> None:
        self.skipped += 1
        self.first_skipped = self.first_skipped or where


@dataclass(frozen=True)
class TextSource:
    """Plain text for a language model: a file, or a folder whose text files are taken in the order of their names.

    A document is a file or, with `unit="line"`, each line that is not blank; in JSON lines it is each record's
    `field`, in which `meta.text` means the field `text` of the field `meta`.
    """

    path: Path
    field: str = "text"
    encoding: str = "utf-8"
    unit: str = "file"

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise ConfigError(f"a document is one of {UNITS}, not {self.unit!r}")

    def files(self) -> tuple[Path, ...]:
        """The files to read, in order."""
        root = existing(self.path)
        if not root.is_dir():
            return (root,)
        found = sorted(path for path in root.rglob("*") if path.is_file() and _is_text(path.relative_to(root)))
        if not found:
            endings = ", ".join(sorted(SUFFIXES - {""}))
            raise DataError(f"the folder {str(root)!r} holds no text file ({endings} or .gz)")
        return tuple(found)

    def texts(self, tally: Tally | None = None) -> Iterator[str]:
        """All text, in parts, as it will be tokenized: what to train a tokenizer on."""
        return (stretch.text for stretch in self.stretches(tally))

    def stretches(self, tally: Tally | None = None) -> Iterator[Stretch]:
        """Every document, a stretch at a time, line ends included."""
        empty = True
        for path in self.files():
            for stretch in self._cut(path, tally):
                empty = False
                yield stretch
        if empty:
            raise DataError(f"{str(self.path)!r} holds no text")

    def _cut(self, path: Path, tally: Tally | None) -> Iterator[Stretch]:
        if suffix_of(path) == ".jsonl":
            texts = (text_of(record, self.field) for record in records(path, self.encoding, tally))
        elif self.unit == "line":
            texts = (line.text for line in lines(path, self.encoding, tally))
        else:
            return _stretches(line.text for line in lines(path, self.encoding, tally, ends=True))
        return (Stretch(text, last=True) for text in texts if text and not text.isspace())


def lines(path: Path, encoding: str = "utf-8", tally: Tally | None = None, *, ends: bool = False) -> Iterator[Line]:
    """The lines of a text file, `.gz` or not, blank ones included; `ends` keeps each line's end, as LF."""
    with _reading(path, encoding, tally) as stream:
        for number, text in enumerate(iter(partial(stream.readline, LONGEST_LINE + 2), ""), start=1):
            bare = text.removesuffix("\n")
            line = Line(text if ends else bare, path, number)
            if "\0" in text:
                raise DataError(f"{line.where}: a NUL byte, so this is no text file in {encoding}")
            if len(bare) > LONGEST_LINE:
                raise DataError(f"{line.where}: longer than {LONGEST_LINE:,} characters; break it into lines")
            yield line


def records(path: Path, encoding: str = "utf-8", tally: Tally | None = None) -> Iterator[Record]:
    """The objects of a file of JSON lines, blank lines left out."""
    for line in lines(path, encoding, tally):
        if not line.text or line.text.isspace():
            continue
        try:
            values = json.loads(line.text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise DataError(f"{line.where}: not JSON: {error}") from error
        if not isinstance(values, dict):
            raise DataError(f"{line.where}: a JSON object is wanted, not {_shown(line.text)}")
        yield Record(values, line)


def text_of(record: Record, field: str) -> str:
    """The text in `field` of a record; `translation.fr` is the field `fr` of the field `translation`."""
    value: Any = record.values
    for name in [field] if field in record.values else field.split("."):
        if not isinstance(value, dict) or name not in value:
            raise DataError(f"{record.line.where}: no field {field!r}; there are {_names(record.values)}")
        value = value[name]
    if not isinstance(value, str):
        raise DataError(f"{record.line.where}: the field {field!r} is no text but {_shown(json.dumps(value))}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{record.line.where}: the field {field!r} holds half a surrogate pair") from error
    return value


def existing(path: Path) -> Path:
    """The same path, if there is something."""
    if path.exists():
        return path
    names = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, names, n=1)
    raise DataError(f"there is no file {str(path)!r}" + (f"; did you mean {near[0]!r}?" if near else ""))


def suffix_of(path: Path) -> str:
    """What a file's name ends with, `.gz` apart: `.tsv` for `train.tsv.gz`."""
    return (Path(path.stem) if path.suffix.lower() == ".gz" else path).suffix.lower()


def _is_text(path: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.parts)
    return not hidden and suffix_of(path) in SUFFIXES and bool(path.suffix)


def _stretches(texts: Iterable[str]) -> Iterator[Stretch]:
    """Join lines into stretches, cut where the next line starts with a word: no token would reach over that."""
    held: list[str] = []
    size = 0
    for text in texts:
        if size >= LONGEST_LINE or (size >= STRETCH and WORD_START.match(text)):
            yield Stretch("".join(held), last=False)
            held, size = [], 0
        held.append(text)
        size += len(text)
    if held:
        yield Stretch("".join(held), last=True)


class _Counted(io.RawIOBase):
    """A raw file that adds what is read from it to a tally."""

    def __init__(self, raw: io.FileIO, tally: Tally) -> None:
        self._raw = raw
        self._tally = tally

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._raw.readinto(buffer) or 0
        self._tally.read += count
        return count


@contextmanager
def _reading(path: Path, encoding: str, tally: Tally | None) -> Iterator[io.TextIOWrapper]:
    """The text of a file, whatever goes wrong as one sentence."""
    try:
        with _open(existing(path), tally) as binary, io.TextIOWrapper(binary, encoding=_codec(encoding)) as stream:
            yield stream
    except UnicodeDecodeError as error:
        raise _undecodable(path, encoding) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: not a whole gzip file: {error}") from error
    except (LookupError, UnicodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


@contextmanager
def _open(path: Path, tally: Tally | None) -> Iterator["io.BufferedReader[_Counted] | gzip.GzipFile"]:
    with open(path, "rb", buffering=0) as raw:
        binary = io.BufferedReader(_Counted(raw, tally or Tally()), 1 << 16)
        yield gzip.GzipFile(fileobj=binary) if path.suffix.lower() == ".gz" else binary


def _codec(encoding: str) -> str:
    return "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding


def _undecodable(path: Path, encoding: str) -> DataError:
    """Read once more, to say where the first byte is that `encoding` cannot read."""
    decoder = codecs.getincrementaldecoder(encoding)()
    line, offset = 1, 0
    with _open(path, None) as binary:
        while block := binary.read(1 << 16):
            held = len(decoder.getstate()[0])
            try:
                decoder.decode(block)
            except UnicodeDecodeError as error:
                line += error.object[: error.start].count(b"\n")
                byte, place = error.object[error.start], offset - held + error.start
                guess = "utf-16" if place == 0 and byte >= 0xFE else "latin-1"
                return DataError(f"{path}, line {line}: byte {place} (0x{byte:02x}) is no {encoding}; "
                                 f"give the file's encoding, such as encoding={guess!r}")  # fmt: skip
            line += block.count(b"\n")
            offset += len(block)
    return DataError(f"{path}, line {line}: the file ends within a character of {encoding}")


def _names(values: Mapping[str, Any]) -> list[str]:
    """The fields of a record, those of nested objects with a dot."""
    return [
        name if not isinstance(value, dict) else f"{name}.{inner}"
        for name, value in values.items()
        for inner in (value if isinstance(value, dict) else ("",))
    ]


def _shown(text: str) -> str:
    return text if len(text) <= 40 else text[:40] + "…"
