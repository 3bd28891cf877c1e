"""Tables that are no files and no frames of pandas or polars: Arrow's, arrays with masks; truth values as numbers."""

import numpy as np
import pyarrow as pa
import pytest

from clearhead.data.table_columns import columns_of, texts_in
from clearhead.data.table_schema import fit_schema
from clearhead.data.tables import table_of
from clearhead.errors import DataError
from tests.unit.small_tables import FRAME, classifier, frame, regressor, same


def test_arrow_tables_are_frames_too() -> None:
    arrow = pa.Table.from_pandas(FRAME.drop(columns=["mixed"]))
    same(table_of(FRAME).without("mixed"), table_of(pa.concat_tables([arrow.slice(0, 1), arrow.slice(1)])))
    same(table_of(FRAME).without("mixed").take(slice(1, 3)), table_of(arrow.to_batches()[0].slice(1, 2)))
    assert table_of(arrow).categorical == {"grade"}
    with pytest.raises(DataError, match="give an Arrow Table, not a Int64Array"):
        table_of(pa.array([1, 2]))


def test_what_a_mask_of_numpy_hides_is_missing() -> None:
    numbers = np.ma.masked_array([[1, 2], [3, 4]], [[False, True], [False, False]])
    np.testing.assert_array_equal(table_of(numbers)["x1"], [np.nan, 4])
    for values in (["a", "b"], [True, False], np.array(["2020-01-01", "2021-01-01"], "datetime64[s]")):
        cells = table_of({"it": np.ma.masked_array(values, [True, False])})["it"]
        assert texts_in(cells)[0] is None
        assert cells[1] == values[1]


def test_truth_values_may_come_as_numbers_later() -> None:
    """As a database or a spreadsheet gives them; where a column has other categories, 1 is none of them."""
    learned = table_of({"open": [True, False, True], "colour": ["True", "red", "False"]})
    schema = fit_schema(learned, columns_of(learned), scaling="none", unseen=True)
    asked = schema.encode(table_of({"open": [1, 0, None], "colour": [1, 0, "red"]})).code_BC
    np.testing.assert_array_equal(asked, [[1, 3], [0, 3], [2, 2]])


def test_tables_and_targets_of_arrow() -> None:
    X, y = frame(40)
    ours = classifier(epochs=2).fit(pa.Table.from_pandas(X), pa.chunked_array([y[:9], y[9:]]))
    assert ours.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(ours.predict_proba(X), classifier(epochs=2).fit(X, y).predict_proba(X))
    weight = regressor(epochs=1).fit(X, pa.array(X["a"])).predict(X[:2])
    np.testing.assert_array_equal(weight, regressor(epochs=1).fit(X, X["a"]).predict(X[:2]))
