"""From a file of a table to a fitted estimator and what is to be said of it: scores beside yardsticks, importance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from clearhead.data.table_columns import Column, columns_of, numbers_in, texts_in
from clearhead.data.table_files import read_table
from clearhead.data.tables import Cells, Table
from clearhead.errors import ConfigError, DataError
from clearhead.tasks.table_baseline import yardsticks
from clearhead.tasks.table_estimators import TableClassifier, TableRegressor
from clearhead.tasks.table_importance import evenly
from clearhead.tasks.table_inputs import held_out

__all__ = ["AIMS", "FileToFit", "Report", "figures_of", "fit_file", "predicted_columns"]

SHUFFLED = 500  # test rows whose columns are shuffled, one after the other
FEW = 10  # whole numbers of a target that are taken as classes
AIMS = ("auto", "classification", "regression")


@dataclass(frozen=True)
class FileToFit:
    """What to learn from which file.

    aim     classification, regression, or auto: text, truth values and a few whole numbers are classes
    test    share of the rows that are kept for the test, taken of each class alike
    """

    path: Path
    target: str
    aim: str = "auto"
    test: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        if self.aim not in AIMS:
            raise ConfigError(f"the aim must be one of {', '.join(AIMS)}: aim={self.aim!r}")
        if not 0 < self.test < 1:
            raise ConfigError(f"the share of rows for the test lies between 0 and 1: test={self.test}")


@dataclass(frozen=True, eq=False)
class Report:
    """A fitted estimator, what its columns were, and how good it is beside simpler models on the same test rows.

    importance   of each column, those that matter most first: what the score loses when it is shuffled (`permutation`)
                 and, of an FT-Transformer, how much `[CLS]` looks at it (`attention`)
    """

    estimator: TableClassifier | TableRegressor
    columns: tuple[Column, ...]
    rows: Mapping[str, int]
    validation: float
    scores: Mapping[str, Mapping[str, float]]
    importance: Mapping[str, Mapping[str, float]]


def fit_file(of: FileToFit, options: Mapping[str, Any]) -> Report:
    """Read, hold rows back for a test, fit with these options of the estimator, and measure."""
    whole = read_table(of.path)
    target, classes = _target(whole, of)
    table = whole.without(of.target)
    columns = columns_of(table, options.get("categories") or ())
    # What only counts the rows is seen of the whole file, not of a part of it.
    table = table.without(*(column.name for column in columns if column.kind == "identifier"))
    held = held_out(target, of.test, np.random.default_rng(of.seed), classes)
    if not held.any():
        many = f", with {len(np.unique(target))} classes in the target {of.target!r}" if classes else ""
        raise DataError(f"{table.rows} rows are too few to keep some of them for a test{many}")
    train, asked = table.take(~held), table.take(held)
    estimator = (TableClassifier if classes else TableRegressor)(random_state=of.seed, **options)
    estimator.fit(train, target[~held])
    scores = {"clearhead": _scores(estimator, asked, target[held])}
    fitted = estimator.fitted_
    for stick in yardsticks(fitted.schema, (train, target[~held]), asked, classes=classes, seed=of.seed):
        scores[stick.name] = figures_of(
            target[held], stick.predicted, stick.probability_BC, getattr(estimator, "classes_", None)
        )
    rows = {"train": train.rows, "test": asked.rows}
    return Report(
        estimator,
        columns,
        rows,
        float(np.mean(estimator.validation_)),
        scores,
        _importance(estimator, asked, target[held]),
    )


def _importance(
    estimator: TableClassifier | TableRegressor, asked: Table, target: Cells
) -> dict[str, dict[str, float]]:
    some = evenly(asked.rows, SHUFFLED)
    shuffled = estimator.feature_importance(asked.take(some), target[some], method="permutation")
    found = {name: {"permutation": float(lost)} for name, lost in zip(estimator.columns_, shuffled, strict=True)}
    if estimator.kind == "ft":
        for name, share in zip(estimator.columns_, estimator.feature_importance(), strict=True):
            found[name]["attention"] = float(share)
    return dict(sorted(found.items(), key=lambda pair: -pair[1]["permutation"]))


def _target(whole: Table, of: FileToFit) -> tuple[Cells, bool]:
    """The target, as text of classes or as numbers, and which of the two it is."""
    cells = whole[of.target]
    column = columns_of(Table({of.target: cells}, text=whole.text))[0]
    if column.missing:
        row = next(i for i, cell in enumerate(texts_in(cells)) if cell is None)
        raise DataError(
            f"the target {of.target!r} misses {column.missing} values, first in row {row}: drop these rows or fill them"
        )
    classes = of.aim == "classification" or (of.aim == "auto" and _are_classes(column, cells))
    return (texts_in(cells).astype(str), True) if classes else (numbers_in(cells, of.target), False)


def _are_classes(column: Column, cells: Cells) -> bool:
    if column.kind in ("category", "boolean"):
        return True
    try:
        values = numbers_in(cells, column.name)
    except DataError:  # a different text in each row
        return True
    return column.distinct <= FEW and bool((values == values.round()).all())


def _scores(estimator: TableClassifier | TableRegressor, asked: Table, target: Cells) -> dict[str, float]:
    if isinstance(estimator, TableRegressor):
        return figures_of(target, estimator.predict(asked), None)
    probability_BC = estimator.predict_proba(asked)
    return figures_of(target, estimator.classes_[probability_BC.argmax(1)], probability_BC, estimator.classes_)


def figures_of(
    target: Cells, predicted: Cells, probability_BC: Cells | None, classes: Cells | None = None
) -> dict[str, float]:
    """Accuracy, and for two classes the area under the curve; or the root mean squared error and R²."""
    if probability_BC is None:
        error = float(np.mean((target - predicted) ** 2))
        spread = float(np.var(target))
        return {"rmse": error**0.5, "r2": 1 - error / spread if spread else 0.0}
    figures = {"accuracy": float(np.mean(predicted == target))}
    if classes is not None and len(classes) == 2 and len(np.unique(target)) == 2:
        figures["auc"] = float(roc_auc_score(target == classes[1], probability_BC[:, 1]))
    return figures


def predicted_columns(estimator: TableClassifier | TableRegressor, table: Table, name: str) -> dict[str, Cells]:
    """The columns that a prediction adds to a table: what is predicted, and the probability of each class."""
    absent = [column for column in estimator.fitted_.schema.used if column not in table.columns]
    if absent:
        raise DataError(f"the table lacks {len(absent)} of the columns that the model knows: {_listed(absent)}")
    if isinstance(estimator, TableRegressor):
        values = estimator.fitted_.values(table)
        columns = values[:, None] if values.ndim == 1 else values
        names = [f"predicted_{name}"] if columns.shape[1] == 1 else [f"predicted_{c}" for c in range(columns.shape[1])]
        return dict(zip(names, columns.T, strict=True))
    probability_BC = estimator.fitted_.probabilities(table)
    likely = {f"probability_{label}": p for label, p in zip(estimator.classes_, probability_BC.T, strict=True)}
    return {f"predicted_{name}": estimator.classes_[probability_BC.argmax(1)], **likely}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
