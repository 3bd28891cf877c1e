"""Tables as users have them: reading, inferring, encoding, scaling."""

import datetime as dt
import gzip
import json
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import QuantileTransformer
from sklearn.tree import DecisionTreeRegressor

from clearhead.data.table_bins import quantile_edges, tree_edges
from clearhead.data.table_columns import PARTS, columns_of, dates_in, numbers_in, texts_in
from clearhead.data.table_files import any_table, copy_parquet, copy_text, read_chunks, read_table
from clearhead.data.table_scaling import SCALINGS, Scaling, fit_scaling
from clearhead.data.table_schema import Schema, fit_schema, schema_of
from clearhead.data.table_target import Classes, Values, target_of
from clearhead.data.tables import Table, table_of
from clearhead.errors import CheckpointError, DataError
from tests.unit.small_tables import FRAME, same

KINDS = ["number", "number", "category", "boolean", "date", "category", "category"]


def random() -> np.random.Generator:
    return np.random.default_rng(0)


def schema_for(table: Table, **changes: object) -> Schema:
    options = {"scaling": "standard", "unseen": True, **changes}
    return fit_schema(table, columns_of(table), **options)  # type: ignore[arg-type]


def test_frames_of_pandas_and_polars_are_alike() -> None:
    pandas, polars = table_of(FRAME), table_of(pl.from_pandas(FRAME.drop(columns=["mixed", "grade"])))
    assert [column.kind for column in columns_of(pandas)] == KINDS
    same(pandas.without("mixed", "grade"), polars)
    assert [c.kind for c in columns_of(polars)] == KINDS[:5]
    assert [c.missing for c in columns_of(pandas)] == [1, 1, 1, 0, 1, 0, 1]
    assert pandas.categorical == {"grade"}
    enum = pl.DataFrame({"g": pl.Series(["a", "b"], dtype=pl.Enum(["a", "b"])), "b": [True, None]})
    assert [c.kind for c in columns_of(table_of(enum))] == ["category", "boolean"]
    for none in (enum.lazy(), enum["g"]):
        with pytest.raises(DataError, match=r"a LazyFrame needs \.collect\(\) first"):
            table_of(none)


@pytest.mark.parametrize("dtype", ["date32[pyarrow]", "date64[pyarrow]"])
def test_arrows_days_in_frames_are_dates(dtype: str) -> None:
    days = [dt.date(2020, 1, 31), None, dt.date(2020, 2, 29)]
    table = table_of(pd.DataFrame({"on": pd.Series(days, dtype=dtype)}))
    assert [(c.kind, c.distinct, c.missing) for c in columns_of(table)] == [("date", 2, 1)]
    np.testing.assert_array_equal(dates_in(table["on"], "on"), np.array(days, dtype="datetime64[s]"))


def test_dates_with_a_time_zone_are_one_moment_everywhere() -> None:
    paris = pd.DataFrame({"at": pd.to_datetime(["2024-07-01T02:00", "2024-07-02T02:00"]).tz_localize("Europe/Paris")})
    utc = pd.DataFrame({"at": pd.to_datetime(["2024-07-01T00:00", "2024-07-02T00:00"])})
    same(table_of(paris), table_of(utc))


def test_arrays_dictionaries_and_lists() -> None:
    same(table_of(np.array([[1, 2], [3, 4]])), Table({"x0": np.array([1.0, 3.0]), "x1": np.array([2.0, 4.0])}))
    same(table_of([[1, "a"], [2, "b"]]), table_of({"x0": ["1", "2"], "x1": ["a", "b"]}))
    rows = [[i / 7, "ab"[i % 2], i % 3 == 0] for i in range(30)]
    assert [column.kind for column in columns_of(table_of(rows))] == ["number", "category", "boolean"]
    assert [column.kind for column in columns_of(table_of(np.array(rows)))] == ["identifier", "category", "category"]
    table = table_of({"n": [1, None, 2], "s": ["a", None, "b"], "d": [dt.date(2020, 1, 1), None, dt.date(2020, 1, 2)]})
    assert [column.kind for column in columns_of(table)] == ["number", "category", "date"]
    with pytest.raises(DataError, match="of one length"):
        table_of({"a": [1, 2], "b": [1]})
    for alone in (1, "abc", [[1, 2], [3, 4]]):
        with pytest.raises(DataError, match="column 'a' of a table is a list with a cell for each row, not"):
            table_of({"a": alone})
    with pytest.raises(DataError, match="two dimensions, not 1"):
        table_of(np.zeros(3))
    with pytest.raises(DataError, match="Complex data"):
        table_of(np.zeros((2, 2), dtype=complex))


