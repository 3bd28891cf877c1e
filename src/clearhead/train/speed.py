"""How fast training goes: tokens per second, and which share of what the machine can multiply."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["Meter", "measure_peak"]


def measure_peak(device: torch.device, dtype: torch.dtype, *, seconds: float = 0.2, size: int = 1024) -> float:
    """The floating-point operations per second of the best square matrix product within `seconds`."""
    left = torch.full((size, size), 1 / size, device=device, dtype=dtype)
    best, end = float("inf"), time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        (left @ left)[0, 0].item()  # waits for a GPU as well
        now = time.perf_counter()
        best = min(best, now - start)
        if now > end:
            return 2 * size**3 / best


class Meter:
    """Amounts and times of the steps since the last `reset`; what happens between steps is not counted."""

    def __init__(self, unit: str, peak: float | None) -> None:
        self.unit = unit
        self.peak = peak
        self.reset()

    def reset(self) -> None:
        self.seconds = self.amount = self.flops = 0.0

    @contextmanager
    def timed(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - start

    def add(self, amount: float, flops: float) -> None:
        self.amount += amount
        self.flops += flops

    def rates(self) -> dict[str, float]:
        seconds = max(self.seconds, 1e-9)
        rates = {f"{self.unit}_per_second": self.amount / seconds}
        return rates | ({"share_of_peak": self.flops / seconds / self.peak} if self.peak else {})
