"""Initialisations by name: the spread of every matrix is what its paper says, stacked or not."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearhead.nn.attention import Biases, MultiHeadAttention
from clearhead.nn.feedforward import FeedForward
from clearhead.nn.init import INITS, profile_admin, wants_profile
from clearhead.nn.residual import RESIDUALS, Residual, Scale
from clearhead.nn.stack import Stack
from clearhead.tap import watching
from clearhead.train.job import Job
from clearhead.train.loop import train
from clearhead.train.loss import Terms, cross_entropy
from clearhead.train.settings import Training
from tests.unit.small import MODES, read, small_model, tokens

WIDTH, HIDDEN, HEADS = 64, 192, 4
SIZES: dict[str, Any] = {"width": WIDTH, "hidden": HIDDEN, "heads": HEADS, "vocabulary": 300, "tied": False}


def model_of(init: str, mode: str = "encoder_decoder", **changes: Any) -> Any:
    torch.manual_seed(0)
    return small_model(mode, init=init, **{**SIZES, **changes})


def matrices(model: nn.Module) -> dict[str, list[Tensor]]:
    """Every matrix by its role; the stacked ones taken apart."""
    roles: dict[str, list[Tensor]] = {}
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            for name, matrix in module.matrices().items():
                roles.setdefault(name, []).append(matrix)
        elif isinstance(module, FeedForward):
            roles.setdefault("widen", []).extend(module.widen.weight.split(module.hidden))
            roles.setdefault("narrow", []).append(module.narrow.weight)
        elif isinstance(module, nn.Embedding):
            roles.setdefault("embedding", []).append(module.weight)
    return roles


def spread(matrix: Tensor) -> float:
    assert abs(matrix.mean().item()) < 5 * matrix.std().item() / math.sqrt(matrix.numel())
    return matrix.std().item()


def xavier_std(inputs: int, outputs: int) -> float:
    return math.sqrt(2 / (inputs + outputs))


# What each start says of each role, as a standard deviation; two layers in each stack.
STARTS: dict[str, dict[str, float]] = {
    "xavier": {
        "q": xavier_std(WIDTH, WIDTH), "k": xavier_std(WIDTH, WIDTH), "v": xavier_std(WIDTH, WIDTH),
        "out": xavier_std(WIDTH, WIDTH), "widen": xavier_std(WIDTH, HIDDEN), "narrow": xavier_std(HIDDEN, WIDTH),
        "embedding": WIDTH**-0.5,
    },
    "normal": dict.fromkeys(("q", "k", "v", "out", "widen", "narrow", "embedding"), 0.02),
    "t5": {
        "q": (WIDTH * WIDTH / HEADS) ** -0.5, "k": WIDTH**-0.5, "v": WIDTH**-0.5, "out": WIDTH**-0.5,
        "widen": WIDTH**-0.5, "narrow": HIDDEN**-0.5, "embedding": 1.0,
    },
    "small": {
        **dict.fromkeys(("q", "k", "v", "out", "widen", "narrow"), math.sqrt(2 / (WIDTH + 4 * WIDTH))),
        "embedding": WIDTH**-0.5,
    },
}  # fmt: skip


@pytest.mark.parametrize("feedforward", ["relu", "swiglu"])
@pytest.mark.parametrize("init", sorted(STARTS))
def test_the_spread_of_every_matrix(init: str, feedforward: str) -> None:
    roles = matrices(model_of(init, feedforward=feedforward))
    assert sorted(roles) == sorted(STARTS[init])
    for role, expected in STARTS[init].items():
        for matrix in roles[role]:
            assert spread(matrix) == pytest.approx(expected, rel=0.06), role


@pytest.mark.parametrize("kv_heads", [4, 1])
def test_stacking_changes_no_xavier_bound(kv_heads: int) -> None:
    """Each matrix lies within its own bound √(6 / (inputs + outputs)) and nearly reaches it."""
    model = model_of("xavier", kv_heads=kv_heads)
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            for name, matrix in module.matrices().items():
                bound = math.sqrt(6 / sum(matrix.shape))
                assert 0.97 * bound < matrix.abs().max() <= bound, name


@pytest.mark.parametrize("mode", sorted(MODES))
def test_gpt2_divides_by_the_root_of_the_number_of_additions(mode: str) -> None:
    model = model_of("gpt2", mode)
    for name, additions in (("encoder", 4), ("decoder", 4 if mode == "decoder_only" else 6)):
        if not hasattr(model, name):
            continue
        roles = matrices(getattr(model, name))
        for role in ("out", "narrow"):
            for matrix in roles[role]:
                assert spread(matrix) == pytest.approx(0.02 / math.sqrt(additions), rel=0.06)
        for role in ("q", "k", "v", "widen"):
            for matrix in roles[role]:
                assert spread(matrix) == pytest.approx(0.02, rel=0.06)


def test_gpt2_counts_the_additions_of_every_round() -> None:
    model = model_of("gpt2", "encoder_only", layers=6, distinct=2)
    for matrix in matrices(model.encoder)["out"]:
        assert spread(matrix) == pytest.approx(0.02 / math.sqrt(12), rel=0.06)


def test_deepnorm_of_a_decoder_alone() -> None:
    """α = (2M)^¼, β = (8M)^−¼ [wang2022 fig. 2]; queries and keys keep the plain Xavier start."""
    model = model_of("deepnorm", "decoder_only", residual="deepnorm", layers=3)
    for residual in (m for m in model.modules() if isinstance(m, Residual)):
        assert residual.keep.gain.item() == pytest.approx((2 * 3) ** 0.25)
    beta, roles = (8 * 3) ** -0.25, matrices(model)
    for role, plain in STARTS["xavier"].items():
        factor = beta if role in ("v", "out", "widen", "narrow") else 1.0
        for matrix in roles[role]:
            assert spread(matrix) == pytest.approx(factor * plain, rel=0.06), role


def test_deepnorm_of_an_encoder_and_a_decoder() -> None:
    """Encoder α = 0.81 (N⁴M)^(1/16), β = 0.87 (N⁴M)^(−1/16); decoder α = (3M)^¼, β = (12M)^−¼ [wang2022 fig. 2]."""
    n, m = 3, 2
    model = model_of("deepnorm", residual="deepnorm", encoder_layers=n, decoder_layers=m)
    expected = {
        "encoder": (0.81 * (n**4 * m) ** (1 / 16), 0.87 * (n**4 * m) ** (-1 / 16)),
        "decoder": ((3 * m) ** 0.25, (12 * m) ** -0.25),
    }
    for name, (alpha, beta) in expected.items():
        stack = getattr(model, name)
        for residual in (r for r in stack.modules() if isinstance(r, Residual)):
            assert residual.keep.gain.item() == pytest.approx(alpha)
        for matrix in matrices(stack)["narrow"]:
            assert spread(matrix) == pytest.approx(beta * xavier_std(HIDDEN, WIDTH), rel=0.06)


def test_pytorch_leaves_the_modules_as_they_are() -> None:
    roles = matrices(model_of("pytorch"))
    for matrix in roles["narrow"]:
        assert matrix.abs().max() <= HIDDEN**-0.5  # U(−1/√inputs, 1/√inputs)
        assert spread(matrix) == pytest.approx(HIDDEN**-0.5 / math.sqrt(3), rel=0.06)


@pytest.mark.parametrize("init", sorted(set(INITS) - {"pytorch"}))
def test_biases_start_at_zero_and_norms_as_the_identity(init: str) -> None:
    model = model_of(init)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert torch.all(parameter == 0), name
    for norm in (m for m in model.modules() if isinstance(m, nn.LayerNorm)):
        assert torch.all(norm.weight == 1)


@pytest.mark.parametrize("init", sorted(set(INITS) - {"pytorch"}))
def test_a_bias_of_only_some_projections_starts_at_zero_too(init: str) -> None:
    attention = MultiHeadAttention(8, 2, biases=Biases(q=True, k=False, v=True))
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.fill_(1.0)
    INITS[init](attention)
    biases = [p for name, p in attention.named_parameters() if name.endswith("bias")]
    assert len(biases) == 2
    assert all(torch.all(bias == 0) for bias in biases)


def test_every_start_is_checked() -> None:
    assert sorted(INITS) == sorted([*STARTS, "gpt2", "deepnorm", "pytorch"])


def branch_variances(model: nn.Module, run: Callable[[], object]) -> dict[Residual, float]:
    """The variance of what each sub-layer adds."""
    variances: dict[Residual, float] = {}

    def keep(residual: Residual) -> Callable[[Tensor], Tensor]:
        def record(branch_BLD: Tensor) -> Tensor:
            flat = branch_BLD.detach().double().flatten().tolist()
            middle = sum(flat) / len(flat)
            variances[residual] = sum((value - middle) ** 2 for value in flat) / len(flat)
            return branch_BLD

        return record

    hooks = {f"{name}.branch": keep(m) for name, m in model.named_modules() if isinstance(m, Residual)}
    with watching(model, hooks):
        run()
    return variances


@pytest.mark.parametrize("mode", sorted(MODES))
def test_admin_sets_omega_by_the_variances_before_it(mode: str) -> None:
    """ω_i = √(1 + Σ_(j<i) Var f_j) within each stack, where every ω of it was 1 in the profile [liu2020 §4.3]."""
    model = small_model(mode, residual="admin", init="xavier")
    token_BL = tokens(4, 8)

    def run() -> object:
        return read(model, token_BL)

    profile_admin(model, run)
    for stack in (m for m in model.modules() if isinstance(m, Stack)):
        residuals = [m for m in stack.modules() if isinstance(m, Residual)]
        omegas = [m.keep.gain.detach().clone() for m in residuals]
        for residual in residuals:
            nn.init.ones_(residual.keep.gain)
        variances = branch_variances(model, run)
        total = 1.0
        for residual, omega_D in zip(residuals, omegas, strict=True):
            assert torch.allclose(omega_D, torch.full_like(omega_D, math.sqrt(total)), rtol=1e-2)
            residual.keep.gain.data.copy_(omega_D)
            total += variances[residual]
        assert total > 1.1


def test_admin_profiles_a_stack_by_itself() -> None:
    stack = small_model("encoder_only", residual="admin", init="xavier").encoder
    x_BLD = torch.randn(2, 5, 16)
    profile_admin(stack, lambda: stack(x_BLD))
    omegas = [m.gain.mean().item() for m in stack.modules() if isinstance(m, Scale)]
    assert omegas[0] == 1.0
    assert omegas == sorted(omegas)
    assert omegas[-1] > 1.0


def test_a_profile_leaves_no_hook_and_no_gradient() -> None:
    model = small_model("decoder_only", residual="admin")
    profile_admin(model, lambda: model(tokens()))
    assert all(p.grad is None for p in model.parameters())
    assert not any(m.see_branch.watched for m in model.modules() if isinstance(m, Residual))
    assert all(m.keep.gain.requires_grad for m in model.modules() if isinstance(m, Residual))


def lesson(token_BL: Tensor) -> Job[Tensor]:
    """Predict each token, given it."""

    def loss(model: nn.Module, token_BL: Tensor) -> Terms:
        return {"loss": cross_entropy(read(model, token_BL).flatten(0, 1), token_BL.flatten())}

    return Job(loss, lambda token_BL: {"loss": token_BL.numel()}, lambda step: [token_BL])


def gains(model: nn.Module) -> list[float]:
    return [m.keep.gain.mean().item() for m in model.modules() if isinstance(m, Residual)]


def test_training_profiles_a_new_model_by_its_first_batch_and_no_other(tmp_path: Path) -> None:
    """Neither one that goes on, nor one that was trained before and now learns something else."""
    model, token_BL = small_model("decoder_only", residual="admin", init="xavier"), tokens(4, 8)
    variances = [*branch_variances(model, lambda: read(model, token_BL)).values()]
    expected = [math.sqrt(1 + sum(variances[:place])) for place in range(len(variances))]
    barely = Training(steps=1, learning_rate=1e-9, checkpoint_every=1, progress="quiet")
    train(model, lesson(token_BL), barely, run_directory=tmp_path)
    assert gains(model) == pytest.approx(expected, rel=1e-2)
    assert max(expected) > 1.1
    resumed = small_model("decoder_only", residual="admin", init="gpt2")
    train(resumed, lesson(tokens(4, 8, seed=1)), replace(barely, steps=2), run_directory=tmp_path, resume=True)
    assert gains(resumed) == pytest.approx(gains(model), abs=1e-6)
    INITS["gpt2"](model)
    train(model, lesson(token_BL), barely)
    assert gains(model) == pytest.approx(gains(resumed), abs=1e-6)


@pytest.mark.parametrize("residual", sorted({*RESIDUALS} - {"admin"}))
def test_a_profile_is_for_admin_alone(residual: str) -> None:
    model = small_model("decoder_only", residual=residual, init="xavier")
    before = {name: tensor.clone() for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
    assert not wants_profile(model)
    profile_admin(model, lambda: read(model, tokens()))
    after = dict([*model.named_parameters(), *model.named_buffers()])
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


@pytest.mark.parametrize("residual", sorted(RESIDUALS))
@pytest.mark.parametrize("init", sorted(INITS))
def test_every_start_suits_every_placement(init: str, residual: str) -> None:
    model = small_model("decoder_only", init=init, residual=residual)
    assert all(parameter.isfinite().all() for parameter in model.parameters())