def test_files_give_what_frames_give(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    FRAME.to_csv(tmp_path / "t.tsv", index=False, sep="\t")
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress((tmp_path / "t.csv").read_bytes()))
    FRAME.drop(columns="mixed").to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.tsv", "t.csv.gz", "t.parquet"):
        table = any_table(tmp_path / name)
        kinds = {column.name: column.kind for column in columns_of(table, ["grade"])}
        expected = dict(zip(FRAME, KINDS, strict=True))
        assert kinds == {column: expected[column] for column in kinds}, name
        for column in ("size", "count"):
            np.testing.assert_array_equal(numbers_in(table[column], column), FRAME[column].astype(float))
        np.testing.assert_array_equal(dates_in(table["since"], "since"), FRAME["since"].to_numpy("datetime64[s]"))


def test_text_is_read_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('\ufeffa; "b";c\n 1;?; "x; y"\n\n2; NA;z\n', encoding="utf-8")
    same(
        read_table(path),
        Table({n: np.array(c, object) for n, c in {"a": ["1", "2"], "b": [None] * 2, "c": ["x; y", "z"]}.items()}),
    )
    assert [chunk.rows for chunk in read_chunks(path, rows=1)] == [1, 1]
    assert [column.kind for column in columns_of(read_table(path))] == ["number", "empty", "category"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a,b\n1,2\n3\n", "line 3: 1 cells, but there are 2 columns"),
        ("a,a\n1,2\n", "more than one column named 'a'"),
        ("a,b\n", "holds no rows"),
        ("", "names of the columns"),
        ('a,b\n"1,2\n', "line 2"),
    ],
)
def test_broken_text_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=sentence):
        read_table(path)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "latin.csv").write_bytes("a\né\n".encode("latin-1"))
    (tmp_path / "no.parquet").write_bytes(b"a,b")
    with pytest.raises(DataError, match="no utf-8 text: byte 2 is 0xe9"):
        read_table(tmp_path / "latin.csv")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        read_table(tmp_path / "no.parquet")
    with pytest.raises(DataError, match=r"there is no file .*did you mean 'latin.csv'"):
        read_table(tmp_path / "latn.csv")


def test_columns_that_say_nothing_are_found() -> None:
    count = 30
    table = table_of(
        {
            "row": list(range(5, 5 + count)),
            "name": [f"n{i}" for i in range(count)],
            "one": [7] * count,
            "none": [None] * count,
            "half": [1] * (count - 1) + [None],
            "value": [i * i for i in range(count)],
        }
    )
    kinds = {column.name: column.kind for column in columns_of(table)}
    assert kinds == {"row": "identifier", "name": "identifier", "one": "constant", "none": "empty"} | {
        "half": "number",
        "value": "number",
    }
    assert {c.kind for c in columns_of(table, ["row", "name"])} >= {"category"}
    assert schema_for(table).used == ("half", "value")
    with pytest.raises(DataError, match="no column 'nane'"):
        columns_of(table, ["nane"])


