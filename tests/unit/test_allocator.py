"""Freed memory is kept where the C library can be asked to."""

import ctypes
import sys
from typing import Any

import pytest

from clearhead.train.allocator import keep_freed_memory


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc can be asked")
def test_glibc_keeps_large_blocks_from_then_on() -> None:
    asked = keep_freed_memory()
    assert asked == hasattr(ctypes.CDLL(None), "mallopt")


def test_elsewhere_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("no library may be loaded")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not keep_freed_memory()
