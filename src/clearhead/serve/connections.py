"""Connections that never speak, never read, or are too many: bounded below HTTP, where uvicorn does not look.

uvicorn closes an idle connection only after a first response. Here a connection on which no request has begun for a
while is closed whatever it trickles, one that does not read what it was sent is cut, and when all places are taken the
one that has been silent longest makes room.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

__all__ = ["Connections", "Patience"]


@dataclass(frozen=True)
class Patience:
    """How long a connection may go without a request or without reading, in seconds, and how many there may be."""

    silent: float = 10.0
    unread: float = 20.0
    most: int = 512


@final
class Connections:
    """All open connections of a server; called by uvicorn for each new one."""

    def __init__(self, patience: Patience) -> None:
        self.patience = patience
        self.open: dict[_Connection, None] = {}  # in order of their coming

    def __call__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> asyncio.Protocol:
        return _Connection(self, H11Protocol(config, server_state, app_state, _loop))

    def admit(self, connection: "_Connection") -> bool:
        """Take it in where there is room, or where one that is silent can make room: the first that came."""
        if len(self.open) >= self.patience.most:
            silent = next((one for one in self.open if not one.busy), None)
            if silent is None:
                return False
            silent.cut()
        self.open[connection] = None
        return True

    def leave(self, connection: "_Connection") -> None:
        self.open.pop(connection, None)


@final
class _Connection(asyncio.Protocol):
    """One connection: uvicorn's own, watched."""

    def __init__(self, all: Connections, inner: H11Protocol) -> None:
        self.all, self.inner = all, inner
        self.transport: asyncio.Transport | None = None
        self.silence: asyncio.TimerHandle | None = None
        self.blockage: asyncio.TimerHandle | None = None
        self.seen: object = None

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        cycle = self.inner.cycle
        return cycle is not None and not cycle.response_complete

    def cut(self) -> None:
        """End it at once, whatever was not sent yet."""
        self.all.leave(self)
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.inner.connection_made(transport)
        if self.all.admit(self):
            self.silence = self._later(self.all.patience.silent, self._look)
        else:
            self.cut()

    def data_received(self, data: bytes) -> None:
        self.inner.data_received(data)

    def eof_received(self) -> None:
        self.inner.eof_received()

    def pause_writing(self) -> None:
        self.inner.pause_writing()
        self.blockage = self._later(self.all.patience.unread, self.cut)

    def resume_writing(self) -> None:
        self.inner.resume_writing()
        _stop(self.blockage)

    def connection_lost(self, exc: Exception | None) -> None:
        self.all.leave(self)
        _stop(self.silence)
        _stop(self.blockage)
        self.inner.connection_lost(exc)

    def _look(self) -> None:
        """Close it where no request has begun since the last look."""
        if not self.busy and self.inner.cycle is self.seen:
            self.cut()
            return
        self.seen = self.inner.cycle
        self.silence = self._later(self.all.patience.silent, self._look)

    def _later(self, seconds: float, act: Callable[[], None]) -> asyncio.TimerHandle:
        return self.inner.loop.call_later(seconds, act)


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
