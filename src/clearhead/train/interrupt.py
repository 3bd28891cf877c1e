"""Ctrl-C and SIGTERM: the first lets the current step and its checkpoint finish, the second stops at once."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from clearhead.errors import ClearheadError

__all__ = ["InterruptionError", "Stop", "interruptible"]


class InterruptionError(ClearheadError):
    """Training was stopped from outside, and its checkpoint is written; a program should end with `exit_code`."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number


@dataclass
class Stop:
    """Which signal has come, 0 for none."""

    signal_number: int = 0


@contextmanager
def interruptible(notice: str) -> Iterator[Stop]:
    """Inside, signals are noted in what this yields; only a program's main thread can do that, others just go on.

    The first is answered at once by the `notice`, where there is one, on stderr.
    """
    stop = Stop()

    def note(number: int, frame: FrameType | None) -> None:
        if stop.signal_number:
            raise KeyboardInterrupt
        stop.signal_number = number
        if notice:  # not through the log: a signal may come in the middle of one of its writes
            os.write(2, f"\n{notice}\n".encode())

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
