"""What is said of an estimator: refused by its name where it cannot be, and kept in the model's directory."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearhead.errors import ConfigError
from clearhead.tasks.table_estimators import load_estimator
from tests.unit.small_tables import classifier, frame


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"kind": 3}, "kind of table model is a name, one of ft, tab: not 3"),
        ({"kind": None}, "kind cannot be None: leave it out for kind='ft'"),
        ({"patience": None}, "patience cannot be None: leave it out for patience=16"),
        ({"layers": 2.0}, "layers must be a whole number, at least 1: layers=2.0"),
        ({"epochs": "9"}, "epochs must be a whole number, at least 1: epochs='9'"),
        ({"bins": 0}, "bins must be at least 1: bins=0"),
        ({"n_ensemble": 0}, "n_ensemble must be at least 1: n_ensemble=0"),
        ({"patience": -1}, "patience must be at least 0: patience=-1"),
        ({"dropout": -0.1}, "dropout must be at least 0 and below 1: dropout=-0.1"),
        ({"unseen": -0.1}, "unseen must be at least 0 and below 1: unseen=-0.1"),
        ({"validation_fraction": "a"}, "validation_fraction must be at least 0 and below 1: validation_fraction='a'"),
        ({"learning_rate": 0}, "learning_rate must be above 0: learning_rate=0"),
        ({"learning_rate": "fast"}, "learning_rate must be a number, and not negative: learning_rate='fast'"),
        ({"weight_decay": float("nan")}, "weight_decay must be a number, and not negative: weight_decay=nan"),
        ({"categories": 7}, r"categories=\[7\]: there is no column 7, the table has 4"),
        ({"class_weight": {"yes": -1, "no": 1}}, "no class can count less than nothing"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_its_name(changes: dict[str, Any], sentence: str) -> None:
    X, y = frame(40)
    with pytest.raises(ConfigError, match=f"^{sentence}"):
        classifier(**changes).fit(X, y)


def test_settings_may_be_numbers_of_numpy_as_searches_give_them() -> None:
    X, y = frame(40)
    given = {"layers": np.int64(1), "batch_size": np.int64(8), "epochs": np.int32(2), "dropout": np.float32(0.25)}
    ours = classifier(**given).fit(X, y)
    usual = classifier(**{name: value.item() for name, value in given.items()}).fit(X, y)
    np.testing.assert_array_equal(ours.predict_proba(X), usual.predict_proba(X))
    np.testing.assert_array_equal(
        classifier(epochs=1, categories="c").fit(X, y).predict_proba(X),
        classifier(epochs=1, categories=["c"]).fit(X, y).predict_proba(X),
    )


def test_a_directory_keeps_settings_that_JSON_has_no_word_for(tmp_path: Path) -> None:
    """So that it can be fitted again as it was: labels of any kind as keys, NumPy's numbers, names of columns."""
    X, _ = frame(40)
    y, weights = np.arange(40) % 3, {0: 1.0, 1: 2.0, 2: 0.5}
    model = classifier(epochs=np.int64(1), categories=X.columns[2:], class_weight=weights).fit(X, y)
    model.set_params(random_state=np.random.RandomState(0)).save_pretrained(tmp_path / "m")
    again = load_estimator(tmp_path / "m").get_params()
    assert (again["epochs"], again["categories"], again["class_weight"]) == (1, ["c", "d"], weights)
    assert again["random_state"] is None  # a generator is no setting
