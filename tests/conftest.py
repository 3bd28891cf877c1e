"""What holds for every test: one thread, fixed seeds, no network, and the same generated examples on every run."""

import os

# Before torch and numpy start their thread pools, and before any hub client is imported.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import ipaddress
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

torch.set_num_threads(1)
# This also fills memory that nobody has written yet with NaN, so that a read of a cache's spare room shows.
torch.use_deterministic_algorithms(True)

# How long an example takes says more about the machine than about the code: no deadlines.
settings.register_profile(
    "fast", deadline=None, derandomize=True, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("slow", settings.get_profile("fast"), max_examples=500)
settings.load_profile("fast")


@pytest.fixture(autouse=True)
def _seeds() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections to this machine are allowed, any other raises."""
    for method in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, method, _only_to_this_machine(getattr(socket.socket, method)))


def _only_to_this_machine(connect: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(self: socket.socket, address: Any) -> Any:
        if self.family != getattr(socket, "AF_UNIX", None) and not _is_loopback(str(address[0])):
            raise PermissionError(f"tests may not use the network: connection to {address!r}")
        return connect(self, address)

    return guarded


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real corpora and tables, where this machine has one; the test is skipped where it has none."""
    named = os.environ.get("CLEARHEAD_DATA")
    if not named or not Path(named).is_dir():
        pytest.skip("real data is wanted: set CLEARHEAD_DATA to its folder")
    return Path(named)
