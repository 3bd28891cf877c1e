"""Waiting for answers: until they are there, the client leaves, or the deadline has come."""

import asyncio
from asyncio import Future
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar, final

from fastapi import Request

from clearhead.serve.guards import RefusedError
from clearhead.serve.writers import Written

__all__ = ["Outbox", "finish", "too_late"]

T = TypeVar("T")


def too_late(deadline: float) -> RefusedError:
    return RefusedError(504, f"there was no answer within {deadline:g} seconds: ask for less, or later", "deadline")


async def finish(request: Request, work: Awaitable[T], deadline: float) -> T:
    """What comes of the work; it is given up when the client leaves or the deadline has come."""
    answer = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({answer, gone}, timeout=deadline, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        if gone.done():
            raise RefusedError(499, "the client left before there was an answer", "client_left")
        raise too_late(deadline)
    finally:
        answer.cancel()
        gone.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


@final
class Outbox:
    """What was written and not sent yet. A reader that is slow gets more at a time: nothing else waits for it."""

    def __init__(self) -> None:
        self._loop, self._news = asyncio.get_running_loop(), asyncio.Event()
        self._pieces: deque[tuple[int, Written]] = deque()

    def tell(self, number: int, written: Written) -> None:
        """Called by the engine's thread."""
        if written.tokens or written.text:
            self._pieces.append((number, written))
            self._loop.call_soon_threadsafe(self._news.set)

    async def until(self, work: "Future[list[Written]]", deadline: float) -> AsyncIterator[tuple[int, Written]]:
        """What is new, until the work is done."""
        work.add_done_callback(lambda _: self._news.set())
        end = self._loop.time() + deadline
        while True:
            try:
                await asyncio.wait_for(self._news.wait(), max(0.0, end - self._loop.time()))
            except TimeoutError:
                raise too_late(deadline) from None
            self._news.clear()
            over = work.done()
            for number, pieces in self._taken().items():
                yield number, _joined(pieces)
            if over:
                return

    def _taken(self) -> dict[int, list[Written]]:
        taken: dict[int, list[Written]] = {}
        while self._pieces:
            number, written = self._pieces.popleft()
            taken.setdefault(number, []).append(written)
        return taken


def _joined(pieces: list[Written]) -> Written:
    return Written("".join(one.text for one in pieces), tuple(token for one in pieces for token in one.tokens))
