"""Initialisations, by name, each with its paper.

All of them go over the parts, not over names: attention's stacked matrices are filled one by one, so that the stacking
changes no distribution.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from clearhead.nn.attention import MultiHeadAttention, PartialBias
from clearhead.nn.feedforward import FeedForward
from clearhead.nn.residual import Residual, Scale
from clearhead.nn.stack import Stack
from clearhead.tap import watching

__all__ = ["INITS", "deepnorm", "gpt2", "normal", "profile_admin", "pytorch", "small", "t5", "wants_profile", "xavier"]


def _attentions(model: nn.Module) -> Iterator[MultiHeadAttention]:
    return (m for m in model.modules() if isinstance(m, MultiHeadAttention))


def _feedforwards(model: nn.Module) -> Iterator[FeedForward]:
    return (m for m in model.modules() if isinstance(m, FeedForward))


def _widening(layer: FeedForward) -> tuple[Tensor, ...]:
    return layer.widen.weight.split(layer.hidden)


def _zero_biases(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d | PartialBias) and module.bias is not None:
            nn.init.zeros_(module.bias)


@torch.no_grad()
def xavier(model: nn.Module) -> None:
    """Uniform matrices of variance 2 / (inputs + outputs) [glorot2010], embeddings of variance 1/D [vaswani2017]."""
    _zero_biases(model)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
    for attention in _attentions(model):
        for weight in attention.matrices().values():
            nn.init.xavier_uniform_(weight)
    for layer in _feedforwards(model):
        for weight in _widening(layer):
            nn.init.xavier_uniform_(weight)


@torch.no_grad()
def normal(model: nn.Module) -> None:
    """N(0, 0.02²) everywhere [devlin2019]."""
    _zero_biases(model)
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)


@torch.no_grad()
def gpt2(model: nn.Module) -> None:
    """N(0, 0.02²); what is added to the stream, divided by the root of the number of additions [radford2019 §2.3]."""
    normal(model)
    for stack in (m for m in model.modules() if isinstance(m, Stack)):
        additions = sum(isinstance(m, Residual) for block in stack.layers for m in block.modules())
        for weight in [a.out.weight for a in _attentions(stack)] + [f.narrow.weight for f in _feedforwards(stack)]:
            nn.init.normal_(weight, std=0.02 / math.sqrt(additions))


@torch.no_grad()
def t5(model: nn.Module) -> None:
    """Each matrix by its inputs, queries by √K more as the score is not scaled, embeddings N(0, 1) [raffel2020]."""
    _zero_biases(model)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=1.0)
    for attention in _attentions(model):
        nn.init.normal_(attention.matrices()["q"], std=(attention.width * attention.head_width) ** -0.5)


@torch.no_grad()
def small(model: nn.Module) -> None:
    """N(0, 2 / (D + 4D)) for every matrix of the blocks [nguyen2019 §2.2, "SmallInit"]."""
    xavier(model)
    for stack in (m for m in model.modules() if isinstance(m, Stack)):
        std = math.sqrt(2 / (5 * next(_attentions(stack)).width))
        for module in stack.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=std)


@torch.no_grad()
def deepnorm(model: nn.Module) -> None:
    """Xavier, with values, W^O and the feed-forward layer smaller by β = 1 / (√2 α) [wang2022 table 1, fig. 2]."""
    xavier(model)
    for stack in (m for m in model.modules() if isinstance(m, Stack)):
        keeps = [m.keep for m in stack.modules() if isinstance(m, Residual) and isinstance(m.keep, Scale)]
        alpha = float(keeps[0].gain.mean()) if keeps else 1.0
        beta = 1 / (math.sqrt(2) * alpha) if alpha > 1 else 1.0  # only DeepNorm keeps more than there was
        for attention in _attentions(stack):
            for name in ("v", "out"):
                nn.init.xavier_uniform_(attention.matrices()[name], gain=beta)
        for layer in _feedforwards(stack):
            for weight in (*_widening(layer), layer.narrow.weight):
                nn.init.xavier_uniform_(weight, gain=beta)


def pytorch(model: nn.Module) -> None:
    """Whatever PyTorch's own modules start with."""


INITS: dict[str, Callable[[nn.Module], None]] = {
    "xavier": xavier,
    "normal": normal,
    "gpt2": gpt2,
    "t5": t5,
    "small": small,
    "deepnorm": deepnorm,
    "pytorch": pytorch,
}


def wants_profile(model: nn.Module) -> bool:
    """Whether the model has Admin's ω, and all of them are 1: neither set nor learned yet."""
    omegas = [omega_D for module in model.modules() if (omega_D := _omega(module)) is not None]
    return bool(omegas) and all(bool((omega_D == 1).all()) for omega_D in omegas)


def profile_admin(model: nn.Module, run: Callable[[], object]) -> None:
    """Set Admin's ω of each residual to √(1 + Σ variances of the branches before it) [liu2020 §4.3].

    One `run` of the model shows the variances; the 1 is that of the normalised stream which enters. Training does this
    with its first batch to every model that `wants_profile`.
    """
    for name, stack in model.named_modules():
        if not isinstance(stack, Stack):
            continue
        prefix = f"{name}." if name else ""
        residuals = {f"{prefix}{path}": m for path, m in stack.named_modules() if isinstance(m, Residual)}
        variances: dict[str, float] = {}
        with watching(model, {f"{path}.branch": _recorder(variances, path) for path in residuals}), torch.no_grad():
            run()
        total = 1.0
        for path, residual in residuals.items():
            omega_D = _omega(residual)
            if omega_D is not None:
                omega_D.data.fill_(math.sqrt(total))
            total += variances[path]


def _omega(module: nn.Module) -> nn.Parameter | None:
    """Admin's ω of a residual: of all gains on what is kept, the only one that is learned."""
    keep = module.keep if isinstance(module, Residual) else None
    gain = keep.gain if isinstance(keep, Scale) else None
    return gain if isinstance(gain, nn.Parameter) else None


def _recorder(into: dict[str, float], path: str) -> Callable[[Tensor], Tensor]:
    def record(branch_BLD: Tensor) -> Tensor:
        into[path] = float(branch_BLD.var())
        return branch_BLD

    return record
