"""Pruning of a finished model: which heads matter on the user's own data, the model without the others, both scores.

found = prune_task(load("runs/demo", precision=""), "valid.tsv", keep=0.5)
found.before["bleu"], found.after["bleu"]
found.task.save_pretrained("runs/demo-half")
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError, DataError
from clearhead.look.ablate import attention_at
from clearhead.look.importance import HeadGates, Importance, attention_names, by_ablation, by_gradient, spearman
from clearhead.look.prune import choose_heads, prune_heads
from clearhead.nn.tables import pick
from clearhead.tasks.directory import ModelParts
from clearhead.tasks.losses import Loss
from clearhead.tasks.prepare import Figures

__all__ = ["BY", "Pruned", "folder_bytes", "importance_by", "prune_parts", "prune_task"]

MOST = 64  # batches by which heads are judged
STEPS, RATE = 200, 0.1  # in which gates learn to close
OF_TRAINING = frozenset({"optimizer.safetensors", "state.json"})  # what a checkpoint has beside its model


@dataclass(frozen=True)
class Pruned:
    """A model without the heads that matter least.

    task          what the model was, with those heads gone
    kept          of each attention, which heads it still has, counted as they were
    importance    by each measure that was taken, how much each head of each attention matters
    agreement     Spearman's rank correlation of gradient and ablation, where both were taken
    before, after the same evaluation, of the whole model and of the pruned one
    parameters    of both
    """

    task: Any
    kept: Mapping[str, Sequence[int]]
    importance: Mapping[str, Importance]
    agreement: float | None
    before: Figures
    after: Figures
    parameters: tuple[int, int]


def prune_task(task: Any, data: Any, *, keep: float, by: str = "gradient") -> Pruned:
    """Prune the model of a task to the share `keep` of its heads, judged on `data` as its `evaluate` takes them.

    by   "gradient": how much the loss feels a head; "ablation": how much it grows without it, one head after another;
         "gates": which of them stay open under a penalty
    """
    if not hasattr(task, "losses"):
        raise ConfigError(f"a model for {task.TASK} is not pruned: nothing says what it should have answered")
    judge = pick(BY, by, "measure of heads")
    losses = list(islice(task.losses(data), MOST))
    if not losses:
        raise DataError("heads are judged by data, and there is none: give a file that is not empty")
    measures = {by: judge(task.model, losses)}
    if by == "ablation":
        measures["gradient"] = importance_by("gradient", task.model, losses)
    kept = choose_heads(task.model, measures[by], keep)
    smaller = type(task)(prune_parts(task.parts, kept))
    both = [_flat(measures[name]) for name in ("gradient", "ablation") if name in measures]
    return Pruned(
        task=smaller,
        kept=kept,
        importance=measures,
        agreement=spearman(*both) if len(both) == 2 else None,
        before=task.evaluate(data),
        after=smaller.evaluate(data),
        parameters=(task.model.parameters_table().total, smaller.model.parameters_table().total),
    )


def importance_by(by: str, model: nn.Module, losses: Sequence[Loss]) -> Importance:
    """How much each head of each attention matters, by one of the measures of `BY`."""
    return pick(BY, by, "measure of heads")(model, losses)


def _mean(found: Iterable[tuple[int, Importance]]) -> Importance:
    """The mean over rows of what batches of so many rows say."""
    total: dict[str, Tensor] = {}
    rows = 0
    for count, importance in found:
        rows += count
        for name, value_H in importance.items():
            total[name] = total.get(name, torch.zeros(())) + count * value_H.detach().double().cpu()
    return {name: value_H / rows for name, value_H in total.items()}


def _by_gradient(model: nn.Module, losses: Sequence[Loss]) -> Importance:
    return _mean((loss.rows, by_gradient(model, loss)) for loss in losses)


def _by_ablation(model: nn.Module, losses: Sequence[Loss]) -> Importance:
    return _mean((1, by_ablation(model, loss)) for loss in losses)


def _by_gates(model: nn.Module, losses: Sequence[Loss]) -> Importance:
    """How far open each gate is in the end; all gates open weigh as much as the loss of the whole model."""
    gates = HeadGates.of(model)
    optimizer = torch.optim.Adam(gates.parameters(), lr=RATE)
    with torch.no_grad():
        whole = sum(float(loss(model)) for loss in losses) / sum(loss.rows for loss in losses)
    weight = whole / sum(len(open_H) for open_H in gates.openness)
    with gates.on(model), torch.enable_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for loss in islice(cycle(losses), STEPS):
            value = loss(model) / loss.rows + weight * gates.penalty()
            for open_H, slope_H in zip(gates.openness, torch.autograd.grad(value, list(gates.openness)), strict=True):
                open_H.grad = slope_H
            optimizer.step()
    return {name: open_H.detach().double() for name, open_H in zip(gates.names, gates.openness, strict=True)}


BY: Mapping[str, Callable[[nn.Module, Sequence[Loss]], Importance]] = MappingProxyType(
    {"gradient": _by_gradient, "ablation": _by_ablation, "gates": _by_gates}
)


def _flat(importance: Importance) -> Tensor:
    return torch.cat([value_H.double() for value_H in importance.values()])


def prune_parts(parts: ModelParts, kept: Mapping[str, Sequence[int]]) -> ModelParts:
    """The model with these heads alone, and what is said of it: the head for alignments by its new number, or none."""
    model: Any = prune_heads(parts.model, kept)
    generation = dict(parts.settings.generation)
    match generation.pop("alignment_head", None):
        case [int(layer), int(head), reads]:
            left = list(kept.get(f"decoder.{layer}.cross", range(head + 1)))
            if head in left:
                generation["alignment_head"] = [layer, left.index(head), reads]
    settings = replace(parts.settings, config=model.config, generation=generation)
    heads = sum(len(one) for one in kept.values()), _count(parts.model)
    card = parts.card.rstrip() + f"\n\nPruned: {heads[0]} of {heads[1]} attention heads are left.\n"
    return replace(parts, model=model, settings=settings, card=card.lstrip())


def _count(model: nn.Module) -> int:
    return sum(attention_at(model, name).heads for name in attention_names(model))


def folder_bytes(folder: Path) -> int:
    """The bytes of a model directory, without what only training needs."""
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file() and path.name not in OF_TRAINING)
