"""Residuals: how a sub-layer's output joins the stream, and where the norm stands.

    x ← after( keep(x) + dropout( branch( sublayer( before(x) ) ) ) )

Each placement of the literature fills some of the five slots; the others are the identity.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearhead.nn.dropout import Dropout
from clearhead.tap import Tap

__all__ = [
    "RESIDUALS",
    "Join",
    "Placement",
    "Residual",
    "Scale",
    "admin",
    "deepnorm",
    "inner_norm",
    "no_residual",
    "post_norm",
    "pre_norm",
    "rezero",
    "sandwich",
    "scaled",
    "unchanged",
]


def unchanged(x: Tensor) -> Tensor:
    """What an empty slot does: a plain function, because a module's call costs as much as a small operation."""
    return x


class Residual(nn.Module):
    """One sub-layer's place in the stream; the sub-layer itself is handed in as a function."""

    def __init__(
        self,
        *,
        before: nn.Module | None = None,
        branch: nn.Module | None = None,
        after: nn.Module | None = None,
        keep: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.before = unchanged if before is None else before
        self.branch = unchanged if branch is None else branch
        self.after = unchanged if after is None else after
        self.keep = unchanged if keep is None else keep
        self.dropout = Dropout(dropout)
        self.see_branch, self.see_sum = Tap(), Tap()

    def forward(self, x_BLD: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        branch_BLD = self.see_branch(self.branch(sublayer(self.before(x_BLD))))
        if self.training:
            branch_BLD = self.dropout(branch_BLD)
        return self.see_sum(self.after(self.keep(x_BLD) + branch_BLD))


class Scale(nn.Module):
    """x · g with a learned number or vector g, or a fixed number."""

    def __init__(self, first: float, *, width: int | None = None, learned: bool = False) -> None:
        super().__init__()
        gain = torch.full(() if width is None else (width,), first)
        self.gain: Tensor
        if learned:
            self.gain = nn.Parameter(gain)
        else:
            self.register_buffer("gain", gain, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gain


@dataclass(frozen=True)
class Join:
    """What a placement may ask for.

    norm     makes one more norm of the model's kind
    depth    sub-layers between the input and the output of the stack; DeepNorm's α is its fourth root
    factor   the λ of `scaled`
    """

    norm: Callable[[], nn.Module]
    width: int
    depth: float
    dropout: float = 0.0
    factor: float = 1.0


def pre_norm(at: Join) -> Residual:
    """x + F(LN(x)) [xiong2020]."""
    return Residual(before=at.norm(), dropout=at.dropout)


def post_norm(at: Join) -> Residual:
    """LN(x + F(x)) [vaswani2017 §3.1]."""
    return Residual(after=at.norm(), dropout=at.dropout)


def inner_norm(at: Join) -> Residual:
    """x + LN(F(x)): neither of the two, though some sources write it for Post-LN [tay2022]."""
    return Residual(branch=at.norm(), dropout=at.dropout)


def sandwich(at: Join) -> Residual:
    """x + LN(F(LN(x))) [ding2021]."""
    return Residual(before=at.norm(), branch=at.norm(), dropout=at.dropout)


def deepnorm(at: Join) -> Residual:
    """LN(α x + F(x)), α = depth^¼ [wang2022 table 1]; its other half is the initialisation of the same name."""
    return Residual(after=at.norm(), keep=Scale(at.depth**0.25), dropout=at.dropout)


def rezero(at: Join) -> Residual:
    """x + α F(x), α learned and 0 at first, no norm at all [bachlechner2021]."""
    return Residual(branch=Scale(0.0, learned=True), dropout=at.dropout)


def admin(at: Join) -> Residual:
    """LN(ω ⊙ x + F(x)), ω learned; training first sets it by a profile of the branches' variances [liu2020]."""
    return Residual(after=at.norm(), keep=Scale(1.0, width=at.width, learned=True), dropout=at.dropout)


def scaled(at: Join) -> Residual:
    """λ x + F(LN(x)): for showing what any λ ≠ 1 does over many layers."""
    return Residual(before=at.norm(), keep=Scale(at.factor), dropout=at.dropout)


def no_residual(at: Join) -> Residual:
    """F(LN(x)): nothing is kept."""
    return Residual(before=at.norm(), keep=Scale(0.0), dropout=at.dropout)


@dataclass(frozen=True)
class Placement:
    """One row of the table; `final_norm` says that the stream leaves the stack unnormalised and needs one more norm."""

    build: Callable[[Join], Residual]
    final_norm: bool


RESIDUALS: dict[str, Placement] = {
    "pre_norm": Placement(pre_norm, final_norm=True),
    "post_norm": Placement(post_norm, final_norm=False),
    "inner_norm": Placement(inner_norm, final_norm=True),
    "sandwich": Placement(sandwich, final_norm=True),
    "deepnorm": Placement(deepnorm, final_norm=False),
    "rezero": Placement(rezero, final_norm=False),
    "admin": Placement(admin, final_norm=False),
    "scaled": Placement(scaled, final_norm=True),
    "no_residual": Placement(no_residual, final_norm=True),
}
