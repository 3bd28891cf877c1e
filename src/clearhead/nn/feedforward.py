"""The position-wise feed-forward layer: widen, bend, narrow, at each place alike."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.nn.dropout import Dropout
from clearhead.nn.memory import ProductKeyMemory
from clearhead.tap import Tap

__all__ = ["ACTIVATIONS", "FEEDFORWARDS", "Activation", "FeedForward", "Layer"]


@dataclass(frozen=True)
class Activation:
    """How the hidden layer bends; gated forms multiply it with a second, linear projection [shazeer2020]."""

    bend: Callable[[Tensor], Tensor]
    gated: bool = False


class FeedForward(nn.Module):
    """y = f(x W₁ + b₁) W₂ + b₂, W₁: D×F, W₂: F×D [vaswani2017 eq. 2]; gated: (f(x W) ⊙ x U) W₂ [shazeer2020 eq. 6].

    The two projections of a gated layer are stacked in `widen`: the one that bends first, then the linear one.
    """

    def __init__(
        self, width: int, hidden: int, activation: Activation, *, dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__()
        self.width, self.hidden, self.activation = width, hidden, activation
        self.widen = nn.Linear(width, hidden * (1 + activation.gated), bias=bias)
        self.narrow = nn.Linear(hidden, width, bias=bias)
        self.dropout = Dropout(dropout)
        self.see_hidden = Tap()

    def forward(self, x_BLD: Tensor) -> Tensor:
        wide = self.widen(x_BLD)
        if self.activation.gated:
            bent, linear = wide.chunk(2, dim=-1)
            hidden_BLF = self.activation.bend(bent) * linear
        else:
            hidden_BLF = self.activation.bend(wide)
        hidden_BLF = self.see_hidden(hidden_BLF)
        return self.narrow(self.dropout(hidden_BLF) if self.training else hidden_BLF)

    def flops(self, positions: int) -> int:
        """Two operations for each weight and position."""
        return 2 * positions * self.width * self.hidden * (2 + self.activation.gated)


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Activation] = {
    "relu": Activation(F.relu),
    "gelu": Activation(F.gelu),
    "gelu_tanh": Activation(_gelu_tanh),  # GPT-2 and T5 v1.1; on a CPU five times slower than the exact one
    "silu": Activation(F.silu),
    "glu": Activation(torch.sigmoid, gated=True),
    "reglu": Activation(F.relu, gated=True),
    "geglu": Activation(F.gelu, gated=True),
    "geglu_tanh": Activation(_gelu_tanh, gated=True),
    "swiglu": Activation(F.silu, gated=True),
}

Layer = FeedForward | ProductKeyMemory | None


def _plain(activation: Activation) -> Callable[[int, int, float, bool], Layer]:
    return lambda width, hidden, dropout, bias: FeedForward(width, hidden, activation, dropout=dropout, bias=bias)


# name -> (width, hidden, dropout on the hidden layer, biases?) -> layer; None where a block is attention alone, as with
# persistent memory [sukhbaatar2019]
FEEDFORWARDS: dict[str, Callable[[int, int, float, bool], Layer]] = {
    **{name: _plain(activation) for name, activation in ACTIVATIONS.items()},
    "product_keys": lambda width, hidden, dropout, bias: ProductKeyMemory(width),
    "none": lambda width, hidden, dropout, bias: None,
}
