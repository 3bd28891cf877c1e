"""Pre-training on rows without labels: guess hidden values, or tell which values were replaced [huang2020 §2.1].

Cells are hidden or replaced anew in every batch. What is asked is answered by one linear layer on the very features
that the label will be read from, so that these come to hold the whole row.

    mask       30% of the cells are hidden (numbers as missing, categories as unseen); the cost is their squared error
               or cross-entropy
    replace    30% of the cells are taken from another row; the cost is the cross-entropy of "is this the row's own?"
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.models.presets import build
from clearhead.nn.tables import pick
from clearhead.tasks.table_build import TableConfig
from clearhead.tasks.table_fit import Course, Fitting, Rows, fit_members, seeded, weights_of
from clearhead.train.loss import IGNORE

__all__ = ["PRETEXTS", "Pretext", "pretrain"]

UNTRAINED = ("head.", "mlp.")
Question = Callable[[nn.Module, Rows, tuple[int, ...], float], Tensor]


class Pretext(nn.Module):
    """A table model whose features answer another question than its own."""

    def __init__(self, config: TableConfig, answers: int) -> None:
        super().__init__()
        self.config = config
        body: Any = build(config)
        self.body, self.answer = body, nn.Linear(body.feature_width, answers)

    def forward(self, number_BC: Tensor, code_BC: Tensor) -> Tensor:
        return self.answer(self.body.features(number_BC, code_BC))


def _guess_hidden(model: nn.Module, rows: Rows, sizes: tuple[int, ...], rate: float) -> Tensor:
    number_BC, code_BC = rows.number_BC, rows.code_BC
    size_C = torch.tensor(sizes, dtype=torch.long, device=code_BC.device)
    no_number_BC = torch.rand_like(number_BC) < rate
    no_code_BC = torch.rand(code_BC.shape, device=code_BC.device) < rate
    guess = model(number_BC.masked_fill(no_number_BC, torch.nan), torch.where(no_code_BC, size_C, code_BC))
    guess_BC, *logits = guess.split([number_BC.shape[1], *sizes], dim=1)
    asked_BC = no_number_BC & ~number_BC.isnan()
    cost_B = ((guess_BC - number_BC.nan_to_num()).square() * asked_BC).sum(1)
    for c, logits_BV in enumerate(logits):
        known_B = torch.where(no_code_BC[:, c] & (code_BC[:, c] < sizes[c]), code_BC[:, c], IGNORE)
        cost_B = cost_B + F.cross_entropy(logits_BV, known_B, reduction="none", ignore_index=IGNORE)
    return cost_B / (rate * (number_BC.shape[1] + len(sizes)))


def _tell_replaced(model: nn.Module, rows: Rows, sizes: tuple[int, ...], rate: float) -> Tensor:
    numbers, number_replaced = _mixed(rows.number_BC, rate)
    codes, code_replaced = _mixed(rows.code_BC, rate)
    replaced_BC = torch.cat([number_replaced, code_replaced], dim=1).float()
    return F.binary_cross_entropy_with_logits(model(numbers, codes), replaced_BC, reduction="none").mean(1)


def _mixed(x_BC: Tensor, rate: float) -> tuple[Tensor, Tensor]:
    """Some cells replaced by those of other rows, and which of them are now others than before."""
    other_BC = x_BC.gather(0, torch.randint(len(x_BC), x_BC.shape, device=x_BC.device))
    mixed_BC = torch.where(torch.rand(x_BC.shape, device=x_BC.device) < rate, other_BC, x_BC)
    same_BC = (mixed_BC == x_BC) | (mixed_BC.isnan() & x_BC.isnan())
    return mixed_BC, ~same_BC


# name -> (how many answers there are for so many numbers and categories of these sizes, what each row costs)
PRETEXTS: dict[str, tuple[Callable[[int, tuple[int, ...]], int], Question]] = {
    "mask": (lambda numbers, sizes: numbers + sum(sizes), _guess_hidden),
    "replace": (lambda numbers, sizes: numbers + len(sizes), _tell_replaced),
}


def pretrain(
    config: TableConfig,
    prepare: Callable[[Any], None],
    train: Rows,
    valid: Rows | None,
    fitting: Fitting,
    *,
    method: str,
    rate: float,
) -> tuple[Course, list[dict[str, Tensor]]]:
    """How it went, and the weights that it gave each member; `prepare` is given each one's model before training."""
    if not 0 < rate < 1:
        raise ConfigError(f"the share of cells that are hidden or replaced lies between 0 and 1: {rate=}")
    count, question = pick(PRETEXTS, method, "method of pre-training")

    def built() -> Pretext:
        pretext = Pretext(config, count(config.numbers, config.categories))
        prepare(pretext.body)
        return pretext

    def cost(model: nn.Module, rows: Rows) -> Tensor:
        return question(model, rows, config.categories, rate)

    def judge(model: nn.Module, rows: Rows, members: int) -> Tensor:
        """The same question, in the same words at every validation."""
        with seeded(fitting.seed):
            every_SB = torch.arange(len(rows.weight_B), device=rows.weight_B.device).expand(members, -1)
            parts = [cost(model, rows.take(part_SB.flatten())) for part_SB in every_SB.split(fitting.batch_size, dim=1)]
        return torch.cat([part.view(members, -1) for part in parts], dim=1).mean(1)

    course = fit_members(built, train, valid, cost, judge, fitting)
    body = course.model.get_submodule("body")
    weights = [weights_of(body, s, fitting.n_ensemble) for s in range(fitting.n_ensemble)]
    return course, [{name: x for name, x in own.items() if not name.startswith(UNTRAINED)} for own in weights]
