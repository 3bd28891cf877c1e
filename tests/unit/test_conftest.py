"""The rules that `tests/conftest.py` lays down for every test do hold."""

import os
import random
import socket
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.mark.parametrize("address", [("192.0.2.1", 80), ("example.org", 443), ("2001:db8::1", 80, 0, 0)])
def test_no_connection_leaves_the_machine(address: tuple[str, int]) -> None:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family) as outgoing:
        with pytest.raises(PermissionError, match="may not use the network"):
            outgoing.connect(address)
        with pytest.raises(PermissionError, match="may not use the network"):
            outgoing.connect_ex(address)


def test_a_server_on_this_machine_can_be_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.connect(server.getsockname())


@pytest.mark.parametrize("again", [False, True])
def test_each_test_starts_from_the_same_seeds(again: bool) -> None:
    drawn = (random.random(), np.random.rand(), torch.rand(()).item())
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    assert drawn == (random.random(), np.random.rand(), torch.rand(()).item())


def test_one_thread_and_no_uninitialised_memory() -> None:
    assert torch.get_num_threads() == 1
    assert os.environ["OMP_NUM_THREADS"] == "1"
    assert torch.empty(3).isnan().all()


def test_a_warning_is_an_error() -> None:
    with pytest.raises(UserWarning, match="mind the gap"):
        warnings.warn("mind the gap", stacklevel=1)


@given(st.integers())
def test_generated_examples_are_the_same_on_every_run(number: int) -> None:
    assert settings().derandomize
    assert settings().deadline is None
