"""What a table model learns, and what stops it: classes by their cross-entropy, numbers by their squared error."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.tasks.table_fit import Cost, Judge, Rows, in_parts

__all__ = ["OBJECTIVES", "Objective"]


@dataclass(frozen=True)
class Objective:
    """What each row costs in training, and what validation says of each member: the lower, the better."""

    cost: Cost
    judge: Judge


def _class_cost(model: nn.Module, rows: Rows) -> Tensor:
    logits_BC = model(rows.number_BC, rows.code_BC)
    return F.cross_entropy(logits_BC, rows.target, reduction="none") * rows.weight_B


def _value_cost(model: nn.Module, rows: Rows) -> Tensor:
    error_BC = model(rows.number_BC, rows.code_BC) - rows.target
    return error_BC.square().mean(1) * rows.weight_B


def _log_loss(model: nn.Module, rows: Rows, members: int) -> Tensor:
    logits_SBC = in_parts(model, rows, members)
    target_SB = rows.target.expand(members, -1)
    loss_SB = F.cross_entropy(logits_SBC.transpose(1, 2), target_SB, reduction="none")
    return (loss_SB * rows.weight_B).sum(1) / rows.weight_B.sum()


def _error_rate(model: nn.Module, rows: Rows, members: int) -> Tensor:
    wrong_SB = (in_parts(model, rows, members).argmax(2) != rows.target).float()
    return (wrong_SB * rows.weight_B).sum(1) / rows.weight_B.sum()


def _rmse(model: nn.Module, rows: Rows, members: int) -> Tensor:
    error_SB = (in_parts(model, rows, members) - rows.target).square().mean(2)
    return ((error_SB * rows.weight_B).sum(1) / rows.weight_B.sum()).sqrt()


# (what the target is, what early stopping watches) -> objective
OBJECTIVES: dict[tuple[str, str], Objective] = {
    ("classes", "loss"): Objective(_class_cost, _log_loss),
    ("classes", "score"): Objective(_class_cost, _error_rate),
    ("values", "loss"): Objective(_value_cost, _rmse),
    ("values", "score"): Objective(_value_cost, _rmse),
}
