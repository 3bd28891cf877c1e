"""Which heads matter: by gradient, by switching each of them off, and by gates that learn to close.

All of them look through the tap `heads` of an attention, where head h gives y_h, and need of the caller one function
of the model, `loss(model) -> Tensor`.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError, ShapeError
from clearhead.look.ablate import ablate, attention_at
from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.stack import Stack
from clearhead.tap import watching

__all__ = ["HeadGates", "Importance", "attention_names", "by_ablation", "by_gradient", "spearman"]

Loss = Callable[[nn.Module], Tensor]
Importance = dict[str, Tensor]  # of each attention, a number for each head (H,)


def attention_names(model: nn.Module) -> list[str]:
    """The names of all attentions, in the order of the model."""
    return [name for name, module in model.named_modules() if isinstance(module, MultiHeadAttention)]


def by_gradient(model: nn.Module, loss: Loss, *, names: Sequence[str] | None = None, unit: bool = False) -> Importance:
    """I_h = E_x |∂L/∂ξ_h| = E_x |y_hᵀ ∂L/∂y_h| with a gate ξ_h = 1 on each head [michel2019 eq. 4].

    The absolute value is taken for each row of each pass, so `loss` is best a sum over rows: where it is their mean,
    all numbers are smaller by the same factor.

    unit    each attention's numbers brought to length 1, as the paper does with each layer
    """
    paths = attention_names(model) if names is None else list(names)
    gates: dict[str, list[Tensor]] = {path: [] for path in paths}  # one in each pass, for all layers that share it
    visits, visited = _visits(model), Counter[str]()

    def gated(path: str, y_BHLK: Tensor) -> Tensor:
        if visited[path] % (visits[path.rpartition(".")[0]] or 1) == 0:
            gates[path].append(y_BHLK.new_ones(*y_BHLK.shape[:2], 1, 1, requires_grad=True))
        visited[path] += 1
        return y_BHLK * gates[path][-1]

    with watching(model, {f"{path}.heads": partial(gated, path) for path in paths}), torch.enable_grad():
        value = loss(model)
        every = [gate for path in paths for gate in gates[path]]
        gradients = iter(torch.autograd.grad(value, every, allow_unused=True))
    found: Importance = {}
    for path in paths:
        given = [next(gradients) for _ in gates[path]]
        felt = [gradient[:, :, 0, 0] for gradient in given if gradient is not None]
        if not felt:
            raise ConfigError(f"the loss does not depend on {path!r}: leave it out of `names`")
        importance_H = torch.cat(felt).abs().mean(0)
        found[path] = importance_H / importance_H.norm().clamp(min=1e-30) if unit else importance_H
    return found


def _visits(model: nn.Module) -> Counter[str]:
    """How often one pass goes through each layer: several times where layers share their weights (ALBERT)."""
    stacks = ((path, stack) for path, stack in model.named_modules() if isinstance(stack, Stack))
    return Counter(f"{path}.{layer}".lstrip(".") for path, stack in stacks for layer in stack.rounds)


@torch.no_grad()
def by_ablation(model: nn.Module, loss: Loss, *, names: Sequence[str] | None = None) -> Importance:
    """How much the loss grows when a head is switched off, each of them alone [michel2019 §3.2]."""
    whole = float(loss(model))
    found: Importance = {}
    for path in attention_names(model) if names is None else names:
        grown = []
        for head in range(attention_at(model, path).heads):
            with ablate(model, heads={path: [head]}):
                grown.append(float(loss(model)) - whole)
        found[path] = torch.tensor(grown, dtype=torch.float64)
    return found


class HeadGates(nn.Module):
    """A gate for each head that learns to be open or shut, under a penalty on those that are open [voita2019 §4].

    g = clamp(σ((log u − log(1 − u) + a) / β) · (ζ − γ) + γ, 0, 1),    u uniform: the hard concrete distribution
    P(g ≠ 0) = σ(a − β log(−γ/ζ)),    and the penalty is its sum over all heads

    Train `a` (and, if wished, the model) on `loss + weight · gates.penalty()` within `gates.on(model)`; in evaluation
    no u is drawn. Then `kept()` says which heads to keep.
    """

    beta, gamma, zeta = 2 / 3, -0.1, 1.1

    def __init__(self, heads: Mapping[str, int], first: float = 2.0) -> None:
        super().__init__()
        self.names = tuple(heads)
        self.openness = nn.ParameterList(torch.full((count,), first) for count in heads.values())

    @staticmethod
    def of(model: nn.Module, names: Sequence[str] | None = None) -> "HeadGates":
        """Gates for the attentions of a model."""
        paths = attention_names(model) if names is None else names
        return HeadGates({path: attention_at(model, path).heads for path in paths})

    def gate(self, index: int) -> Tensor:
        """The gates of one attention (H,): in training drawn anew each time, otherwise where they tend to."""
        open_H = self.openness[index]
        if self.training:
            uniform_H = torch.rand_like(open_H).clamp(1e-6, 1 - 1e-6)
            open_H = (uniform_H.logit() + open_H) / self.beta
        return (open_H.sigmoid() * (self.zeta - self.gamma) + self.gamma).clamp(0, 1)

    def penalty(self) -> Tensor:
        """How many gates are open, in expectation."""
        shift = self.beta * math.log(-self.gamma / self.zeta)
        return torch.cat([(open_H - shift).sigmoid() for open_H in self.openness]).sum()

    @contextmanager
    def on(self, model: nn.Module) -> Iterator[None]:
        """The model with its heads behind these gates, while the context lasts."""

        def gated(index: int, y_BHLK: Tensor) -> Tensor:
            return y_BHLK * self.gate(index)[:, None, None].to(y_BHLK.dtype)

        with watching(model, {f"{path}.heads": partial(gated, i) for i, path in enumerate(self.names)}):
            yield

    @torch.no_grad()
    def kept(self) -> dict[str, list[int]]:
        """The heads whose gates do not tend to zero; may be none of an attention."""
        tended = [
            (open_H.sigmoid() * (self.zeta - self.gamma) + self.gamma > 0).nonzero()[:, 0].tolist()
            for open_H in self.openness
        ]
        return dict(zip(self.names, tended, strict=True))


def spearman(first: Tensor, second: Tensor) -> float:
    """The correlation of the ranks, equal values sharing the mean of theirs; NaN where all values are equal.

    >>> spearman(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([10.0, 30.0, 20.0]))
    0.5
    """
    if first.shape != second.shape or first.dim() != 1:
        raise ShapeError(f"ranks are compared of as many numbers: {tuple(first.shape)}, {tuple(second.shape)}")
    ranks = torch.stack([_ranks(first), _ranks(second)])
    centred = ranks - ranks.mean(1, keepdim=True)
    return float(centred.prod(0).sum() / centred.square().sum(1).prod().sqrt())


def _ranks(values: Tensor) -> Tensor:
    below = (values[:, None] > values).sum(1)
    equal = (values[:, None] == values).sum(1)
    return below + (equal - 1).double() / 2
