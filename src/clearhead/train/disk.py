"""Writing so that a crash at any moment leaves either the old or the new, never something between."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clearhead.errors import CheckpointError, unwritten

__all__ = ["aside", "explained", "remove"]


@contextmanager
def aside(target: Path, *, kept: str = "") -> Iterator[Path]:
    """A temporary path beside `target` for a file, folder or link, which becomes `target` when the block ends well.

    When it does not, the temporary is removed. `kept` is what the error says is still there.
    """
    temporary = target.with_name(f".{target.name}.tmp")
    with explained(target, kept=kept):
        try:
            yield temporary
            _sync(temporary)
            os.replace(temporary, target)
            _sync_folder(target.parent)
        finally:
            remove(temporary)


@contextmanager
def explained(target: Path, *, kept: str = "") -> Iterator[None]:
    """What the operating system refuses inside, said in one sentence."""
    try:
        yield
    except OSError as error:
        rest = f"; {kept}" if kept else ""
        raise CheckpointError(f"{unwritten(target, error)}{rest}") from error


def remove(path: Path) -> None:
    """Remove a file, link or folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Wait until the file, or all that is below the folder, is on the disk."""
    if path.is_symlink():
        return
    if path.is_dir():
        for child in path.iterdir():
            _sync(child)
        _sync_folder(path)
    else:
        _flush(path, os.O_RDWR)


def _sync_folder(path: Path) -> None:
    if os.name == "posix":  # elsewhere a folder cannot be opened
        _flush(path, os.O_RDONLY)


def _flush(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
