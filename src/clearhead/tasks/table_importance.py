"""Which columns a table model looks at: the attention of `[CLS]`, and what it costs to shuffle a column."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.data.tables import Cells, Table
from clearhead.errors import ConfigError
from clearhead.tap import named_taps, watching
from clearhead.tasks.table_model import TableModel

__all__ = ["IMPORTANCES", "attention_to_columns", "evenly", "loss_by_shuffling"]


def evenly(rows: int, most: int) -> Cells:
    """The places of at most so many rows, from the first to the last: a file may be sorted."""
    return np.linspace(0, rows - 1, min(rows, most)).astype(np.int64)


def attention_to_columns(fitted: TableModel, table: Table, columns: Sequence[str]) -> Cells:
    """How much `[CLS]` looks at each column, averaged over heads, layers, rows and members; all of it sums to 1.

    [gorishniy2021 §5.3]. The row of `[CLS]` is read, in evaluation mode: what it asks of the columns, not what they
    ask of it. What it asks of itself is left out, the parts of a date are added up, and columns not in use have 0.
    """
    names = [name for name in named_taps(fitted.model) if name.startswith("encoder.") and name.endswith(".weights")]
    if not hasattr(fitted.config, "embedding"):
        raise ConfigError("only FT-Transformer has a [CLS] that looks at all columns: use method='permutation'")
    total_C = torch.zeros(len(fitted.schema.features), dtype=torch.float64)
    seen: list[Tensor] = []

    def note(weights_BHLM: Tensor) -> Tensor:
        seen.append(weights_BHLM[:, :, 0, 1:].sum(1))
        return weights_BHLM

    with watching(fitted.model, dict.fromkeys(names, note)):
        for part_SBC in fitted.outputs(table):
            for asked_BC in seen:  # rows that only fill up the batch come after those that have outputs
                asked_SBC = asked_BC.unflatten(0, (fitted.members, -1))[:, : part_SBC.shape[1]]
                total_C += asked_SBC.sum((0, 1)).double().cpu()
            seen.clear()
    place = {name: i for i, name in enumerate(columns)}
    shares = np.zeros(len(columns))
    for feature, share in zip(fitted.schema.features, (total_C / total_C.sum()).tolist(), strict=True):
        shares[place[feature.column]] += share
    return shares


def loss_by_shuffling(table: Table, score: Callable[[Table], float], repeats: int = 5) -> Cells:
    """How much of the score each column is worth: what is lost, on average, when its values change rows."""
    random = np.random.default_rng(0)
    whole = score(table)

    def shuffled(name: str) -> Table:
        return replace(table, columns={**table.columns, name: random.permutation(table[name])})

    return np.array([whole - np.mean([score(shuffled(name)) for _ in range(repeats)]) for name in table.columns])


def _by_attention(estimator: Any, table: Table | None, y: Any) -> Cells:
    if table is not None:
        return attention_to_columns(estimator.fitted_, table, estimator.columns_)
    if not hasattr(estimator, "attention_"):
        raise ConfigError("of which rows? Give X: only an FT-Transformer that was fitted here remembers its attention")
    kept: Cells = estimator.attention_
    return kept


def _by_permutation(estimator: Any, table: Table | None, y: Any) -> Cells:
    if table is None or y is None:
        raise ConfigError("permutation importance needs rows and their target: give X and y")
    return loss_by_shuffling(table, lambda shuffled: float(estimator.score(shuffled, y)))


# name -> (a fitted estimator, rows, their target) -> how much each column matters
IMPORTANCES: dict[str, Callable[[Any, Table | None, Any], Cells]] = {
    "attention": _by_attention,
    "permutation": _by_permutation,
}
