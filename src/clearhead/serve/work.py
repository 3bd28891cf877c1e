"""What an engine is asked for: lines to be written token by token, and calls to be computed as a whole."""

from collections.abc import Callable, Hashable, Sequence, Set
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from clearhead.generate.decode import Decoded, Manner
from clearhead.generate.step import Step

__all__ = ["Budget", "Call", "Line", "Lines", "Starter", "settle"]


@dataclass(frozen=True)
class Budget:
    """How much is done at once.

    rows      written together at most; with 1, every request is answered by itself
    tokens    read in one step at most, those of newcomers included
    room      positions that the caches of all rows together may have
    waiting   rows that may wait; whoever comes then is asked to come again
    """

    rows: int = 64
    tokens: int = 4_096
    room: int = 1 << 18
    waiting: int = 256


@dataclass(eq=False)
class Line:
    """One row that a request wants written.

    source   what an encoder reads, where there is one
    heard    called by the engine's thread after each token; it may set `Decoded.stopped`
    """

    prompt: Sequence[int]
    longest: int
    manner: Manner
    source: Sequence[int] = ()
    heard: Callable[[Decoded], None] | None = None

    @property
    def read(self) -> int:
        return len(self.source) + len(self.prompt)

    @property
    def span(self) -> int:
        """Positions that its caches may come to have."""
        return max(len(self.source), len(self.prompt) + self.longest)


class Starter(Protocol):
    """A model that writes, as the engine needs it."""

    @property
    def model(self) -> Step: ...

    @property
    def ends(self) -> Set[int]: ...

    def start(self, lines: Sequence[Line], room: int) -> tuple[Any, Tensor, Tensor | None]:
        """The state before the prompts of these lines, and the prompts: tokens (B, T), and how many of each count."""


@dataclass(eq=False)
class Lines:
    """The lines of one request, until all are written."""

    lines: Sequence[Line]
    future: "Future[list[Decoded]]" = field(default_factory=Future)
    found: dict[Line, Decoded] = field(default_factory=dict)

    def end(self, line: Line, written: Decoded) -> None:
        self.found[line] = written
        if len(self.found) == len(self.lines):
            settle(self.future, [self.found[each] for each in self.lines])


@dataclass(eq=False)
class Call:
    """Something to be computed as a whole, for some items; calls of one key may be computed together."""

    key: Hashable
    run: Callable[[list[Any]], Sequence[Any]]
    items: list[Any]
    future: "Future[list[Any]]" = field(default_factory=Future)


def settle(future: "Future[Any]", outcome: Any) -> None:
    """Tell whoever waits, if anybody still does."""
    try:
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
    except InvalidStateError:
        pass
