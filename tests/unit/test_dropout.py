"""Dropout: the rate, the mean and the gradient are right, and PyTorch's generator alone decides the mask."""

import math
import shutil
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from clearhead.errors import ConfigError
from clearhead.nn.dropout import Dropout, dropout, keep_mask, keep_scale

MANY = 1 << 18


@pytest.mark.parametrize("p", [-0.1, 1.0, 2.0, math.nan])
def test_impossible_rates_are_refused(p: float) -> None:
    with pytest.raises(ConfigError, match="rate"):
        Dropout(p)


def test_off_means_the_very_same_tensor() -> None:
    x = torch.randn(3, 4)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x
    assert repr(Dropout(0.25)) == "Dropout(p=0.25)"


@pytest.mark.parametrize("p", [1e-4, 0.1, 0.2, 0.5, 0.9, 0.999])
def test_the_rate_and_the_mean(p: float) -> None:
    keep = keep_mask((MANY,), p)
    off = 5 * math.sqrt(p * (1 - p) / MANY)
    assert keep.dtype == torch.uint8
    assert set(keep.tolist()) <= {0, 1}
    assert keep.float().mean().item() == pytest.approx(1 - p, abs=off)
    assert keep_scale(p) == pytest.approx(1 / (1 - p), rel=1e-5 / (1 - p))
    assert dropout(torch.ones(MANY), p).mean().item() == pytest.approx(1.0, abs=off / (1 - p))


@pytest.mark.parametrize("p", [0.1, 0.2, 0.5, 1 / 65536, 0.99999])
def test_the_rate_is_exact_to_a_65536th(p: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every number of 16 bits is drawn once, exactly so many are dropped."""
    every = np.arange(65536, dtype=np.uint16).view(np.uint64)
    monkeypatch.setattr(np.random, "SFC64", lambda seed: SimpleNamespace(random_raw=lambda words: every[:words]))
    assert (keep_mask((65536,), p) == 0).sum().item() == min(round(65536 * p), 65535)


def test_a_rate_next_to_one_keeps_the_rest_finite() -> None:
    assert dropout(torch.ones(MANY), 1 - 1e-9).isfinite().all()


@given(shape=st.lists(st.integers(0, 5), max_size=3), p=st.sampled_from([0.2, 0.5]))
def test_any_shape_and_the_gradient(shape: list[int], p: float) -> None:
    x = torch.rand(shape).add_(1.0).requires_grad_()
    y, upstream = dropout(x, p), torch.randn(shape)
    kept = y != 0
    assert torch.equal(y, torch.where(kept, x * keep_scale(p), 0.0))
    (gradient,) = torch.autograd.grad(y, x, upstream)
    assert torch.equal(gradient, torch.where(kept, upstream * keep_scale(p), 0.0))


def test_what_is_transposed_is_dropped_in_its_own_order() -> None:
    x = torch.arange(1.0, 13.0).view(3, 4).t().requires_grad_()
    y = dropout(x, 0.5)
    assert torch.equal(y, torch.where(y != 0, 2 * x, 0.0))


def test_the_backward_pass_keeps_one_byte_per_element() -> None:
    kept: list[Tensor] = []

    def remember(x: Tensor) -> Tensor:
        kept.append(x)
        return x

    x = torch.randn(64, 64, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(remember, lambda x: x):
        dropout(x, 0.5)
    assert sum(x.numel() * x.element_size() for x in kept) == 64 * 64


def test_the_generator_decides_and_can_be_restored() -> None:
    x = torch.ones(1000)
    torch.manual_seed(7)
    first = dropout(x, 0.5)
    state = torch.get_rng_state()
    second = dropout(x, 0.5)
    assert not torch.equal(first, second)
    torch.set_rng_state(state)
    assert torch.equal(dropout(x, 0.5), second)
    torch.manual_seed(7)
    assert torch.equal(dropout(x, 0.5), first)


def test_the_number_of_threads_does_not_matter() -> None:
    def draw(threads: int) -> Tensor:
        torch.set_num_threads(threads)
        torch.manual_seed(3)
        return keep_mask((100_000,), 0.3)

    try:
        assert torch.equal(draw(2), draw(1))
    finally:
        torch.set_num_threads(1)


def test_masks_of_neighbouring_seeds_and_places_have_nothing_to_do_with_each_other() -> None:
    seeds, width = 256, 2048
    masks = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        masks.append(keep_mask((width,), 0.5))
    signs = torch.stack(masks).double() * 2 - 1  # independent fair signs, if all is well
    for shifted, by in (("seed", (1, 0)), ("place", (0, 1)), ("four places", (0, 4))):
        a, b = signs[by[0] :, by[1] :], signs[: seeds - by[0], : width - by[1]]
        assert abs((a * b).sum().item()) < 5 * math.sqrt(a.numel()), shifted
    assert (signs.sum(0).abs() < 6 * math.sqrt(seeds)).all()
    assert signs.sum(0).var().item() == pytest.approx(seeds, rel=0.2)


def test_a_checkpoint_recomputes_the_same_mask() -> None:
    x = torch.ones(1000, requires_grad=True)
    y = checkpoint(lambda x: dropout(x, 0.5) * x, x, use_reentrant=False)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, 2 * y)


def twice(x: Tensor) -> tuple[Tensor, Tensor]:
    return dropout(x, 0.5), dropout(x, 0.5)


def compiled_without_breaks(backend: str) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    torch._dynamo.reset()
    return torch.compile(twice, backend=backend, fullgraph=True)  # type: ignore[return-value]


@pytest.mark.parametrize(
    "backend",
    [
        "eager",
        "aot_eager",
        pytest.param(
            "inductor",
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler here"),
                # PyTorch's own compiler imports what it warns against.
                pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
            ],
        ),
    ],
)
def test_compiled_it_still_draws_afresh_and_from_the_generator(backend: str) -> None:
    compiled = compiled_without_breaks(backend)
    x = torch.ones(4000, requires_grad=True)
    torch.manual_seed(5)
    first, second = compiled(x)
    third, _ = compiled(x)
    torch.manual_seed(5)
    again, _ = compiled(x)
    assert torch.equal(first, again)
    for other in (second, third):
        assert (first == other).float().mean().item() == pytest.approx(0.5, abs=0.05)
    assert first.mean().item() == pytest.approx(1.0, abs=0.1)
    (gradient,) = torch.autograd.grad(first.sum(), x)
    assert torch.equal(gradient, first)
