"""Low-rank adapters: the weights stay frozen, and a product of two thin matrices learns beside them [hu2022].

    y = x Wᵀ + (α / r) (x Aᵀ) Bᵀ        A (`lora_down`): r × in, B (`lora_up`): out × r, B = 0 at the start

Merging puts W + (α / r) B A in place of W, after which nothing of the adapter is left.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.nn import functional

from clearhead.errors import ConfigError

__all__ = ["AdaptedLinear", "add_lora", "merge_lora", "merged"]

DOWN, UP, SCALE = "lora_down", "lora_up", "lora_scale"


class AdaptedLinear(nn.Module):
    """A linear layer and its adapter; where someone reads `weight` instead of calling, he gets the merged one."""

    lora_scale: Tensor

    def __init__(self, base: nn.Linear, *, rank: int, alpha: float) -> None:
        super().__init__()
        self.base = base
        like = base.weight
        self.lora_down = nn.Parameter(torch.empty(rank, base.in_features, dtype=like.dtype, device=like.device))
        self.lora_up = nn.Parameter(torch.zeros(base.out_features, rank, dtype=like.dtype, device=like.device))
        self.register_buffer(SCALE, torch.tensor(alpha / rank, dtype=like.dtype, device=like.device))
        nn.init.kaiming_uniform_(self.lora_down, a=5**0.5)  # DIFF[hu2022 §4.1]: Gaussian there, this in its code

    @property
    def weight(self) -> Tensor:
        return self.base.weight + self.lora_scale * (self.lora_up @ self.lora_down)

    @property
    def bias(self) -> Tensor | None:
        return self.base.bias

    def forward(self, x: Tensor) -> Tensor:
        adapter = functional.linear(functional.linear(x, self.lora_down), self.lora_up)
        frozen: Tensor = self.base(x)
        return frozen + self.lora_scale * adapter


def add_lora(model: nn.Module, *, rank: int, alpha: float, patterns: Sequence[str]) -> list[str]:
    """Give an adapter to each linear layer whose name matches a pattern, freeze all else, and return their names.

    What should learn besides (a new head) is to be thawed afterwards.
    """
    if rank < 1:
        raise ConfigError(f"the rank of an adapter must be at least 1: {rank=}")
    chosen = {
        name: module
        for name, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, nn.Linear) and any(fnmatchcase(name, pattern) for pattern in patterns)
    }
    if not chosen:
        linears = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
        raise ConfigError(f"no linear layer matches {list(patterns)}; this model has {len(linears)}: {linears[:3]}…")
    _refuse_tied(model, chosen)
    model.requires_grad_(False)
    adapted = {module: AdaptedLinear(module, rank=rank, alpha=alpha) for module in chosen.values()}
    for name, module in chosen.items():
        model.set_submodule(name, adapted[module])
    return [*chosen]


def _refuse_tied(model: nn.Module, chosen: Mapping[str, nn.Linear]) -> None:
    """Merging an adapter into a matrix that another module uses too would change that one as well."""
    owners: dict[Tensor, set[nn.Module]] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(parameter, set()).add(module)
    for name, linear in chosen.items():
        if len(owners[linear.weight]) > 1:
            raise ConfigError(f"{name!r} shares its weight with another layer, so it cannot have an adapter of its own")


def merge_lora(model: nn.Module) -> None:
    """Put each adapter into its layer's weight and take it off: names and shapes are as before `add_lora`."""
    adapted = [(n, m) for n, m in model.named_modules(remove_duplicate=False) if isinstance(m, AdaptedLinear)]
    with torch.no_grad():
        for module in {module for _, module in adapted}:
            module.base.weight.copy_(module.weight)
    for name, module in adapted:
        model.set_submodule(name, module.base)


def merged(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state with adapters as the state of the same model after `merge_lora`; any other state as it is."""
    result = dict(state)
    for name in state:
        if name.endswith(f".{DOWN}"):
            layer = name.removesuffix(f".{DOWN}")
            down, up, scale = (result.pop(f"{layer}.{part}") for part in (DOWN, UP, SCALE))
            result[f"{layer}.weight"] = result.pop(f"{layer}.base.weight") + scale * (up @ down)
            if f"{layer}.base.bias" in state:
                result[f"{layer}.bias"] = result.pop(f"{layer}.base.bias")
    return result
