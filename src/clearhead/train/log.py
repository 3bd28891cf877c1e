"""What training shows while it runs: a bar on a terminal, lines or JSON elsewhere, and files for later.

Each record is a flat dictionary with a `kind` ("train" or "validation") and a `step`. Everything for the eye
goes to stderr: stdout belongs to answers.
"""

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

from clearhead.errors import MissingPackageError
from clearhead.train.disk import aside, explained

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

__all__ = [
    "VIEWS",
    "Bar",
    "JsonLines",
    "Lines",
    "Log",
    "MetricsFile",
    "Quiet",
    "Record",
    "Sink",
    "TensorBoard",
    "tensorboard_writer",
    "view",
]

Record = Mapping[str, object]
TRAIN = "train"


class Sink(Protocol):
    """One place where records go."""

    def record(self, record: Record) -> None: ...

    def say(self, text: str) -> None: ...

    def close(self) -> None: ...


class Log:
    """All sinks at once; of the training steps they get each `every`-th and the last, a bar gets all."""

    def __init__(self, sinks: list[Sink], *, every: int, steps: int) -> None:
        self.sinks = sinks
        self.every = every
        self.steps = steps

    def record(self, record: Record) -> None:
        step = record["step"]
        due = record["kind"] != TRAIN or step == self.steps or (isinstance(step, int) and step % self.every == 0)
        for sink in self.sinks:
            if due or isinstance(sink, Bar):
                sink.record(record)

    def say(self, text: str) -> None:
        for sink in self.sinks:
            sink.say(text)

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *_: object) -> None:
        for sink in self.sinks:
            sink.close()


class Quiet:
    """Shows nothing."""

    def __init__(self, steps: int, done: int) -> None: ...

    def record(self, record: Record) -> None: ...

    def say(self, text: str) -> None: ...

    def close(self) -> None: ...


class Lines:
    """A plain line for each record, for log files."""

    def __init__(self, steps: int, done: int) -> None:
        self.steps = steps
        self.done = done
        self.start = time.monotonic()

    def record(self, record: Record) -> None:
        step = record["step"]
        left = ""
        if isinstance(step, int) and step > self.done:
            left = f"  {_clock((time.monotonic() - self.start) / (step - self.done) * (self.steps - step))} left"
        self.say(f"{record['kind']} {step}/{self.steps}  {_sentence(record)}{left}")
        for sample in _samples(record):
            self.say(f"  {sample}")

    def say(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def close(self) -> None: ...


class JsonLines:
    """A JSON object per line for each record, for programs."""

    def __init__(self, steps: int, done: int) -> None:
        self.steps = steps

    def record(self, record: Record) -> None:
        sys.stderr.write(_json_line({**record, "steps": self.steps}))
        sys.stderr.flush()

    def say(self, text: str) -> None:
        sys.stderr.write(_json_line({"kind": "message", "text": text}))
        sys.stderr.flush()

    def close(self) -> None: ...


class Bar:
    """A live bar on a terminal; validations and messages scroll by above it."""

    def __init__(self, steps: int, done: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.progress = Progress(
            MofNCompleteColumn(),
            BarColumn(bar_width=8),  # all in 80 columns
            TextColumn("{task.description}", markup=False),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
        )
        self.task = self.progress.add_task("", total=steps, completed=done)
        self.progress.start()

    def record(self, record: Record) -> None:
        if record["kind"] == TRAIN:
            step = record["step"]
            completed = float(step) if isinstance(step, int) else None
            self.progress.update(self.task, completed=completed, description=_sentence(_main_figures(record)))
            return
        self.say(f"{record['kind']} after step {record['step']}: {_sentence(record)}")
        for sample in _samples(record):
            self.say(f"  {sample}")

    def say(self, text: str) -> None:
        self.progress.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self.progress.stop()


class MetricsFile:
    """`metrics.jsonl`: one JSON object per line; resuming cuts what came after the checkpoint's step."""

    def __init__(self, path: Path, done: int) -> None:
        self.path = path
        if path.exists():
            with aside(path) as temporary:
                temporary.write_text("".join(_kept_lines(path, done)), encoding="utf-8")
        with explained(path):
            self.file: TextIO = path.open("a", encoding="utf-8", buffering=1)

    def record(self, record: Record) -> None:
        with explained(self.path, kept="the checkpoints are as they were"):
            self.file.write(_json_line(record))

    def say(self, text: str) -> None: ...

    def close(self) -> None:
        with explained(self.path):
            self.file.close()


class TensorBoard:
    """Event files for TensorBoard; resuming hides what came after the checkpoint's step."""

    def __init__(self, directory: Path, done: int) -> None:
        self.writer = tensorboard_writer()(str(directory), purge_step=done + 1)

    def record(self, record: Record) -> None:
        for name, value in record.items():
            if isinstance(value, float):
                self.writer.add_scalar(f"{record['kind']}/{name}", value, record["step"])

    def say(self, text: str) -> None: ...

    def close(self) -> None:
        self.writer.close()


def tensorboard_writer() -> "type[SummaryWriter]":
    """The class of the optional package that writes event files."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingPackageError("tensorboard=True needs the package 'tensorboard': install it first") from error
    return SummaryWriter


VIEWS: dict[str, Callable[[int, int], Sink]] = {"bar": Bar, "lines": Lines, "json": JsonLines, "quiet": Quiet}
"""Each is given the number of steps and how many of them are done."""


def view(name: str, *, steps: int, done: int) -> Sink:
    """The view of that name; "auto" is a bar on a terminal and lines elsewhere."""
    if name == "auto":
        name = "bar" if sys.stderr.isatty() else "lines"
    return VIEWS[name](steps, done)


def _kept_lines(path: Path, done: int) -> Iterator[str]:
    """The whole lines up to the step that is done; a last line that was cut by a crash is dropped."""
    for line in path.read_text("utf-8", errors="replace").split("\n"):  # a sample may hold what ends a line for others
        try:
            if json.loads(line)["step"] <= done:
                yield f"{line}\n"
        except (ValueError, KeyError, TypeError):
            continue


def _json_line(record: Record) -> str:
    """Strict JSON: what is not a finite number becomes null."""
    finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
    return json.dumps(finite, ensure_ascii=False, allow_nan=False) + "\n"


def _samples(record: Record) -> list[str]:
    samples = record.get("samples")
    return [str(sample) for sample in samples] if isinstance(samples, list) else []


def _main_figures(record: Record) -> Record:
    """What a bar has room for."""
    wanted = ("loss", "learning_rate", "share_of_peak")
    return {name: value for name, value in record.items() if name in wanted or name.endswith("_per_second")}


def _sentence(record: Record) -> str:
    """The figures of a record for reading, two spaces apart."""
    return "  ".join(_figure(name, value) for name, value in record.items() if isinstance(value, float))


def _figure(name: str, value: float) -> str:
    if name == "share_of_peak":
        return f"{value:.0%} of peak"
    if name.endswith("_per_second"):
        return f"{_thousands(value)} {name.removesuffix('_per_second')}/s"
    if name == "learning_rate":
        return f"rate {value:.1e}"
    return f"{name.replace('_', ' ')} {value:.4g}"


def _thousands(value: float) -> str:
    return f"{value / 1000:.1f}k" if value >= 1000 else f"{value:.0f}"


def _clock(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