@given(st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1)))
def test_parts_of_dates_are_the_calendars(moment: dt.datetime) -> None:
    moment = moment.replace(microsecond=0)
    cells = np.array([moment], dtype="datetime64[s]")
    assert PARTS["month"](cells) == moment.month - 1
    assert PARTS["day_of_month"](cells) == moment.day - 1
    assert PARTS["weekday"](cells) == moment.weekday()
    assert PARTS["hour"](cells) == moment.hour
    assert PARTS["day"](cells)[0] * 86_400 == pytest.approx((moment - dt.datetime(1970, 1, 1)).total_seconds())


def test_cells_of_another_kind_are_named() -> None:
    with pytest.raises(DataError, match="column 'n' holds numbers, but row 1 has 'x'"):
        numbers_in(np.array(["1", "x"], dtype=object), "n")
    for cell in (dt.date(2020, 1, 1), 10**400):
        with pytest.raises(DataError, match="column 'n' holds numbers, but row 1 has"):
            numbers_in(np.array([1.5, cell], dtype=object), "n")
    with pytest.raises(DataError, match=r"'n' contains infinity \(inf\) in row 0"):
        numbers_in(np.array([np.inf, 1.0]), "n")
    with pytest.raises(DataError, match="column 'd' holds dates"):
        dates_in(np.array(["soon"], dtype=object), "d")
    with pytest.raises(DataError, match="'d' holds dates, where numbers are wanted"):
        numbers_in(np.array(["2020-01-01"], dtype="datetime64[s]"), "d")


def test_a_whole_number_is_one_category_however_it_comes() -> None:
    cells = [np.array([1.0, 2.5]), np.array([1, 2.5], object), np.array(["1", "2.5"], object)]
    assert [texts_in(column).tolist() for column in cells] == [["1", "2.5"]] * 3


# ---------------------------------------------------------------- scaling


def test_quantiles_are_scikit_learns() -> None:
    known_BC = np.concatenate([random().normal(size=(300, 2)), np.round(random().normal(size=(300, 1)), 0)], axis=1)
    theirs = QuantileTransformer(n_quantiles=10, output_distribution="normal").fit(known_BC)
    ours = Scaling("quantile", {"quantiles": theirs.quantiles_})
    asked_BC = np.concatenate([known_BC, 3 * known_BC, [[0.1, np.nan, 50.0]]])
    np.testing.assert_allclose(ours.apply(asked_BC), theirs.transform(asked_BC), atol=2e-5)
    fitted = fit_scaling("quantile", known_BC)
    np.testing.assert_allclose(fitted.arrays["quantiles"], theirs.quantiles_, atol=1e-12)


@pytest.mark.parametrize("name", ["quantile", "standard"])
@pytest.mark.parametrize("unit", [1e-5, 1e-3, 1e5])
def test_scaling_does_not_depend_on_the_unit_of_a_column(name: str, unit: float) -> None:
    values_B = random().normal(size=400)
    number_BC = np.stack([values_B, np.exp(values_B), values_B.round(), values_B > 0.5], axis=1)
    scaled_BC, same_BC = (fit_scaling(name, x_BC).apply(x_BC) for x_BC in (number_BC, unit * number_BC))
    np.testing.assert_allclose(same_BC, scaled_BC, atol=1e-5)


def test_one_value_far_away_leaves_the_quantiles_of_the_others() -> None:
    number_BC = random().normal(size=(400, 1))
    far_BC = np.where(number_BC == number_BC.max(), 1e6, number_BC)
    scaled_BC, rest_BC = (fit_scaling("quantile", x_BC).apply(x_BC)[far_BC < 1e6] for x_BC in (number_BC, far_BC))
    assert np.corrcoef(scaled_BC, rest_BC)[0, 1] > 0.99


def test_a_value_that_repeats_has_the_middle_of_its_ranks() -> None:
    yes_BC = (np.arange(30_000)[:, None] % 10 < 3).astype(float)
    scaled_B = fit_scaling("quantile", yes_BC).apply(yes_BC)[:, 0]
    middles = [NormalDist().inv_cdf(rank) for rank in (0.35, 0.85)]
    np.testing.assert_allclose([scaled_B[yes_BC[:, 0] == value].mean() for value in (0, 1)], middles, atol=0.005)


