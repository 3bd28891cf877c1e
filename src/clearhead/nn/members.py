"""Members of an ensemble side by side in one model: every parameter has a leading dimension S, the member.

The rows of a batch are the rows of the first member, then those of the second, and so on: (S · B, …). Attention,
dropout and whatever else has no parameters need not know of members. Linear layers multiply all members at once, other
parts go through their members one by one (`InTurn` does so with whole models). A member computes exactly what it would
compute alone, and since losses are added and Adam goes element by element, it also learns what it would learn alone.
"""

from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.func import functional_call

from clearhead.errors import ShapeError

__all__ = ["InTurn", "Linears", "Members", "member_weights", "side_by_side"]


class Linears(nn.Module):
    """S linear layers at once: y_s = x_s W_sᵀ + b_s."""

    def __init__(self, linears: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.in_features, self.out_features = linears[0].in_features, linears[0].out_features
        self.weight = _stacked([linear.weight for linear in linears])
        self.bias = None if linears[0].bias is None else _stacked([linear.bias for linear in linears])

    def forward(self, x: Tensor) -> Tensor:
        members = len(self.weight)
        x_SNW = x.reshape(members, -1, self.in_features)
        weight_SWD = self.weight.transpose(1, 2)
        y_SNW = x_SNW @ weight_SWD if self.bias is None else torch.baddbmm(self.bias[:, None], x_SNW, weight_SWD)
        return y_SNW.view(*x.shape[:-1], self.out_features)


class Members(nn.Module):
    """S modules of one kind, each applied to its own rows; the parameters are stacked, buffers are the first one's."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = len(modules)
        self.each = deepcopy(modules[0])
        for path, module in self.each.named_modules():
            for name in list(module._parameters):
                alike = [getattr(one.get_submodule(path), name) for one in modules]
                if alike[0] is not None:
                    setattr(module, name, _stacked(alike))

    def forward(self, *rows: Tensor) -> Tensor:
        # Unbound all at once, so that the backward pass stacks the gradients of the members once.
        split = {name: parameter.unbind() for name, parameter in self.each.named_parameters()}
        parts = zip(*(x.chunk(self.members) for x in rows), strict=True)
        done = [
            functional_call(self.each, {name: own[s] for name, own in split.items()}, part)
            for s, part in enumerate(parts)
        ]
        return torch.cat(done)


class InTurn(nn.Module):
    """The same of whole models: each has its own parameters, and is applied to its own rows when its turn comes.

    Wide models train a tenth faster so: what one of them computes stays in the caches, what all of them compute does
    not. Narrow ones, which wait for each operation to begin, are up to a quarter faster side by side.
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(models)

    def forward(self, *rows: Tensor) -> Tensor:
        parts = zip(*(x.chunk(len(self.members)) for x in rows), strict=True)
        return torch.cat([member(*part) for member, part in zip(self.members, parts, strict=True)])


def member_weights(model: nn.Module, s: int) -> dict[str, Tensor]:
    """The live weights of one member under the names that they have alone, whichever way the members stand together."""
    if isinstance(model, InTurn):
        return dict(model.members[s].state_dict())
    stacked = dict(model.named_parameters())
    state = {name: tensor[s] if name in stacked else tensor for name, tensor in model.state_dict().items()}
    return {name.replace("each.", ""): tensor for name, tensor in state.items()}


def side_by_side(models: Sequence[nn.Module]) -> nn.Module:
    """One model of S models of the same architecture; fed the rows of each member one after the other."""
    if not models:
        raise ShapeError("an ensemble needs at least one member")
    return _joined(models)


def _joined(modules: Sequence[nn.Module]) -> nn.Module:
    if all(isinstance(module, nn.Linear) for module in modules):
        return Linears(modules)  # type: ignore[arg-type]
    if any(parameter is not None for parameter in modules[0]._parameters.values()):
        return Members(modules)
    whole = deepcopy(modules[0])
    for name, _ in list(whole.named_children()):
        setattr(whole, name, _joined([getattr(module, name) for module in modules]))
    return whole


def _stacked(parameters: Sequence[Tensor]) -> nn.Parameter:
    return nn.Parameter(torch.stack([parameter.detach() for parameter in parameters]))
