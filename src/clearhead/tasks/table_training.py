"""From a table and its target to a fitted model: schema, bins, config, training."""

from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from clearhead.data.table_bins import Edges
from clearhead.data.table_columns import Column
from clearhead.data.table_schema import Encoded, Schema, fit_schema
from clearhead.data.table_target import Classes, Values
from clearhead.data.tables import Cells, Table
from clearhead.errors import ConfigError
from clearhead.models.ft_transformer import FTTransformerConfig
from clearhead.models.presets import build
from clearhead.nn.columns import PiecewiseNumbers
from clearhead.nn.tables import pick
from clearhead.tasks.table_build import MODELS, TableConfig, Wish
from clearhead.tasks.table_fit import Course, Fitting, Rows, fit_members
from clearhead.tasks.table_model import TableModel, rows_of
from clearhead.tasks.table_objective import OBJECTIVES
from clearhead.tasks.table_pretrain import pretrain

__all__ = ["Part", "Plan", "Pretrained", "fit_table", "pretrain_table"]

WATCHED = ("loss", "score")


@dataclass(frozen=True)
class Plan:
    """Everything that is decided before a row is learned from.

    kind         a row of `MODELS`
    scaling      a row of `SCALINGS`
    columns      what each column of the table is
    watch        what stops training early: the "loss" of the held-out rows, or their "score" (errors of classification)
    """

    kind: str
    wish: Wish
    scaling: str
    columns: tuple[Column, ...]
    watch: str
    fitting: Fitting

    def __post_init__(self) -> None:
        if self.watch not in WATCHED:
            raise ConfigError(f"early stopping watches the loss or the score: watch={self.watch!r}")


class Part(NamedTuple):
    """Rows with their target, as places of classes or as numbers, and how much each counts."""

    table: Table
    target: Cells
    weight_B: Cells

    def take(self, rows: Cells) -> "Part":
        return Part(self.table.take(rows), self.target[rows], self.weight_B[rows])


@dataclass(frozen=True, eq=False)
class Pretrained:
    """What pre-training leaves for a fit: the schema, the config, and the weights below the head."""

    schema: Schema
    config: TableConfig
    weights: list[dict[str, Tensor]]  # of each member
    course: Course


def fit_table(
    train: Part, valid: Part | None, target: Classes | Values, plan: Plan, before: Pretrained | None = None
) -> tuple[TableModel, Course]:
    """The fitted model, and how training went."""
    classes = isinstance(target, Classes)
    objective = OBJECTIVES["classes" if classes else "values", plan.watch]
    if before is not None:
        config = _continued(before, plan, target.outputs)
        schema, edges, start = before.schema, None, before.weights
    else:
        schema, start = _schema(train.table, plan), None
        edges = _edges(schema.encode(train.table), target.encode(train.target), plan, classes)
        config = _config(schema, plan, target.outputs, edges)
    parts = [None if part is None else _rows(part, schema, target) for part in (train, valid)]
    assert parts[0] is not None

    def built() -> Any:
        model = build(config)
        _put_edges(model, edges)
        return model

    course = fit_members(built, parts[0], parts[1], objective.cost, objective.judge, plan.fitting, start)
    return TableModel(schema, target, course.model, config, plan.fitting.n_ensemble), course


def _continued(before: Pretrained, plan: Plan, outputs: int) -> TableConfig:
    """The config of a fit that goes on from pre-training: only the rates of what is hidden or dropped may be others."""
    bins = before.config.bins if isinstance(before.config, FTTransformerConfig) else ()
    wanted = pick(MODELS, plan.kind, "kind of table model").config(before.schema, outputs, plan.wish, bins)
    now = {"n_ensemble": plan.fitting.n_ensemble, "scaling": plan.scaling, "model": _name(wanted), **asdict(wanted)}
    then = {"n_ensemble": len(before.weights), "scaling": before.schema.scaling.name, "model": _name(before.config)}
    then |= {**asdict(before.config), "outputs": outputs}
    for name, value in then.items():
        if value != now[name] and not name.endswith(("dropout", "unseen")):
            given = f"{name}={value!r}, and it is now {now[name]!r}"
            raise ConfigError(f"pre-training was with {given}: pre-train again, or leave it as it was")
    return wanted


def _name(config: TableConfig) -> str:
    return type(config).__name__.removesuffix("Config")


def pretrain_table(train: Table, valid: Table | None, plan: Plan, *, method: str, rate: float) -> Pretrained:
    """Learn from rows without a target; every number can then be missing, and every category unseen."""
    found = _schema(train, plan)
    schema = replace(found, numbers=tuple(replace(feature, missing=True) for feature in found.numbers), unseen=True)
    if plan.wish.numbers == "trees":
        raise ConfigError("bins by trees need a target, which pre-training has not: use numbers='quantiles'")
    encoded = schema.encode(train)
    edges = _edges(encoded, np.zeros(train.rows), plan, classes=False)
    config = _config(schema, plan, 1, edges)
    watched = None if valid is None else rows_of(schema.encode(valid))
    course, weights = pretrain(
        config, lambda body: _put_edges(body, edges), rows_of(encoded), watched, plan.fitting, method=method, rate=rate
    )
    return Pretrained(schema, config, weights, course)


def _schema(table: Table, plan: Plan) -> Schema:
    return fit_schema(table, plan.columns, scaling=plan.scaling, unseen=plan.wish.unseen > 0)


def _config(schema: Schema, plan: Plan, outputs: int, edges: Edges | None) -> TableConfig:
    bins = () if edges is None else tuple(len(edge_W) - 1 for edge_W in edges)
    return pick(MODELS, plan.kind, "kind of table model").config(schema, outputs, plan.wish, bins)


def _edges(encoded: Encoded, target: Cells, plan: Plan, classes: bool) -> Edges | None:
    find = plan.wish.edges
    return None if find is None else find(encoded.number_BC, target, plan.wish.bins, classes)


def _put_edges(model: torch.nn.Module, edges: Edges | None) -> None:
    for module in model.modules():
        if isinstance(module, PiecewiseNumbers) and edges is not None:
            module.set_edges([torch.from_numpy(edge_W) for edge_W in edges])


def _rows(part: Part, schema: Schema, target: Classes | Values) -> Rows:
    """Encoded; the weights of training rows are brought to a mean of 1, so that their size does not matter."""
    weight_B = torch.from_numpy((part.weight_B / part.weight_B.mean()).astype(np.float32))
    return rows_of(schema.encode(part.table), torch.from_numpy(target.encode(part.target)), weight_B)
