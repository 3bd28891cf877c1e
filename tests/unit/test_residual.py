"""Residual placements: each against its formula, the λ product, and the gradients of Xiong 2020 at the start."""

from collections.abc import Callable
from functools import partial
from statistics import mean

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.nn.norm import NORMS
from clearhead.nn.residual import RESIDUALS, Join, Residual, Scale
from clearhead.tap import watching
from tests.parity.plain import same
from tests.unit.small import VOCABULARY, small_model, tokens

WIDTH = 6
Sublayer = Callable[[Tensor], Tensor]


def join(**changes: float) -> Join:
    norm = partial(NORMS["layer_norm"], WIDTH, 1e-5)
    return Join(norm=norm, width=WIDTH, **{"depth": 16.0, **changes})


def ln(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()


# As each is at the start: gains 1, biases 0, ReZero's α = 0, Admin's ω = 1; depth 16 gives DeepNorm α = 2; λ = 0.5.
FORMULAS: dict[str, Callable[[Tensor, Sublayer], Tensor]] = {
    "pre_norm": lambda x, f: x + f(ln(x)),
    "post_norm": lambda x, f: ln(x + f(x)),
    "inner_norm": lambda x, f: x + ln(f(x)),
    "sandwich": lambda x, f: x + ln(f(ln(x))),
    "deepnorm": lambda x, f: ln(2 * x + f(x)),
    "rezero": lambda x, f: x + 0 * f(x),
    "admin": lambda x, f: ln(1 * x + f(x)),
    "scaled": lambda x, f: 0.5 * x + f(ln(x)),
    "no_residual": lambda x, f: f(ln(x)),
}
# Whether the stream leaves with the size of its last norm.
NORMALISED = {"post_norm", "deepnorm", "admin", "rezero"}


@pytest.mark.parametrize("name", sorted(RESIDUALS))
def test_each_placement_is_its_formula(name: str) -> None:
    sublayer = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
    x_BLD = 3 * torch.randn(2, 3, WIDTH)
    residual = RESIDUALS[name].build(join(factor=0.5))
    same(residual(x_BLD, sublayer), FORMULAS[name](x_BLD, sublayer))


def test_every_row_has_its_formula() -> None:
    assert sorted(FORMULAS) == sorted(RESIDUALS)
    assert {name for name, placement in RESIDUALS.items() if not placement.final_norm} == NORMALISED


def test_what_is_learned_takes_effect() -> None:
    x_BLD, sublayer = torch.randn(2, 3, WIDTH), nn.Linear(WIDTH, WIDTH)
    rezero, admin = RESIDUALS["rezero"].build(join()), RESIDUALS["admin"].build(join())
    assert isinstance(rezero.branch, Scale)
    assert isinstance(admin.keep, Scale)
    omega_D = torch.rand(WIDTH)
    with torch.no_grad():
        rezero.branch.gain.fill_(0.3)
        admin.keep.gain.copy_(omega_D)
    same(rezero(x_BLD, sublayer), x_BLD + 0.3 * sublayer(x_BLD))
    same(admin(x_BLD, sublayer), ln(omega_D * x_BLD + sublayer(x_BLD)))


@pytest.mark.parametrize("name", sorted(RESIDUALS))
def test_the_branch_is_dropped_in_training_before_the_addition(name: str) -> None:
    residual = RESIDUALS[name].build(join(dropout=0.5, factor=0.5))
    for scale in (m for m in residual.modules() if isinstance(m, Scale) and m.gain.requires_grad):
        nn.init.ones_(scale.gain)  # ReZero's branch is silent at first
    x_BLD, sublayer = torch.randn(2, 8, WIDTH), nn.Linear(WIDTH, WIDTH)
    assert not torch.allclose(residual(x_BLD, sublayer), residual(x_BLD, sublayer))
    zero = residual(x_BLD, torch.zeros_like)
    assert torch.equal(zero, residual(x_BLD, torch.zeros_like))  # what is kept of the stream is never dropped
    assert torch.equal(residual.eval()(x_BLD, sublayer), residual(x_BLD, sublayer))


def test_branch_and_sum_are_seen() -> None:
    residual = Residual(after=nn.LayerNorm(WIDTH))
    x_BLD, seen = torch.randn(1, 2, WIDTH), {}
    with watching(residual, {name: lambda x, name=name: seen.setdefault(name, x) for name in ("branch", "sum")}):
        y_BLD = residual(x_BLD, torch.sin)
    assert torch.equal(seen["branch"], x_BLD.sin())
    assert torch.equal(seen["sum"], y_BLD)


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.5])
def test_the_kept_part_of_the_gradient_is_the_product_of_the_factors(factor: float) -> None:
    """∂x_L/∂x_0 = λ^L + terms through the branches; with silent branches the product is all [he2016 eq. 10]."""
    layers = [RESIDUALS["scaled"].build(join(factor=factor)) for _ in range(12)]
    x_BLD = torch.randn(1, 2, WIDTH, requires_grad=True)
    y_BLD = x_BLD
    for layer in layers:
        y_BLD = layer(y_BLD, torch.zeros_like)
    y_BLD.sum().backward()
    assert x_BLD.grad is not None
    same(x_BLD.grad / factor**12, torch.ones_like(x_BLD))


