"""Tables and estimators that fit in a blink."""

from typing import Any

import numpy as np
import pandas as pd

from clearhead.data.table_columns import texts_in
from clearhead.data.tables import Table
from clearhead.tasks.table_estimators import TableClassifier, TableRegressor

__all__ = ["FRAME", "TINY", "classifier", "frame", "regressor", "same"]

FRAME = pd.DataFrame(
    {
        "size": [1.5, None, 3.0, 2.5],
        "count": pd.array([1, 2, None, 4], dtype="Int64"),
        "colour": ["red", None, "blue", "red"],
        "open": [True, False, True, True],
        "since": pd.to_datetime(["2020-01-31", "2021-05-05 12:00", None, "2020-02-29"], format="ISO8601"),
        "grade": pd.Categorical([1, 2, 1, 3]),
        "mixed": [1, "a", 2.0, None],
    }
)

TINY: dict[str, Any] = {
    "layers": 1, "width": 8, "heads": 2, "dropout": 0.0, "learning_rate": 0.02, "epochs": 6, "batch_size": 32,
    "random_state": 0, "progress": "quiet", "device": "cpu",
}  # fmt: skip


def classifier(**changes: Any) -> TableClassifier:
    return TableClassifier(**{**TINY, **changes})


def regressor(**changes: Any) -> TableRegressor:
    return TableRegressor(**{**TINY, **changes})


def frame(rows: int = 96, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray[Any, Any]]:
    """Two numbers, a category and noise; the target is the sign of a sum that the category turns."""
    random = np.random.default_rng(seed)
    data = pd.DataFrame(
        {
            "a": random.normal(size=rows),
            "b": random.normal(size=rows) * 100 + 7,
            "c": random.choice(["up", "down"], size=rows),
            "d": random.choice(["p", "q", "r"], size=rows),
        }
    )
    return data, np.where(data["a"] * np.where(data["c"] == "up", 1, -1) > 0, "yes", "no")


def same(one: Table, other: Table) -> None:
    assert list(one.columns) == list(other.columns)
    for name, cells in one.columns.items():
        np.testing.assert_array_equal(texts_in(cells), texts_in(other.columns[name]), name)
