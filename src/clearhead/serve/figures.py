"""What the server counts, and how Prometheus reads it."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, final

from starlette.types import Scope

__all__ = ["Figures", "Histogram", "Observed", "Traffic", "exposition"]

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)

Labels = Mapping[str, str]


@final
class Histogram:
    """How often a value lay at or below each of some bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts, self.total, self.count = [0] * len(bounds), 0.0, 0

    def add(self, value: float) -> None:
        self.total += value
        self.count += 1
        for place, bound in enumerate(self.bounds):
            self.counts[place] += value <= bound

    def lines(self, name: str, labels: Labels) -> Iterator[str]:
        for bound, count in zip(self.bounds, self.counts, strict=True):
            yield f"{name}_bucket{_labels({**labels, 'le': f'{bound:g}'})} {count}"
        yield f"{name}_bucket{_labels({**labels, 'le': '+Inf'})} {self.count}"
        yield f"{name}_sum{_labels(labels)} {self.total:g}"
        yield f"{name}_count{_labels(labels)} {self.count}"


@final
class Figures:
    """What one engine has done; its own thread alone writes here."""

    def __init__(self) -> None:
        self.steps = self.read = self.written = self.refused = self.calls = 0
        self.newcomers = self.into_running = 0
        self.batch = Histogram(ROWS)

    def stepped(self, rows: int) -> None:
        self.steps += 1
        self.written += rows
        self.batch.add(rows)

    def joined(self, *, lines: int, tokens: int, running: int) -> None:
        """So many lines joined, which the batch of so many running ones read; each has written its first token."""
        self.newcomers += lines
        self.into_running += lines if running else 0
        self.read += tokens
        self.written += lines

    def called(self, together: int) -> None:
        self.calls += together
        self.batch.add(together)


class Observed(Protocol):
    """An engine, as far as it is counted here."""

    name: str
    figures: Figures

    @property
    def waiting(self) -> int: ...

    @property
    def running(self) -> int: ...


@final
class Traffic:
    """Requests by address and status, and how long they took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, str], int] = defaultdict(int)
        self._seconds: dict[str, Histogram] = {}

    def watch(self, scope: Scope, status: int, seconds: float) -> None:
        """Addresses that we do not have count as one, or strangers could make the record grow."""
        path = getattr(scope.get("route"), "path", "other")
        with self._lock:
            self._requests[path, str(status)] += 1
            self._seconds.setdefault(path, Histogram(SECONDS)).add(seconds)

    def lines(self) -> Iterator[str]:
        with self._lock:
            yield from _head("clearhead_requests_total", "counter", "Requests that were answered, refusals included.")
            for (path, status), count in sorted(self._requests.items()):
                yield f"clearhead_requests_total{_labels({'path': path, 'status': status})} {count}"
            yield from _head("clearhead_request_seconds", "histogram", "How long answers took.")
            for path, histogram in sorted(self._seconds.items()):
                yield from histogram.lines("clearhead_request_seconds", {"path": path})


# name -> kind, what it is, and where it is found
OF_ENGINES: dict[str, tuple[str, str, Callable[[Observed], int]]] = {
    "clearhead_waiting": ("gauge", "Rows that wait for a step.", lambda engine: engine.waiting),
    "clearhead_running": ("gauge", "Rows that are being written.", lambda engine: engine.running),
    "clearhead_steps_total": ("counter", "Steps of decoding.", lambda engine: engine.figures.steps),
    "clearhead_tokens_read_total": ("counter", "Tokens of prompts and sources.", lambda engine: engine.figures.read),
    "clearhead_tokens_written_total": ("counter", "Tokens written.", lambda engine: engine.figures.written),
    "clearhead_rows_total": ("counter", "Rows that were begun.", lambda engine: engine.figures.newcomers),
    "clearhead_joined_total": ("counter", "Rows that joined others.", lambda engine: engine.figures.into_running),
    "clearhead_calls_total": ("counter", "Requests computed as a whole.", lambda engine: engine.figures.calls),
    "clearhead_refused_total": ("counter", "Requests that found no room.", lambda engine: engine.figures.refused),
}


def exposition(traffic: Traffic, engines: Iterable[Observed]) -> str:
    """All of it in Prometheus' text format."""
    lines, each = [*traffic.lines()], list(engines)
    for name, (kind, about, value) in OF_ENGINES.items():
        lines += _head(name, kind, about)
        lines += [f"{name}{_labels({'model': engine.name})} {value(engine)}" for engine in each]
    lines += _head("clearhead_batch_rows", "histogram", "Rows of a step, or requests computed together.")
    for engine in each:
        lines += engine.figures.batch.lines("clearhead_batch_rows", {"model": engine.name})
    return "\n".join(lines) + "\n"


def _head(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def _labels(labels: Labels) -> str:
    escaped = (value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for value in labels.values())
    return "{" + ",".join(f'{name}="{value}"' for name, value in zip(labels, escaped, strict=True)) + "}"
