"""Prune heads for real: the matrices become smaller, and the config says so, so that the model can be saved as ever."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.look.ablate import attention_at
from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.pruning import prune

__all__ = ["choose_heads", "prune_heads"]

Model = TypeVar("Model", bound=nn.Module)


def prune_heads(model: Model, keep: Mapping[str, Sequence[int]]) -> Model:
    """A copy of the model in which the attentions named have these heads alone; `config.pruned` tells which.

    What a head that is taken out added is gone, as if it had been switched off; all else stays as it is. Heads are
    counted as this model has them, also where it was pruned before.
    """
    config: Any = model.config
    if "pruned" not in {field.name for field in fields(config)}:
        raise ConfigError(f"a {type(model).__name__} cannot be pruned: its config has no place to say so")
    kept = {path: tuple(sorted(heads)) for path, heads in keep.items()}
    for path in kept:
        attention_at(model, path)
    smaller = copy.deepcopy(model)
    prune(smaller, tuple(kept.items()))
    before: dict[str, tuple[int, ...]] = dict(config.pruned)
    first = {path: tuple(before[path][head] if path in before else head for head in kept[path]) for path in kept}
    smaller.config = replace(config, pruned=tuple(sorted({**before, **first}.items())))
    return smaller


def choose_heads(model: nn.Module, importance: Mapping[str, Tensor], keep: float) -> dict[str, list[int]]:
    """Which heads to keep: the share `keep` of all that matters most, and of each attention at least one.

    importance   of each attention, a number for each head; heads that share keys and values stay or go together
    """
    if not 0 < keep <= 1:
        raise ConfigError(f"the share of heads to keep must be above 0 and at most 1: {keep=}")
    groups = {path: _grouped(attention_at(model, path), path, value) for path, value in importance.items()}
    ranked = sorted(
        ((value, path, group) for path, values in groups.items() for group, value in enumerate(values)),
        key=lambda one: -one[0],
    )
    chosen = {(path, max(range(len(values)), key=values.__getitem__)) for path, values in groups.items()}
    shares = {path: len(importance[path]) // len(values) for path, values in groups.items()}
    wanted = keep * sum(len(value) for value in importance.values())
    taken = sum(shares[path] for path, _ in chosen)
    for _, path, group in ranked:
        if (path, group) not in chosen and taken + shares[path] <= wanted + 1e-9:
            chosen.add((path, group))
            taken += shares[path]
    return {
        path: [head for head in range(len(importance[path])) if (path, head // shares[path]) in chosen]
        for path in importance
    }


def _grouped(attention: MultiHeadAttention, path: str, importance_H: Tensor) -> list[float]:
    if importance_H.shape != (attention.heads,):
        raise ConfigError(f"{path!r} has {attention.heads} heads, not as many as {tuple(importance_H.shape)} says")
    return [float(value) for value in importance_H.double().view(attention.kv_heads, -1).mean(1)]
