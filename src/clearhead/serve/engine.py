"""One model at work for many requests at once.

A thread of its own runs the model. What is written token by token (`write`) joins the running batch at the next step
and leaves it when it is done. What has to be computed as a whole (`call`: beam search, vectors, tables) is gathered:
all that waits for the same is one call. A beam search lets the running batch take a step between any two of its own.
"""

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any, final

import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.generate.decode import Decoded, Going, Running
from clearhead.generate.step import Step
from clearhead.serve.figures import Figures
from clearhead.serve.guards import RefusedError
from clearhead.serve.work import Budget, Call, Line, Lines, Starter, settle

__all__ = ["Between", "Engine"]

AHEAD = 32  # positions that a newcomer's cache has beyond its prompt; it grows by doubling


@final
class Engine:
    """The thread that runs one model, and the two queues before it."""

    def __init__(self, name: str, budget: Budget, starter: Starter | None = None) -> None:
        self.name, self.budget, self.starter, self.figures = name, budget, starter, Figures()
        self._lines: deque[tuple[Lines, Line]] = deque()
        self._calls: deque[Call] = deque()
        self._owners: dict[Going, tuple[Lines, Line]] = {}
        self._running = Running(starter.model) if starter else None
        self._widest = 0
        self._nobody_waits: Callable[[], bool] = lambda: False
        self._awake, self._closed = threading.Condition(), False
        self._thread = threading.Thread(target=self._work, name=f"engine of {name}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Rows that no step has seen yet."""
        return len(self._lines) + sum(len(call.items) for call in tuple(self._calls))

    @property
    def running(self) -> int:
        """Rows that are being written."""
        return len(self._owners)

    @property
    def full(self) -> bool:
        """Whether so many wait that nothing more is accepted."""
        if self.waiting < self.budget.waiting:
            return False
        with self._awake:
            self._forget()
            return self.waiting >= self.budget.waiting

    def write(self, lines: Sequence[Line]) -> "Future[list[Decoded]]":
        """Write these lines; who gives up cancels the future, and its rows leave at the next step."""
        written = Lines(lines)
        if not lines:
            written.future.set_result([])
            return written.future
        self._accept(lambda: self._lines.extend((written, line) for line in lines))
        return written.future

    def call(
        self, key: Hashable, run: Callable[[list[Any]], Sequence[Any]], items: Sequence[Any]
    ) -> "Future[list[Any]]":
        """`run(items)`, perhaps together with the items of other calls of the same key; one result for each item."""
        call = Call(key, run, list(items))
        if not call.items:
            call.future.set_result([])
            return call.future
        self._accept(lambda: self._calls.append(call))
        return call.future

    def close(self) -> None:
        """Finish what was accepted, take nothing new, and end the thread."""
        with self._awake:
            self._closed = True
            self._awake.notify()
        self._thread.join()

    def tick(self) -> None:
        """One step of the running batch: some leave, all others write a token, and newcomers join."""
        if self._running is None:
            return
        for row, (owner, _) in self._owners.items():
            row.written.stopped |= owner.future.done()  # given up, or failed in another of its rows
        try:
            self._part(self._running)
            if self._running.rows:
                self._running.step()
                self.figures.stepped(len(self._running.rows))
        except Exception as error:
            self._fail(error)
        self._join(self._running)
        for row, (owner, line) in self._owners.items():
            self._tell(row, owner, line)

    def check(self) -> None:
        """Refuse what could not be accepted now, before any work is put into it."""
        with self._awake:
            if self._closed:
                raise RefusedError(503, "the server is shutting down: try again in a moment", "closing", retry_after=5)
            if self.full:
                self.figures.refused += 1
                raise RefusedError(
                    429, f"{self.waiting} texts wait for {self.name} already: try again in a moment", "busy",
                    retry_after=1,
                )  # fmt: skip

    def _accept(self, append: Callable[[], None]) -> None:
        with self._awake:
            self.check()
            append()
            self._awake.notify()

    def _forget(self) -> None:
        """Drop what nobody waits for any more."""
        self._lines = deque(pair for pair in self._lines if not pair[0].future.done())
        self._calls = deque(call for call in self._calls if not call.future.done())

    def _work(self) -> None:
        with torch.inference_mode():
            while self._wait():
                self.tick()
                if calls := self._gathered():
                    self._compute(calls)

    def _wait(self) -> bool:
        """Sleep while there is nothing to do; False when there never will be."""
        with self._awake:
            while not (self._lines or self._calls or self._owners or self._closed):
                self._awake.wait()
            return bool(self._lines or self._calls or self._owners or not self._closed)

    def _part(self, running: Running) -> None:
        for row in running.part():
            owner, line = self._owners.pop(row)
            if row.error is not None:
                settle(owner.future, row.error)
            else:
                owner.end(line, row.written)
        if not running.rows:
            self._widest = 0

    def _join(self, running: Running) -> None:
        """Let those who wait join, as many as the budget allows; their prompts are read by themselves."""
        assert self.starter is not None
        newcomers = self._admitted(running)
        if not newcomers:
            return
        lines = [line for _, line in newcomers]
        rows = [Going(line.longest, self.starter.ends, line.manner, prompt=line.prompt) for line in lines]
        before = len(running.rows)
        try:
            running.join(rows, *self.starter.start(lines, max(len(line.prompt) for line in lines) + AHEAD))
        except Exception as error:
            for owner, _ in newcomers:
                settle(owner.future, error)
            return
        self._owners |= dict(zip(rows, newcomers, strict=True))
        self.figures.joined(lines=len(lines), tokens=sum(line.read for line in lines), running=before)

    def _admitted(self, running: Running) -> list[tuple[Lines, Line]]:
        found: list[tuple[Lines, Line]] = []
        longest, widest, before = 0, self._widest, len(running.rows)
        with self._awake:
            while self._lines and before + len(found) < self.budget.rows:
                owner, line = self._lines[0]
                if not owner.future.done():
                    longest, widest = max(longest, line.read), max(widest, line.span)
                    rows = len(found) + 1
                    fits = (
                        rows * longest + before <= self.budget.tokens and (before + rows) * widest <= self.budget.room
                    )
                    if not fits and (found or before):
                        break
                    self._widest = widest
                    found.append((owner, line))
                self._lines.popleft()
        return found

    def _tell(self, row: Going, owner: Lines, line: Line) -> None:
        try:
            if line.heard is not None and row.error is None:
                line.heard(row.written)
        except Exception as error:
            row.written.stopped = True
            settle(owner.future, error)

    def _fail(self, error: Exception) -> None:
        """A step that cannot be taken ends all that took part in it."""
        for owner, _ in self._owners.values():
            settle(owner.future, error)
        self._owners.clear()
        assert self.starter is not None
        self._running = Running(self.starter.model)

    def _gathered(self) -> list[Call]:
        """The call that has waited longest, and those that can be computed with it."""
        with self._awake:
            self._forget()
            together, items = list[Call](), 0
            for call in self._calls:
                if not together or (call.key == together[0].key and items + len(call.items) <= self.budget.rows):
                    together.append(call)
                    items += len(call.items)
            self._calls = deque(call for call in self._calls if call not in together)
        return together

    def _compute(self, calls: Sequence[Call]) -> None:
        """Compute them together; where that cannot be, each by itself, so that only the culprit is refused."""
        try:
            self._nobody_waits = lambda: all(call.future.done() for call in calls)
            results = iter(calls[0].run([item for call in calls for item in call.items]))
            self.figures.called(len(calls))
            for call in calls:
                settle(call.future, [next(results) for _ in call.items])
        except _AbandonedError:
            pass
        except ClearheadError as error:
            if len(calls) == 1:
                settle(calls[0].future, error)
            else:
                for call in calls:
                    self._compute([call])
        except Exception as error:
            for call in calls:
                settle(call.future, error)

    def between(self) -> None:
        """What is done between two steps of a search: the running batch goes on, and so does what it tells us."""
        if self._nobody_waits():
            raise _AbandonedError
        self.tick()


class _AbandonedError(Exception):
    """Nobody waits any more for what is being computed."""


@final
class Between:
    """The same model, for searches that are not alone: `pause` is called before each of their steps."""

    def __init__(self, model: Step, pause: Callable[[], None]) -> None:
        self.inner, self.pause = model, pause

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def branches(self) -> bool:
        return self.inner.branches

    def step(
        self, token_BT: Tensor, state: Any, *, count_B: Tensor | None = None, last: bool = False
    ) -> tuple[Tensor, Any]:
        self.pause()
        return self.inner.step(token_BT, state, count_B=count_B, last=last)
