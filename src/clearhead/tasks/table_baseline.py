"""Yardsticks for a table model: the mean or the majority, and scikit-learn's histogram gradient boosting."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from clearhead.data.table_schema import Schema
from clearhead.data.tables import Cells, Table

__all__ = ["Yardstick", "yardsticks"]

MOST = 255  # categories of a column that histogram gradient boosting can take as such


class Yardstick(NamedTuple):
    """A simple model under its name, with what it says of the asked rows; classes as probabilities too."""

    name: str
    predicted: Cells
    probability_BC: Cells | None


def yardsticks(
    schema: Schema, train: tuple[Table, Cells], asked: Table, *, classes: bool, seed: int = 0
) -> list[Yardstick]:
    """Simple models, fitted to the same rows in the same encoding, and what they say of other rows."""
    features, target = _features(schema, train[0]), train[1]
    sizes = [feature.size for feature in schema.categories]
    first = len(schema.numbers)
    named = [first + c for c, size in enumerate(sizes) if size < MOST]
    # Over 10,000 rows it would stop early, by rows that it holds out of each class: of a single row it cannot.
    alone = classes and np.unique(target, return_counts=True)[1].min() == 1
    boosted: dict[str, Any] = {
        "categorical_features": named or None, "random_state": seed, "early_stopping": False if alone else "auto",
    }  # fmt: skip
    models: dict[str, Any] = (
        {"majority": DummyClassifier(), "gradient boosting": HistGradientBoostingClassifier(**boosted)}
        if classes
        else {"mean": DummyRegressor(), "gradient boosting": HistGradientBoostingRegressor(**boosted)}
    )
    found = []
    for name, model in models.items():
        model.fit(features, target)
        rows = _features(schema, asked)
        found.append(Yardstick(name, model.predict(rows), model.predict_proba(rows) if classes else None))
    return found


def _features(schema: Schema, table: Table) -> Cells:
    """Numbers, then codes; an unseen category counts as missing."""
    number_BC, code_BC = schema.encode(table)
    sizes = np.array([feature.size for feature in schema.categories], dtype=np.int64)
    return np.concatenate([number_BC, np.where(code_BC < sizes, code_BC, np.nan)], axis=1)
