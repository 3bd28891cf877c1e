"""Text in, answers out: what the verbs have in common."""

import io
import json
import math
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer

from clearhead.errors import DataError
from clearhead.tasks.shipped import TRANSLATOR

__all__ = [
    "SHIPPED",
    "CompileOption",
    "EncodingOption",
    "JsonOption",
    "ModelOption",
    "PrecisionOption",
    "ReadingOptions",
    "TextArguments",
    "ThreadsOption",
    "batches",
    "naming_encoding",
    "say_as_written",
    "say_figures",
    "say_json",
    "say_line",
]

TextArguments = Annotated[
    list[str] | None, typer.Argument(metavar="TEXT", help="Texts; where there is none, each line of stdin is one.")
]
ModelOption = Annotated[
    Path,
    typer.Option(
        "--model", "-m", metavar="MODEL", help="Model directory, run, Hugging Face folder, GGUF file, hub name."
    ),
]
SHIPPED = Path(TRANSLATOR)  # what a translator's verbs use where no model is named
EncodingOption = Annotated[str, typer.Option(metavar="NAME", help="Of the file, such as latin-1.")]
ReadingOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="How to read it, as in a recipe: data.columns=[1, 0]; can be repeated."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON, one object per line.")]
PrecisionOption = Annotated[
    Literal["float32", "int8"], typer.Option(help="int8: weights in 8 bits, faster and a little less exact.")
]
CompileOption = Annotated[
    bool, typer.Option("--compile", help="Compile the step of decoding: a minute at first, for many texts.")
]
ThreadsOption = Annotated[int | None, typer.Option(min=1, metavar="N", help="So many threads. [default: PyTorch's]")]

LONGEST_LINE = 100_000
MOST_BYTES = 4 * LONGEST_LINE + 1  # of such a line in any characters, and the end that Windows gives it
BLOCK = 1 << 16


def batches(texts: Sequence[str] | None) -> Iterator[list[str]]:
    """The given texts at once or, where there are none, the lines of stdin, as many at a time as have come.

    So a file comes in large batches, while whoever writes a line and waits for its answer gets it.
    """
    if texts:
        yield list(texts)
        return
    if sys.stdin.isatty():
        typer.echo("One text per line; Ctrl-D ends.", err=True)
    number = 1
    with _progress() as advance:
        for lines in _whole_lines():
            yield [_text(line, number + offset) for offset, line in enumerate(lines)]
            number += len(lines)
            advance(sum(len(line) + 1 for line in lines))


def say_line(text: str) -> None:
    """A text as one line on stdout."""
    typer.echo(" ".join(text.splitlines()))


def say_as_written(pieces: Iterator[str], before: str = "") -> None:
    """A text on stdout in pieces as they come; what cannot be met is refused before anything is said."""
    first = next(pieces, "")
    for piece in chain([before + first], pieces):
        typer.echo(piece, nl=False)
    typer.echo()


@contextmanager
def naming_encoding(option: str) -> Iterator[None]:
    """Where a file is in another encoding, the refusal names the option that says which."""
    try:
        yield
    except DataError as error:
        if isinstance(error.__cause__, UnicodeDecodeError):
            raise DataError(str(error).replace(" encoding=", f" {option}=")) from error
        raise


def say_json(values: Mapping[str, Any]) -> None:
    """An object as one line of strict JSON on stdout: what is not a finite number is null."""
    typer.echo(json.dumps(_strict(values), ensure_ascii=False, allow_nan=False))


def say_figures(figures: Mapping[str, float | str]) -> None:
    """Names and values in two columns on stdout."""
    widest = max(map(len, figures), default=0)
    for name, value in figures.items():
        typer.echo(f"{name:<{widest}}  {value if isinstance(value, str) else format(value, '.6g')}")


def _strict(value: Any) -> Any:
    """The same value, however deep, with None for each number that JSON has no way to write."""
    if isinstance(value, Mapping):
        return {name: _strict(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def _progress() -> Iterator[Callable[[float], object]]:
    """What is to be told of bytes that are done: a bar on stderr while a file is answered into a file, or nothing."""
    if not sys.stderr.isatty() or sys.stdout.isatty() or not (size := _size_of_stdin()):
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

    columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=size)
        yield lambda done: bar.advance(task, done)


def _size_of_stdin() -> int:
    """The bytes of the file that stdin is; 0 where it is none."""
    try:
        about = os.fstat(sys.stdin.fileno())
    except (OSError, ValueError):
        return 0
    return about.st_size if stat.S_ISREG(about.st_mode) else 0


def _whole_lines() -> Iterator[list[bytes]]:
    """What has come on stdin, cut after each line; the last line need not have an end."""
    stream = cast("io.BufferedReader", sys.stdin.buffer)
    held = b""
    while block := stream.read1(BLOCK):
        *lines, held = (held + block).split(b"\n")
        if lines:
            yield lines
        if len(held) > MOST_BYTES:  # nobody waits for its end
            break
    if held:
        yield [held]


def _text(line: bytes, number: int) -> str:
    long = len(line) > MOST_BYTES  # then it may end inside a character
    try:
        text = "" if long else line.decode().removesuffix("\r")
    except UnicodeDecodeError as error:
        raise DataError(f"stdin, line {number}: byte {error.start} (0x{line[error.start]:02x}) is no utf-8") from error
    if "\0" in text:
        raise DataError(f"stdin, line {number}: a NUL byte, so this is no text")
    if long or len(text) > LONGEST_LINE:
        raise DataError(f"stdin, line {number}: longer than {LONGEST_LINE:,} characters; break it into lines")
    return text.removeprefix("\ufeff") if number == 1 else text  # Windows marks the beginning of a file so
