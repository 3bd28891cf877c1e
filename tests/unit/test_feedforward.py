"""Each feed-forward layer against its formula, written out number by number."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from clearhead.nn.feedforward import FEEDFORWARDS, FeedForward
from clearhead.nn.memory import ProductKeyMemory
from clearhead.tap import watching
from tests.parity.plain import same

WIDTH, HIDDEN = 4, 6


def normal_below(x: float) -> float:
    """Φ(x) = P(N(0, 1) ≤ x)."""
    return (1 + math.erf(x / math.sqrt(2))) / 2


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def relu(x: float) -> float:
    return x if x > 0 else 0.0


def gelu(x: float) -> float:
    return x * normal_below(x)


def gelu_tanh(x: float) -> float:
    return x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def silu(x: float) -> float:
    return x * sigmoid(x)


# name -> (the function, is it gated?) [vaswani2017 eq. 2; hendrycks2016; shazeer2020 eq. 5, 6]
FORMULAS: dict[str, tuple[Callable[[float], float], bool]] = {
    "relu": (relu, False),
    "gelu": (gelu, False),
    "gelu_tanh": (gelu_tanh, False),
    "silu": (silu, False),
    "glu": (sigmoid, True),
    "reglu": (relu, True),
    "geglu": (gelu, True),
    "geglu_tanh": (gelu_tanh, True),
    "swiglu": (silu, True),
}


def affine(x: list[float], weight: Tensor, bias: Tensor | None) -> list[float]:
    zeros = [0.0] * len(weight)
    return [
        sum(a * b for a, b in zip(x, row, strict=True)) + start
        for row, start in zip(weight.tolist(), zeros if bias is None else bias.tolist(), strict=True)
    ]


def by_formula(layer: FeedForward, bend: Callable[[float], float], gated: bool, x: list[float]) -> list[float]:
    wide = affine(x, layer.widen.weight, layer.widen.bias)
    hidden = [bend(value) for value in wide[:HIDDEN]]
    if gated:
        hidden = [bent * linear for bent, linear in zip(hidden, wide[HIDDEN:], strict=True)]
    return affine(hidden, layer.narrow.weight, layer.narrow.bias)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_each_layer_is_its_formula(name: str, bias: bool) -> None:
    layer = FEEDFORWARDS[name](WIDTH, HIDDEN, 0.0, bias)
    assert isinstance(layer, FeedForward)
    bend, gated = FORMULAS[name]
    assert layer.widen.weight.shape == (HIDDEN * (1 + gated), WIDTH)
    assert layer.narrow.weight.shape == (WIDTH, HIDDEN)
    assert (layer.widen.bias is not None) == (layer.narrow.bias is not None) == bias
    x_BLD = 3 * torch.randn(2, 3, WIDTH)
    expected = [[by_formula(layer, bend, gated, x) for x in row] for row in x_BLD.tolist()]
    same(layer(x_BLD), torch.tensor(expected))


def test_every_row_is_checked() -> None:
    assert sorted(FEEDFORWARDS) == sorted([*FORMULAS, "product_keys", "none"])
    assert isinstance(FEEDFORWARDS["product_keys"](WIDTH, HIDDEN, 0.0, True), ProductKeyMemory)
    assert FEEDFORWARDS["none"](WIDTH, HIDDEN, 0.0, True) is None


@pytest.mark.parametrize("name", sorted(set(FEEDFORWARDS) - {"none"}))
def test_each_place_is_treated_alike_and_alone(name: str) -> None:
    layer = FEEDFORWARDS[name](WIDTH, HIDDEN, 0.0, True)
    assert layer is not None
    x_BLD = torch.randn(2, 5, WIDTH)
    alone = [layer(x_BLD[b : b + 1, i : i + 1]) for b in range(2) for i in range(5)]
    same(layer(x_BLD), torch.cat(alone).view(2, 5, WIDTH))


def test_the_hidden_layer_is_seen_and_dropped_in_training_alone() -> None:
    layer = FEEDFORWARDS["relu"](WIDTH, HIDDEN, 0.5, True)
    assert isinstance(layer, FeedForward)
    x_BLD, seen = torch.randn(2, 8, WIDTH), []
    assert not torch.allclose(layer(x_BLD), layer(x_BLD))
    layer.eval()
    assert torch.equal(layer(x_BLD), layer(x_BLD))
    with watching(layer, {"hidden": lambda h: seen.append(h) or torch.zeros_like(h)}):
        same(layer(x_BLD), layer.narrow.bias.expand(2, 8, -1))
    same(seen[0], layer.widen(x_BLD).clamp(min=0))
