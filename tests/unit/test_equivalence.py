"""Attention that is a fully connected layer, and attention that is a convolution: exactly."""

from typing import Any

import pytest
import torch
from torch import nn

from clearhead.errors import ShapeError
from clearhead.nn.equivalence import convolution_as_attention, linear_as_attention
from clearhead.tap import watching
from tests.parity.plain import same


@pytest.mark.parametrize("watched", [False, True], ids=["fused", "watched"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("positions", "width", "outputs"), [(4, 3, 5), (3, 1, 3), (1, 4, 2), (6, 2, 12)])
def test_a_fully_connected_layer(positions: int, width: int, outputs: int, bias: bool, watched: bool) -> None:
    layer = nn.Linear(positions * width, outputs, bias=bias)
    attention, mask = linear_as_attention(layer, positions)
    x_BLD = torch.randn(2, positions, width)
    with watching(attention, {"weights": lambda w: w} if watched else {}):
        y_BLC, _ = attention(x_BLD, mask=mask)
    expected_BC = layer(x_BLD.flatten(1))
    same(y_BLC, expected_BC[:, None].expand(-1, positions, -1))


def test_the_weights_of_head_i_are_e_i_in_every_row() -> None:
    attention, mask = linear_as_attention(nn.Linear(12, 5), 4)
    seen = []
    with watching(attention, {"weights": lambda w: seen.append(w) or w}):
        attention(torch.randn(1, 4, 3), mask=mask)
    for head in range(4):
        assert torch.equal(seen[0][0, head], torch.eye(4)[head].expand(4, 4))


@pytest.mark.parametrize("watched", [False, True], ids=["fused", "watched"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("kernel", "channels", "outputs", "size"), [(3, 2, 4, (4, 5)), (1, 3, 2, (2, 2)), (5, 1, 1, (3, 6))]
)
def test_a_convolution(
    kernel: int, channels: int, outputs: int, size: tuple[int, int], bias: bool, watched: bool
) -> None:
    layer = nn.Conv2d(channels, outputs, kernel, padding=kernel // 2, bias=bias)
    attention, mask = convolution_as_attention(layer, *size)
    image = torch.randn(2, channels, *size)
    with watching(attention, {"weights": lambda w: w} if watched else {}):
        y_BLC, _ = attention(image.flatten(2).mT, mask=mask)
    same(y_BLC.mT.unflatten(2, size), layer(image))


def test_the_inputs_must_divide_into_positions() -> None:
    with pytest.raises(ShapeError, match="in_features=10, positions=4"):
        linear_as_attention(nn.Linear(10, 2), 4)


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel_size": 2, "padding": 1},
        {"kernel_size": 3, "padding": 0},
        {"kernel_size": 3, "padding": 1, "stride": 2},
        {"kernel_size": (3, 1), "padding": 1},
        {"kernel_size": 3, "padding": 1, "dilation": 2},
        {"kernel_size": 3, "padding": 1, "groups": 2},
        {"kernel_size": 3, "padding": 1, "padding_mode": "circular"},
    ],
    ids=str,
)
def test_a_convolution_of_another_form_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ShapeError):
        convolution_as_attention(nn.Conv2d(2, 2, **settings), 4, 4)