@pytest.mark.parametrize("name", sorted(SCALINGS))
def test_every_scaling_keeps_order_and_missing_values(name: str) -> None:
    number_BC = random().normal(size=(200, 2)) * [1, 1000] + [0, 5]
    number_BC[3, 1] = np.nan
    scaled_BC = fit_scaling(name, number_BC).apply(number_BC)
    assert scaled_BC.dtype == np.float32
    assert np.isnan(scaled_BC).sum() == np.isnan(scaled_BC[3, 1]) == 1
    order = np.argsort(number_BC[:, 0])
    assert (np.diff(scaled_BC[order, 0]) >= 0).all()


# ---------------------------------------------------------------- schema


def test_a_schema_encodes_by_name_whatever_the_order() -> None:
    table = table_of(FRAME)
    schema = schema_for(table)
    turned = Table(dict(reversed(table.columns.items())) | {"more": np.zeros(4)}, table.categorical)
    for ours, theirs in zip(schema.encode(table), schema.encode(turned), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(DataError, match=r"lacks 2 of the columns that the model knows: \['size', 'open'\]"):
        schema.encode(table.without("size", "open"))


def test_missing_and_unseen_categories_have_their_codes() -> None:
    schema = schema_for(table_of({"a": ["x", None, "y"], "b": ["u", "v", "u"]}))
    assert [feature.size for feature in schema.categories] == [3, 2]
    asked = table_of({"a": ["y", None, "z"], "b": [None, "v", "w"]})
    assert schema.encode(asked).code_BC.tolist() == [[1, 2], [2, 1], [3, 2]]
    strict = schema_for(table_of({"a": ["x", "y"]}), unseen=False)
    with pytest.raises(DataError, match="column 'a' has 'z' in row 1, a category that training never showed"):
        strict.encode(table_of({"a": ["x", "z"]}))


def test_numbers_that_never_missed_are_taken_as_the_median() -> None:
    schema = schema_for(table_of({"a": [1.0, 2.0, 9.0], "b": [1.0, None, 3.0]}), scaling="none")
    asked = table_of({"a": [None, 4.0], "b": [None, 4.0]})
    with pytest.warns(UserWarning, match="'a' misses 1 values but missed none in training"):
        number_BC = schema.encode(asked).number_BC
    np.testing.assert_array_equal(number_BC, [[2.0, np.nan], [4.0, 4.0]])


@pytest.mark.parametrize("scaling", sorted(SCALINGS))
def test_a_schema_survives_json_and_arrays(scaling: str) -> None:
    schema = schema_for(table_of(FRAME), scaling=scaling)
    again = schema_of(json.loads(json.dumps(schema.words())), schema.arrays())
    for ours, theirs in zip(schema.encode(table_of(FRAME)), again.encode(table_of(FRAME)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert (again.columns, again.features, again.unseen) == (schema.columns, schema.features, schema.unseen)


def test_a_broken_schema_is_refused() -> None:
    schema = schema_for(table_of(FRAME))
    with pytest.raises(CheckpointError, match="schema cannot be used"):
        schema_of({**schema.words(), "numbers": [{"nome": "x"}]}, schema.arrays())
    with pytest.raises(CheckpointError, match="does not know"):
        schema_of({**schema.words(), "scaling": "log"}, schema.arrays())


# ---------------------------------------------------------------- bins and targets


def test_bins_by_trees_are_where_the_target_turns() -> None:
    x = random().uniform(-1, 1, 2000)
    y = (x > 0.3).astype(float) + (x > 0.8)
    (edges,) = tree_edges(x[:, None].astype(np.float32), y, 3, False)
    np.testing.assert_allclose(edges, [x.min(), 0.3, 0.8, x.max()], atol=0.01)
    alone = DecisionTreeRegressor(max_leaf_nodes=3).fit(x[:, None], y)
    cuts = np.sort(alone.tree_.threshold[alone.tree_.children_left >= 0])
    np.testing.assert_allclose(edges[1:-1], cuts, rtol=1e-6)


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=40), st.integers(1, 8))
def test_edges_always_rise_around_all_values(values: list[float], bins: int) -> None:
    number_BC = np.array(values, dtype=np.float32)[:, None]
    for find in (quantile_edges, tree_edges):
        (edges,) = find(number_BC, np.arange(len(values)), bins, False)
        assert 2 <= len(edges) <= max(2, bins) + 1
        assert (np.diff(edges) > 0).all()
        assert edges[0] <= number_BC.min()
        assert edges[-1] >= number_BC.max()


def test_targets_survive_json() -> None:
    for labels in (["a", "b"], [1, 2, 5], [False, True], [0.5, 1.5]):
        classes = Classes(np.array(labels))
        again = target_of(json.loads(json.dumps(classes.words())))
        assert isinstance(again, Classes)
        assert again.labels.dtype == classes.labels.dtype
        np.testing.assert_array_equal(again.labels[again.encode(np.array(labels[::-1]))], labels[::-1])
    target = random().normal(3, 5, size=(50, 2))
    values = Values.of(target)
    np.testing.assert_allclose(values.encode(target).std(0), 1, rtol=1e-5)
    again = target_of(json.loads(json.dumps(values.words())))
    assert isinstance(again, Values)
    np.testing.assert_allclose(again.decode(values.encode(target)), target, rtol=1e-4, atol=1e-4)
    with pytest.raises(CheckpointError, match="target cannot be used"):
        target_of({"kind": "classes"})
    with pytest.raises(DataError, match="row 1 has the label 'c', which is none of"):
        Classes(np.array(["a", "b"])).encode(np.array(["a", "c"]))


# ---------------------------------------------------------------- copies


def test_copies_keep_rows_cells_and_index(tmp_path: Path) -> None:
    source, target = tmp_path / "t.csv", tmp_path / "o.csv"
    source.write_text("a,b\n01,?\n2,\n3,x\n")
    with target.open("w", newline="") as file:
        assert copy_text(source, file, lambda part: {"n": np.arange(part.rows)}, rows=2) == 3
    assert target.read_text() == "a,b,n\n01,?,0\n2,,1\n3,x,0\n"
    frame = FRAME.drop(columns="mixed").set_index(pd.Index(list("wxyz"), name="key"))
    frame.to_parquet(tmp_path / "t.parquet")
    assert copy_parquet(tmp_path / "t.parquet", tmp_path / "o.parquet", lambda part: {"n": np.arange(part.rows)}) == 4
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "o.parquet").drop(columns="n"), pd.read_parquet(tmp_path / "t.parquet")
    )
    with (tmp_path / "p.csv").open("w") as file:
        copy_text(tmp_path / "t.parquet", file, lambda part: {"n": np.arange(part.rows)})
    assert (tmp_path / "p.csv").read_text().splitlines()[1].startswith("1.5,1,red,True,2020-01-31")


def test_an_added_column_does_not_take_the_name_of_another(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,n\n1,2\n")
    with (tmp_path / "o.csv").open("w") as file, pytest.raises(DataError, match="more than one column named 'n'"):
        copy_text(tmp_path / "t.csv", file, lambda part: {"n": np.arange(part.rows)})
    pd.DataFrame({"a": [1], "n": [2]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match="more than one column named 'n'"):
        copy_parquet(tmp_path / "t.parquet", tmp_path / "o.parquet", lambda part: {"n": np.arange(part.rows)})
    assert not (tmp_path / "o.parquet").exists()


def test_tensors_come_of_encoded_rows() -> None:
    encoded = schema_for(table_of(FRAME)).encode(table_of(FRAME))
    assert torch.from_numpy(encoded.number_BC).dtype == torch.float32
    assert torch.from_numpy(encoded.code_BC).dtype == torch.int64
