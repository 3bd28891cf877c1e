"""Corpora: a user's files as token arrays, built once, kept under a hash of all that decides their contents.

The hash covers the bytes of the files, the tokenizer, how the files are read, and the version of the format. A
corpus is built in a folder with another name that is renamed when whole, so a folder with the right name is
never half a corpus. Files are read as streams and tokenized a megabyte at a time, on all cores: neither the text
nor the tokens need fit into memory.
"""

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeVar, final

import numpy as np
from numpy.typing import NDArray

from clearhead.data.pairs import Pair, PairSource
from clearhead.data.sources import Stretch, Tally, TextSource, suffix_of
from clearhead.data.token_array import ArrayWriter, TokenArray, damaged, narrowest
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import DataError

__all__ = ["PairCorpus", "Progress", "cache_folder", "pair_corpus", "text_corpus"]

Progress = Callable[[int, int], None]  # bytes read so far, bytes in all
Item = TypeVar("Item")

FORMAT = 1
UNFINISHED = ".unfinished-"
CHARACTERS_AT_ONCE = 1 << 20
ABANDONED_AFTER = 3600.0  # seconds without a write


@final
@dataclass(frozen=True, eq=False)
class PairCorpus:
    """Pairs as ids: document i of `source` belongs to document i of `target`."""

    source: TokenArray
    target: TokenArray
    skipped: int
    first_skipped: str

    def __len__(self) -> int:
        return len(self.source)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(pairs, 2): the numbers of tokens of source and target."""
        return np.stack([self.source.lengths, self.target.lengths], axis=1)


def text_corpus(
    source: TextSource,
    tokenizer: Tokenizer,
    *,
    separator: int | None,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> TokenArray:
    """Text as one stream of ids in which `separator`, where there is one, follows each document."""
    dtype = narrowest(tokenizer.vocabulary_size)
    end = [] if separator is None else [separator]

    def fill(folder: Path, tally: Tally) -> Iterator[None]:
        with ArrayWriter(folder, "text", dtype) as array:
            for stretches in _groups(source.stretches(tally), _stretch_size):
                rows = tokenizer.encode_batch([stretch.text for stretch in stretches])
                for stretch, ids in zip(stretches, rows, strict=True):
                    array.add(ids + end if stretch.last else ids, last=stretch.last)
                yield

    digest = _digest(source, tokenizer.fingerprint, str(separator))
    folder = _built("text", digest, source.files(), fill, cache=cache, progress=progress)
    return TokenArray.open(folder, "text", dtype)


def pair_corpus(
    source: PairSource,
    tokenizers: tuple[Tokenizer, Tokenizer],
    *,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> PairCorpus:
    """Pairs as two arrays of plain ids, the source's with the first tokenizer and the target's with the second."""
    ours, theirs = tokenizers
    dtypes = narrowest(ours.vocabulary_size), narrowest(theirs.vocabulary_size)

    def fill(folder: Path, tally: Tally) -> Iterator[None]:
        with ArrayWriter(folder, "source", dtypes[0]) as left, ArrayWriter(folder, "target", dtypes[1]) as right:
            for pairs in _groups(source.pairs(tally), _pair_size):
                for ids in ours.encode_batch([pair.source for pair in pairs]):
                    left.add(ids)
                for ids in theirs.encode_batch([pair.target for pair in pairs]):
                    right.add(ids)
                yield

    digest = _digest(source, ours.fingerprint, theirs.fingerprint)
    folder = _built("pairs", digest, source.files(), fill, cache=cache, progress=progress)
    arrays = TokenArray.open(folder, "source", dtypes[0]), TokenArray.open(folder, "target", dtypes[1])
    try:
        about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        return PairCorpus(*arrays, skipped=int(about["skipped"]), first_skipped=str(about["first_skipped"]))
    except (OSError, ValueError, KeyError) as error:
        raise damaged(folder) from error


def cache_folder() -> Path:
    """Where corpora are kept: `$CLEARHEAD_CACHE`, else `~/.cache/clearhead`."""
    given = os.environ.get("CLEARHEAD_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "clearhead"


def _groups(items: Iterable[Item], size_of: Callable[[Item], int]) -> Iterator[list[Item]]:
    group: list[Item] = []
    size = 0
    for item in items:
        group.append(item)
        size += size_of(item)
        if size >= CHARACTERS_AT_ONCE:
            yield group
            group, size = [], 0
    if group:
        yield group


def _stretch_size(stretch: Stretch) -> int:
    return len(stretch.text)


def _pair_size(pair: Pair) -> int:
    return len(pair.source) + len(pair.target)


def _digest(source: TextSource | PairSource, *further: str) -> str:
    """A hash of the files' bytes and of all that decides how they are read and cut; their names do not count."""
    names = (field.name for field in fields(source) if field.name not in ("path", "target"))
    how = {name: getattr(source, name) for name in names}
    digest = hashlib.sha256(json.dumps([FORMAT, type(source).__name__, how, further]).encode())
    for path in source.files():
        try:
            with open(path, "rb") as handle:
                contents = hashlib.file_digest(handle, "sha256").hexdigest()
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from error
        digest.update(f"{suffix_of(path)} {path.suffix == '.gz'} {contents};".encode())
    return digest.hexdigest()[:32]


def _built(
    kind: str,
    digest: str,
    files: tuple[Path, ...],
    fill: Callable[[Path, Tally], Iterator[None]],
    *,
    cache: Path | None,
    progress: Progress | None,
) -> Path:
    """The folder of a corpus; `fill` writes it, and yields after each group, if it is not there yet."""
    root = cache_folder() if cache is None else cache
    final_folder = root / f"{kind}-{digest}"
    if final_folder.is_dir():
        return final_folder
    _sweep(root)
    aside = root / f"{UNFINISHED}{final_folder.name}-{secrets.token_hex(4)}"
    total = sum(path.stat().st_size for path in files)
    tally = Tally()
    try:
        aside.mkdir(parents=True)
        for _ in fill(aside, tally):
            if progress is not None:
                progress(min(tally.read, total), total)
        about = {"format": FORMAT, "skipped": tally.skipped, "first_skipped": tally.first_skipped}
        (aside / "about.json").write_text(json.dumps(about), encoding="utf-8")
        _settle(aside, final_folder)
    except OSError as error:
        raise DataError(f"the corpus cannot be written to {str(root)!r}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return final_folder


def _settle(aside: Path, final_folder: Path) -> None:
    """Put every file on the disk, then give the folder its name, unless somebody else was faster."""
    for file in aside.iterdir():
        with open(file, "rb+") as handle:
            os.fsync(handle.fileno())
    try:
        aside.rename(final_folder)
    except OSError:
        if not final_folder.is_dir():
            raise


def _sweep(root: Path) -> None:
    """Remove what killed builds left behind, but nothing that may still be being written."""
    for folder in root.glob(f"{UNFINISHED}*"):
        with contextlib.suppress(OSError):  # somebody else may sweep too
            touched = max(path.stat().st_mtime for path in [folder, *folder.iterdir()])
            if time.time() - touched > ABANDONED_AFTER:
                shutil.rmtree(folder)
