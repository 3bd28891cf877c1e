"""8-bit linear layers against their formula in whole numbers, and a row alone against the same row in company."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from clearhead.errors import ConfigError
from clearhead.nn.int8 import Int8Linear, to_int8
from tests.unit.small import small_model, tokens


@given(st.integers(1, 40), st.integers(1, 40), st.booleans(), st.integers(0, 99))
def test_the_layer_is_its_formula(inputs: int, outputs: int, bias: bool, seed: int) -> None:
    torch.manual_seed(seed)
    linear = nn.Linear(inputs, outputs, bias=bias)
    layer, x_NI = Int8Linear(linear), torch.randn(5, inputs) * torch.tensor([[1e-3], [1.0], [50.0], [0.1], [0.0]])
    scale_O1 = linear.weight.double().abs().amax(1, keepdim=True) / 127
    weight_OI = (linear.weight / scale_O1).round()
    largest_N1 = x_NI.double().abs().amax(1, keepdim=True)
    steps = layer.grid.steps
    x_quantised_NI = torch.where(largest_N1 > 0, x_NI / largest_N1 * steps, 0.0).round()
    expected_NO = (x_quantised_NI @ weight_OI.T) * (largest_N1 / steps) * scale_O1.T
    if bias:
        expected_NO = expected_NO + linear.bias
    # A number that lies between two whole ones may fall to either of them.
    slack = 1.01 * (largest_N1 / steps) * linear.weight.double().abs().amax()
    assert ((layer(x_NI) - expected_NO).abs() <= slack + 1e-5).all()
    exact = linear(x_NI)
    rounding = inputs * (largest_N1 / steps + scale_O1.T * largest_N1) * linear.weight.abs().amax()
    assert ((layer(x_NI) - exact).abs() <= rounding + 0.5 * inputs * scale_O1.T * largest_N1 + 1e-5).all()


@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 9), st.integers(0, 99))
def test_a_row_alone_is_the_same_bits_as_in_a_batch(inputs: int, outputs: int, rows: int, seed: int) -> None:
    torch.manual_seed(seed)
    layer = Int8Linear(nn.Linear(inputs, outputs))
    x_BLI = torch.randn(rows, 3, inputs) * torch.logspace(-3, 3, rows)[:, None, None]
    together = layer(x_BLI)
    for row in range(rows):
        for place in range(3):
            assert torch.equal(layer(x_BLI[row : row + 1, place : place + 1])[0, 0], together[row, place])


def test_the_weights_are_within_half_a_step() -> None:
    linear = nn.Linear(30, 20)
    scale_O1 = linear.weight.abs().amax(1, keepdim=True) / 127
    assert ((Int8Linear(linear).weight - linear.weight).abs() <= 0.501 * scale_O1).all()


@torch.no_grad()
@pytest.mark.parametrize("mode", ["decoder_only", "encoder_decoder"])
def test_a_model_in_8_bits_is_near_the_model(mode: str) -> None:
    model = small_model(mode)
    small = to_int8(copy.deepcopy(model))
    assert not any(isinstance(module, nn.Linear) for module in small.modules())
    given = (tokens(3, 5), tokens(3, 6, seed=1)) if mode == "encoder_decoder" else (tokens(3, 6),)
    difference = (small(*given).log_softmax(-1) - model(*given).log_softmax(-1)).abs()
    assert 0 < difference.max() < 0.3
    assert not small.training


def test_only_on_the_cpu() -> None:
    with pytest.raises(ConfigError, match="lies on meta"):
        to_int8(nn.Linear(2, 2, device="meta"))
