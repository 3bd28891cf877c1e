"""Each norm against its formula in double precision, number by number."""

import math

import pytest
import torch
from torch import Tensor, nn

from clearhead.nn.norm import NORMS, BatchNorm, InstanceNorm, ScaleNorm, fix_norm
from tests.parity.plain import same

WIDTH, EPS = 6, 1e-3


def mean(x: list[float]) -> float:
    return sum(x) / len(x)


def variance(x: list[float]) -> float:
    return mean([(value - mean(x)) ** 2 for value in x])


def layer_norm(x: list[float], norm: nn.Module) -> list[float]:
    middle, spread = mean(x), math.sqrt(variance(x) + EPS)
    gain, bias = norm.weight.tolist(), norm.bias.tolist()
    return [(value - middle) / spread * g + b for value, g, b in zip(x, gain, bias, strict=True)]


def rms_norm(x: list[float], norm: nn.Module) -> list[float]:
    size = math.sqrt(mean([value**2 for value in x]) + EPS)
    return [value / size * g for value, g in zip(x, norm.weight.tolist(), strict=True)]


def scale_norm(x: list[float], norm: nn.Module) -> list[float]:
    length = max(math.sqrt(sum(value**2 for value in x)), EPS)
    return [norm.gain.item() * value / length for value in x]


FORMULAS = {"layer_norm": layer_norm, "rms_norm": rms_norm, "scale_norm": scale_norm}


def shaken(norm: nn.Module) -> nn.Module:
    norm = norm.double()
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.add_(torch.randn_like(parameter))
    return norm


@pytest.mark.parametrize("size", [1.0, 1e-2, 1e4], ids=["usual", "small", "large"])
@pytest.mark.parametrize("name", sorted(NORMS))
def test_each_norm_is_its_formula(name: str, size: float) -> None:
    norm = shaken(NORMS[name](WIDTH, EPS))
    x_BLD = size * torch.randn(2, 3, WIDTH, dtype=torch.float64) + size
    expected = [[FORMULAS[name](x, norm) for x in row] for row in x_BLD.tolist()]
    same(norm(x_BLD), torch.tensor(expected, dtype=torch.float64), 1e-9)


@pytest.mark.parametrize("name", sorted(NORMS))
def test_zeros_stay_finite_and_have_finite_gradients(name: str) -> None:
    x_BLD = torch.zeros(1, 2, WIDTH, requires_grad=True)
    y_BLD = NORMS[name](WIDTH, 1e-5)(x_BLD)
    y_BLD.sum().backward()
    assert torch.all(y_BLD == 0)
    assert x_BLD.grad is not None
    assert x_BLD.grad.isfinite().all()


@pytest.mark.parametrize("name", sorted(NORMS))
def test_at_the_start_the_squared_length_is_the_width(name: str) -> None:
    y_BLD = NORMS[name](WIDTH, 1e-12)(5 * torch.randn(2, 3, WIDTH) + 1)
    same(y_BLD.square().sum(-1), torch.full((2, 3), float(WIDTH)), 1e-4)


def test_layer_norm_has_mean_zero_and_rms_norm_need_not() -> None:
    x_BLD = torch.randn(2, 3, WIDTH) + 2
    same(NORMS["layer_norm"](WIDTH, 1e-5)(x_BLD).mean(-1), torch.zeros(2, 3))
    assert NORMS["rms_norm"](WIDTH, 1e-5)(x_BLD).mean(-1).abs().min() > 0.1


def test_scale_norm_learns_one_number() -> None:
    (gain,) = ScaleNorm(16).parameters()
    assert gain.shape == ()
    assert gain.item() == 4.0


@pytest.mark.parametrize("length", [1.0, 2.5])
def test_fix_norm_brings_every_vector_to_one_length(length: float) -> None:
    x = torch.randn(4, WIDTH, dtype=torch.float64)
    expected = [[length * value / math.sqrt(sum(v**2 for v in row)) for value in row] for row in x.tolist()]
    same(fix_norm(x, length), torch.tensor(expected, dtype=torch.float64), 1e-12)
    assert torch.all(fix_norm(torch.zeros(1, WIDTH)) == 0)


def normalised(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    middle = x.mean(dims, keepdim=True)
    return (x - middle) / ((x - middle).square().mean(dims, keepdim=True) + 1e-5).sqrt()


def test_batch_norm_goes_over_rows_and_positions_and_remembers() -> None:
    norm = BatchNorm(WIDTH).double()
    x_BLD = torch.randn(4, 3, WIDTH, dtype=torch.float64) * 2 + 1
    same(norm(x_BLD), normalised(x_BLD, (0, 1)), 1e-9)
    for _ in range(200):
        norm(x_BLD)
    count = 4 * 3
    unbiased = x_BLD.var((0, 1), correction=0) * count / (count - 1)  # what is kept for evaluation
    expected = (x_BLD[:1] - x_BLD.mean((0, 1))) / (unbiased + 1e-5).sqrt()
    same(norm.eval()(x_BLD[:1]), expected, 1e-6)


def test_instance_norm_goes_over_the_positions_of_a_row() -> None:
    x_BLD = torch.randn(4, 3, WIDTH, dtype=torch.float64) * 2 + 1
    same(InstanceNorm(WIDTH).double()(x_BLD), normalised(x_BLD, (1,)), 1e-9)


def test_every_row_has_its_formula() -> None:
    assert sorted(FORMULAS) == sorted(NORMS)
