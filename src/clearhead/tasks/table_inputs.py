"""What scikit-learn users hand to an estimator, checked: tables, targets, weights; and rows held out for validation."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_consistent_length,
    column_or_1d,
    validate_data,
)

from clearhead.data.table_columns import Column, categories_in
from clearhead.data.table_files import any_table
from clearhead.data.tables import Cells, Table, is_missing
from clearhead.errors import DataError

__all__ = ["held_out", "held_out_known", "labels_in", "table_in", "values_in", "weights_in"]


def table_in(estimator: Any, X: Any, *, reset: bool) -> Table:
    """The table, its columns counted and named as scikit-learn has it; at prediction they must be those of the fit.

    A table without names (an array, a frame whose columns are numbered) takes those of the fit by position, and the
    other way round.
    """
    table = any_table(X)
    if not table.columns:
        raise DataError(f"Found array with 0 feature(s) (shape=({len(X)}, 0)) while a minimum of 1 is required.")
    if not table.rows:
        raise DataError(
            f"Found array with 0 sample(s) (shape=(0, {len(table.columns)})): there is nothing to learn from"
        )
    if _has_columns(X):
        validate_data(estimator, X, reset=reset, skip_check_array=True)
    elif reset:
        estimator.n_features_in_, estimator.feature_names_in_ = len(table.columns), np.array([*table.columns], object)
    if reset:
        estimator.columns_ = tuple(table.columns)
        return table
    named = hasattr(estimator, "feature_names_in_")
    known = table.columns.keys() == {*estimator.columns_}
    if (table.named and named) or known or len(table.columns) != len(estimator.columns_):
        return table
    return replace(table, columns=dict(zip(estimator.columns_, table.columns.values(), strict=True)), named=named)


def _has_columns(X: Any) -> bool:
    """Whether scikit-learn knows how to count the columns: files, dictionaries and our own tables are ours."""
    return not isinstance(X, str | Path | Mapping | Table)


def labels_in(y: Any) -> Cells:
    """The labels of a classification, one for each row, none missing."""
    if y is None:
        raise DataError("a classifier requires y to be passed, but the target y is None")
    labels: Cells = column_or_1d(_plain(y), warn=True)
    _refuse_times(labels)
    if labels.dtype == object:
        _refuse_missing(_missing(labels))
        labels = labels.astype(str) if any(isinstance(label, str) for label in labels) else np.array(labels.tolist())
    elif labels.dtype.kind == "f":
        _refuse_missing(np.isnan(labels))
        _refuse_infinite(np.isinf(labels))
    check_classification_targets(labels)
    return labels


def values_in(y: Any) -> Cells:
    """The target of a regression, a number or several for each row, none missing."""
    if y is None:
        raise DataError("a regressor requires y to be passed, but the target y is None")
    values = check_array(_plain(y), ensure_2d=False, dtype=None, ensure_all_finite=False, input_name="y")
    _refuse_times(values)
    if values.dtype == object:
        _refuse_missing(_missing(values))
    try:
        values = values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"the target of a regression holds numbers: {error}") from error
    if values.ndim == 2 and values.shape[1] == 1:
        values = column_or_1d(values, warn=True)
    rows = values.reshape(len(values), -1)
    _refuse_missing(np.isnan(rows).any(1))
    if np.isinf(rows).any():
        raise DataError(
            f"Input y contains infinity in row {int(np.isinf(rows).any(1).argmax())}: bound it, or drop the row"
        )
    return values


def _plain(y: Any) -> Any:
    """Frames and series as arrays; those of Arrow must be told that text is copied."""
    if hasattr(y, "to_numpy"):
        return y.to_numpy(zero_copy_only=False) if type(y).__module__.startswith("pyarrow") else y.to_numpy()
    return y


def _missing(values: Cells) -> Cells:
    """Which rows have an object that stands for no value, in whatever way."""
    missing: Cells = np.vectorize(is_missing, otypes=[bool])(values).any(axis=tuple(range(1, values.ndim)))
    return missing


def _refuse_times(values: Cells) -> None:
    """Dates and durations: which numbers they are depends on a unit, and as classes they cannot be kept."""
    if values.dtype.kind in "mM":
        raise DataError(f"the target holds {values.dtype}: make numbers or text of it, in the unit that you mean")


def _refuse_missing(missing_B: Cells) -> None:
    if missing_B.any():
        count, row = int(missing_B.sum()), int(missing_B.argmax())
        raise DataError(f"Input y contains NaN: the target misses {count} values, first in row {row}; drop these rows")


def _refuse_infinite(infinite_B: Cells) -> None:
    if infinite_B.any():
        raise DataError(f"Input y contains infinity in row {int(infinite_B.argmax())}: bound it, or drop the row")


def weights_in(sample_weight: Any, table: Table, target: Cells) -> Cells:
    """How much each row counts, 1 unless said otherwise."""
    check_consistent_length(next(iter(table.columns.values())), target)
    weights: Cells = _check_sample_weight(sample_weight, target, dtype=np.float64, ensure_non_negative=True)
    if not weights.any():
        raise DataError("all sample weights are zero: there is nothing to learn from")
    return weights


def held_out(target: Cells, share: float, random: np.random.Generator, classes: bool) -> Cells:
    """Which rows are for validation, True for such: of each class its share, but never its last row."""
    held = np.zeros(len(target), dtype=bool)
    groups = [np.flatnonzero(target == code) for code in np.unique(target)] if classes else [np.arange(len(target))]
    for group in groups:
        count = min(round(share * len(group)), len(group) - 1)
        held[random.permutation(group)[:count]] = True
    return held


def held_out_known(held_B: Cells, table: Table, columns: Sequence[Column]) -> Cells:
    """Of the rows for validation those whose categories the other rows show too; the rest is to be learned from."""
    for column in columns:
        if column.kind in ("category", "boolean"):
            texts = categories_in(table[column.name])
            shown = set(texts[~held_B])
            held_B = held_B & np.array([text in shown for text in texts])
    return held_B
