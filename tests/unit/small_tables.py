"""Tables and estimators that fit in a blink."""

from typing import Any

import numpy as np
import pandas as pd

from clearhead.tasks.table_estimators import TableClassifier, TableRegressor

__all__ = ["TINY", "classifier", "frame", "regressor"]

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