def test_the_input_reaches_the_end_times_the_product_of_the_factors() -> None:
    """x_L = λ^L x_0 + Σ_l λ^(L−1−l) F_l with real branches: above one the input drowns them, below one it is lost."""
    depth, x_BLD = 12, torch.randn(1, 2, WIDTH)
    for factor in (0.5, 1.0, 1.5):
        y_BLD, branches = x_BLD, []
        for _ in range(depth):
            residual, sublayer = RESIDUALS["scaled"].build(join(factor=factor)), nn.Linear(WIDTH, WIDTH)
            with watching(residual, {"branch": lambda b, seen=branches: seen.append(b) or b}):
                y_BLD = residual(y_BLD, sublayer)
        of_branches = sum(factor ** (depth - 1 - layer) * branch for layer, branch in enumerate(branches))
        same((y_BLD - of_branches) / factor**depth, x_BLD, 1e-2)


def gradients_at_the_start(residual: str, layers: int, seeds: int = 4) -> list[float]:
    """The norm of the loss's gradient at W₂ of each layer of the decoder, over several seeds."""
    norms = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        model = small_model("encoder_decoder", residual=residual, decoder_layers=layers, width=32, hidden=64)
        token_BL = tokens(4, 9, seed)
        logits_BLV = model(token_BL, token_BL[:, :-1])
        F.cross_entropy(logits_BLV.view(-1, VOCABULARY), token_BL[:, 1:].flatten()).backward()
        norms.append([block.feedforward.narrow.weight.grad.norm().item() for block in model.decoder.layers])
    return [mean(of_layer) for of_layer in zip(*norms, strict=True)]


def test_gradients_at_the_start_are_those_of_xiong_2020() -> None:
    """Theorem 1 and figure 3, of the Xavier start.

    Near the output: Post-LN's gradient is the same at any depth, Pre-LN's falls as 1/√L.
    Over the layers: Post-LN's fades towards the input, Pre-LN's is of one size.
    """
    post_2, post_8 = gradients_at_the_start("post_norm", 2), gradients_at_the_start("post_norm", 8)
    pre_2, pre_8 = gradients_at_the_start("pre_norm", 2), gradients_at_the_start("pre_norm", 8)
    assert 0.7 < post_8[-1] / post_2[-1] < 1.4
    assert 0.35 < pre_8[-1] / pre_2[-1] < 0.7  # √(2/8) = 0.5
    assert post_8[-1] > 2 * pre_8[-1]
    assert post_8[0] < 0.35 * post_8[-1]
    assert max(pre_8) < 2.5 * min(pre_8)
