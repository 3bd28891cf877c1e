"""Tables that break others: each works, or says in one sentence what to do."""

import re
import resource
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.table_columns import columns_of
from clearhead.data.tables import Table, table_of
from clearhead.errors import ConfigError, DataError
from tests.unit.small_tables import classifier, frame, regressor

RANDOM = np.random.default_rng(0)
KINDS = ["ft", "tab"]


def works(X: Any, y: Any = None, **changes: Any) -> Any:
    """Fits, and predicts a finite probability for every row; returns the model."""
    target = np.arange(len(X)) % 2 if y is None else y
    model = classifier(**{"epochs": 2, **changes}).fit(X, target)
    probability_BC = model.predict_proba(X)
    assert probability_BC.shape == (len(X), len(model.classes_))
    assert np.isfinite(probability_BC).all()
    return model


def kinds(model: Any) -> dict[str, str]:
    return {column.name: column.kind for column in model.fitted_.schema.columns}


@pytest.mark.parametrize("kind", KINDS)
def test_no_categorical_column(kind: str) -> None:
    works(pd.DataFrame({"a": RANDOM.normal(size=40), "b": RANDOM.normal(size=40)}), kind=kind)


@pytest.mark.parametrize("kind", KINDS)
def test_no_numeric_column(kind: str) -> None:
    works(pd.DataFrame({"a": RANDOM.choice(["x", "y"], 40), "b": RANDOM.choice(["u", "v", "w"], 40)}), kind=kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cells", [RANDOM.normal(size=40), RANDOM.choice(["x", "y"], 40)], ids=["number", "category"])
def test_one_column(kind: str, cells: Any) -> None:
    works(pd.DataFrame({"only": cells}), kind=kind)


def test_a_constant_column_is_left_out_and_reported() -> None:
    X, y = frame(40)
    model = works(X.assign(same=3.0, word="w"), y)
    assert kinds(model)["same"] == kinds(model)["word"] == "constant"
    assert model.fitted_.schema.used == ("a", "b", "c", "d")
    assert model.n_features_in_ == 6


def test_nothing_but_constant_columns() -> None:
    with pytest.raises(DataError, match=r"no column is left to learn from.*'same': 'constant'"):
        works(pd.DataFrame({"same": [3.0] * 20}))


def test_all_values_missing_in_a_column() -> None:
    X, y = frame(40)
    model = works(X.assign(void=np.nan, nothing=None), y)
    assert kinds(model)["void"] == kinds(model)["nothing"] == "empty"


@pytest.mark.parametrize("kind", KINDS)
def test_112_missing_cells(kind: str) -> None:
    X, y = frame(80)
    cells = RANDOM.permutation(X.size)[:112]
    holes = np.zeros(X.size, dtype=bool)
    holes[cells] = True
    X = X.astype(object).mask(pd.DataFrame(holes.reshape(X.shape), columns=X.columns))
    X = X.assign(a=X["a"].astype(float), b=X["b"].astype(float))
    assert int(X.isna().sum().sum()) == 112
    model = works(X, y, kind=kind)
    assert sum(column.missing for column in model.fitted_.schema.columns) == 112
    assert model.fitted_.config.missing == (0, 1)


def test_integer_categories() -> None:
    X = np.column_stack([RANDOM.integers(0, 5, 60), RANDOM.integers(0, 3, 60)])
    assert set(kinds(works(X)).values()) == {"number"}
    for places in ([1], (1,), np.array([1]), [np.int64(1)], np.array(["x1"])):
        assert kinds(works(X, categories=places)) == {"x0": "number", "x1": "category"}
    for places in ([0], np.array([0])):
        assert kinds(works(X, categories=places)) == {"x0": "category", "x1": "number"}
    assert set(kinds(works(X, categories=np.array([0, 1]))).values()) == {"category"}
    with pytest.raises(ConfigError, match=r"categories=\[0, 2\]: there is no column 2, the table has 2"):
        works(X, categories=[0, 2])
    frame_ = pd.DataFrame(X, columns=["p", "q"]).astype({"p": "category"})
    assert kinds(works(frame_)) == {"p": "category", "q": "number"}
    model = works(frame_)
    as_floats = frame_.assign(p=frame_["p"].astype(float).astype("category"))
    np.testing.assert_array_equal(model.predict_proba(as_floats), model.predict_proba(frame_))


def test_mixed_strings_and_numbers() -> None:
    X = pd.DataFrame({"m": [1, "one", 2.5, None, "two", 1.0] * 6})
    model = works(X)
    assert model.fitted_.schema.categories[0].values == ("1", "2.5", "one", "two")


def test_booleans_and_dates() -> None:
    X = pd.DataFrame({"b": RANDOM.random(40) > 0.5, "at": pd.date_range("2023-12-25", periods=40, freq="7h")})
    model = works(X)
    assert kinds(model) == {"b": "boolean", "at": "date"}
    names = [feature.name for feature in model.fitted_.schema.features]
    assert names == ["at (day)", "at (month)", "at (day of month)", "at (weekday)", "at (hour)", "b"]
    assert len(model.feature_importance()) == 2
    missing = X.assign(at=pd.NaT)
    with pytest.warns(UserWarning, match="'at' misses 40 values but missed none in training"):
        assert np.isfinite(model.predict_proba(missing)).all()


def test_a_thousand_columns() -> None:
    model = works(RANDOM.normal(size=(24, 1000)), width=4, heads=1, epochs=1)
    assert model.fitted_.config.numbers == 1000


@pytest.mark.parametrize("kind", KINDS)
def test_one_row_to_predict(kind: str) -> None:
    X, y = frame(40)
    model = works(X, y, kind=kind, n_ensemble=2)
    assert model.predict(X.iloc[[7]]).shape == (1,)
    assert regressor(epochs=1).fit(X, X["b"]).predict(X.iloc[[7]]).shape == (1,)


def test_columns_reordered_missing_or_surplus_at_prediction() -> None:
    X, y = frame(40)
    model = works(X, y)
    with pytest.raises(ValueError, match="must be in the same order as they were in fit"):
        model.predict(X[["b", "a", "c", "d"]])
    with pytest.raises(ValueError, match=r"seen at fit time, yet now missing:\n- b"):
        model.predict(X.drop(columns="b"))
    with pytest.raises(ValueError, match=r"unseen at fit time:\n- e"):
        model.predict(X.assign(e=1))
    by_name = X.to_dict("list")
    turned = dict(reversed(by_name.items())) | {"e": [1] * 40}
    np.testing.assert_array_equal(model.predict_proba(turned), model.predict_proba(X))
    with pytest.raises(DataError, match=r"lacks 1 of the columns that the model knows: \['b'\]"):
        model.predict({name: cells for name, cells in by_name.items() if name != "b"})
    with pytest.raises(ValueError, match="X has 3 features, but TableClassifier is expecting 4"):
        works(np.asarray(X), y).predict(np.asarray(X)[:, :3])


def test_an_array_takes_the_names_of_the_fit_by_position() -> None:
    X, y = frame(40)
    model = works(X, y)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        np.testing.assert_array_equal(model.predict_proba(X.to_numpy(dtype=object)), model.predict_proba(X))


def test_frames_whose_columns_are_numbered_are_arrays_by_position() -> None:
    cells = RANDOM.normal(size=(40, 2))
    numbered = pd.DataFrame(cells)
    for X, asked in ((numbered, cells), (cells, numbered), (cells, cells), (numbered, numbered[[1, 0]])):
        model = works(X)
        np.testing.assert_array_equal(model.predict_proba(asked), model.predict_proba(X))


@pytest.mark.parametrize("value", [np.nan, None])
def test_a_target_with_missing_values(value: Any) -> None:
    X, y = frame(40)
    labels = y.astype(object)
    labels[[3, 5]] = value
    with pytest.raises(DataError, match="the target misses 2 values, first in row 3; drop these rows"):
        works(X, labels)
    numbers = np.arange(40, dtype=float)
    numbers[[3, 5]] = np.nan
    with pytest.raises(DataError, match="the target misses 2 values, first in row 3"):
        regressor(epochs=1).fit(X, numbers)


@pytest.mark.parametrize(("dtype", "cells"), [("string", ["a", "b"]), ("Int64", [1, 2]), ("boolean", [True, False])])
def test_a_target_with_missing_values_of_pandas_own_kind(dtype: str, cells: list[Any]) -> None:
    X, _ = frame(40)
    y = pd.Series(cells * 20, dtype=dtype)
    y[[3, 5]] = None
    for target in (y, y.tolist()):
        with pytest.raises(DataError, match="the target misses 2 values, first in row 3"):
            works(X, target)
        with pytest.raises(DataError, match="the target misses 2 values, first in row 3"):
            regressor(epochs=1).fit(X, target)
    with pytest.raises(DataError, match="the target misses 2 values, first in row 3"):
        regressor(epochs=1).fit(X, pd.DataFrame({"one": y, "two": 1}))


@pytest.mark.parametrize("dtype", ["datetime64[s]", "timedelta64[ms]"])
def test_a_target_of_dates_or_durations(dtype: str) -> None:
    X, _ = frame(40)
    y = pd.Series((np.arange(40) % 2).astype(dtype))
    for model in (classifier(), regressor()):
        with pytest.raises(DataError, match=rf"the target holds {re.escape(dtype)}: make numbers or text of it"):
            model.fit(X, y)


def test_a_class_of_one_row() -> None:
    X, y = frame(40)
    labels = y.astype("<U4")
    labels[0] = "rare"
    assert works(X, labels).classes_.tolist() == ["no", "rare", "yes"]


def test_a_single_class_is_refused() -> None:
    X, _ = frame(40)
    with pytest.raises(DataError, match=r"two classes or more, the target has 1 class: \['a'\]"):
        works(X, np.array(["a"] * 40))


def test_infinities() -> None:
    X, y = frame(40)
    model = works(X, y)
    for value in (np.inf, -np.inf):
        broken = X.assign(b=X["b"].where(X.index != 4, value))
        for act in (model.predict, lambda given: works(given, y)):
            with pytest.raises(DataError, match=r"column 'b' contains infinity .* in row 4: leave the cell empty"):
                act(broken)


def test_duplicate_column_names() -> None:
    X, y = frame(40)
    X.columns = pd.Index(["a", "a", "c", "d"])
    with pytest.raises(DataError, match="more than one column named 'a': rename all but one"):
        works(X, y)


def test_unseen_categories_and_numbers_that_went_missing() -> None:
    X, y = frame(40)
    model = works(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(model.predict_proba(X.assign(c="never seen", d=None))).all()
    with pytest.raises(DataError, match="that training never showed"):
        works(X, y, unseen=0.0).predict(X.assign(c="never seen"))
    with pytest.warns(
        UserWarning, match="'a' misses 40 values but missed none in training: they are taken as its median"
    ):
        model.predict(X.assign(a=np.nan))


@pytest.mark.parametrize("seed", range(3))
def test_a_category_of_one_row_where_unseen_ones_are_refused(seed: int) -> None:
    X, y = frame(40)
    X["e"] = [f"often {i % 3}" if i % 4 else f"once {i}" for i in range(40)]
    X.loc[7, "d"] = None
    model = works(X, y, unseen=0.0, random_state=seed)
    assert len(model.fitted_.schema.categories[2].values) == X["e"].nunique()
    assert np.isfinite(model.validation_).all()


def test_a_row_is_named_by_its_number_in_the_whole_table() -> None:
    X, y = frame(40)
    weight = (np.arange(40) > 9).astype(float)
    model = classifier(epochs=1, unseen=0.0).fit(X, y, sample_weight=weight)
    part = table_of(X.assign(c=["new" if i == 33 else c for i, c in enumerate(X["c"])])).take(weight > 0)
    with pytest.raises(DataError, match="column 'c' has 'new' in row 33"):
        model.predict(part)


@given(st.lists(st.one_of(st.slices(12), st.lists(st.booleans(), min_size=12, max_size=12)), max_size=4))
def test_parts_of_parts_know_the_places_of_their_rows(takes: list[slice | list[bool]]) -> None:
    table = table_of({"row": list(range(12))})
    for rows in takes:
        table = table.take(rows if isinstance(rows, slice) else np.array(rows)[: table.rows])
    assert [table.place(row) for row in range(table.rows)] == table["row"].tolist()


def test_identifiers_are_left_out_and_reported() -> None:
    X, y = frame(40)
    model = works(X.assign(row=np.arange(40), key=[f"k{i}" for i in range(40)]), y)
    assert kinds(model)["row"] == kinds(model)["key"] == "identifier"


def test_a_huge_table_is_predicted_in_bounded_memory() -> None:
    """Rows that are views of one another take no memory, so that what is taken is the prediction's own."""
    X, y = frame(40)
    model = works(X[["a", "c"]], y, width=2, heads=1, epochs=1)
    rows = 200_000
    few = table_of(X[["a", "c"]].iloc[:1])
    many = Table({name: np.broadcast_to(cells, rows) for name, cells in few.columns.items()})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert model.predict_proba(many).shape == (rows, 2)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 200, f"{grown:.0f} MB"
    assert columns_of(few)
