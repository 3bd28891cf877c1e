"""Which parameters learn and how: AdamW, its parameter groups, and its state as named tensors."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from clearhead.errors import CheckpointError, ConfigError
from clearhead.train.distributed import spread_like
from clearhead.train.settings import Training

__all__ = [
    "build_optimizer",
    "decays",
    "freeze",
    "load_optimizer_state",
    "optimizer_state",
    "set_learning_rate",
    "thaw",
]


def decays(name: str, parameter: Tensor) -> bool:
    """Whether weight decay applies: to matrices, not to biases, norms and other vectors."""
    return parameter.ndim >= 2 and name.rpartition(".")[2] != "bias"


def build_optimizer(
    model: nn.Module, training: Training, decays: Callable[[str, Tensor], bool] = decays
) -> torch.optim.AdamW:
    """Fused AdamW [loshchilov2019]; at weight decay 0 it is Adam [kingma2015]."""
    learning = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    if not learning:
        raise ConfigError(f"nothing is left to train: all parameters are frozen by {training.freeze!r}")
    groups = [
        {"params": [p for name, p in learning if decays(name, p)], "weight_decay": training.weight_decay},
        {"params": [p for name, p in learning if not decays(name, p)], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=training.learning_rate,
        betas=training.betas,
        eps=training.eps,
        fused=True,
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def optimizer_state(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Adam's moments and step counts as `<parameter>.<moment>`, so that they need no pickle."""
    return {
        f"{name}.{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer_state(optimizer: torch.optim.Optimizer, model: nn.Module, state: dict[str, Tensor]) -> None:
    """Put back what `optimizer_state` gave; parameters that had no state yet get none."""
    parameters = dict(model.named_parameters())
    for full_name, value in state.items():
        name, _, key = full_name.rpartition(".")
        if name not in parameters:
            raise CheckpointError(f"the optimizer state is of another architecture: this model has no {name!r}")
        parameter = parameters[name]
        # A scalar, such as the step count, is whole on every rank; fused AdamW wants it where the parameter is.
        placed = value.to(parameter.device) if value.ndim == 0 else spread_like(value, parameter)
        optimizer.state[parameter][key] = placed


def freeze(model: nn.Module, patterns: Sequence[str]) -> None:
    """Stop the parameters whose names match a pattern (`encoder.*`) from learning."""
    _set_learning(model, patterns, learning=False)


def thaw(model: nn.Module, patterns: Sequence[str]) -> None:
    """Let the parameters whose names match a pattern learn again."""
    _set_learning(model, patterns, learning=True)


def _set_learning(model: nn.Module, patterns: Sequence[str], *, learning: bool) -> None:
    named = dict(model.named_parameters())
    for pattern in patterns:
        matched = [parameter for name, parameter in named.items() if fnmatchcase(name, pattern)]
        if not matched:
            raise ConfigError(f"no parameter matches {pattern!r}; this model has {len(named)}, such as {[*named][:3]}")
        for parameter in matched:
            parameter.requires_grad_(learning)
