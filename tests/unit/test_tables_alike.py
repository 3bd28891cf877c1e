"""A column is read in the same way wherever it comes from."""

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.table_columns import columns_of, dates_in, numbers_in, texts_in
from clearhead.data.table_files import any_table
from tests.unit.small_tables import classifier


def objects(*cells: Any) -> np.ndarray[Any, Any]:
    column = np.empty(len(cells), dtype=object)
    column[:] = cells
    return column


@given(st.integers(-(10**15), 10**15))
def test_a_whole_number_is_one_category(whole: int) -> None:
    texts = texts_in(objects(whole, float(whole), np.float64(whole), str(whole), f"{whole}.0"))
    assert set(texts) == set(texts_in(np.array([float(whole)]))) == {str(whole)}


def test_text_that_only_resembles_a_whole_number_stays_as_it_is() -> None:
    texts = ["01", "01.0", "1.10", "1.1", "v1.0", "1.0.0", ".0", "1e3", "-0.0"]
    assert texts_in(objects(*texts)).tolist() == texts


def test_categories_with_gaps_are_known_from_a_file_and_from_a_frame(tmp_path: Path) -> None:
    zones = pd.DataFrame({"zone": [1, 2, None, 3] * 10, "size": np.arange(40.0) ** 2})
    zones.to_csv(tmp_path / "zones.csv", index=False)
    assert "1.0" in (tmp_path / "zones.csv").read_text()
    model = classifier(epochs=1, categories=["zone"], unseen=0.0).fit(tmp_path / "zones.csv", np.arange(40) % 2)
    for same in (zones, zones.astype({"zone": "Int64"}), tmp_path / "zones.csv"):
        np.testing.assert_array_equal(model.predict_proba(same), model.predict_proba(zones))


def test_truth_values_are_alike_in_files_and_frames(tmp_path: Path) -> None:
    houses = pl.DataFrame({"sold": [True, False, None, True] * 10, "size": np.arange(40.0) ** 2})
    houses.write_csv(tmp_path / "polars.csv")
    houses.to_pandas().to_csv(tmp_path / "pandas.csv", index=False)
    assert "true" in (tmp_path / "polars.csv").read_text()
    model = classifier(epochs=1, unseen=0.0).fit(houses, np.arange(40) % 2)
    for same in (houses.to_pandas(), tmp_path / "polars.csv", tmp_path / "pandas.csv"):
        assert [column.kind for column in columns_of(any_table(same))] == ["boolean", "number"]
        np.testing.assert_array_equal(model.predict_proba(same), model.predict_proba(houses))


@given(st.datetimes(dt.datetime(1950, 1, 1), dt.datetime(2100, 1, 1)), st.integers(-14 * 60, 14 * 60))
def test_a_moment_with_a_time_zone_is_that_moment(moment: dt.datetime, minutes: int) -> None:
    moment = moment.replace(microsecond=0, tzinfo=dt.timezone(dt.timedelta(minutes=minutes)))
    read = dates_in(objects(moment, moment.isoformat(), pd.Timestamp(moment)), "at")
    assert (read.astype("int64") == int(moment.timestamp())).all()


def test_dates_with_a_time_zone_are_alike_in_files_and_frames(tmp_path: Path) -> None:
    paris = pd.DataFrame({"at": pd.date_range("2024-07-01", periods=3, freq="D", tz="Europe/Paris")})
    paris.to_csv(tmp_path / "t.csv", index=False)
    paris.to_parquet(tmp_path / "t.parquet")
    for source in (paris, pl.from_pandas(paris), tmp_path / "t.csv", tmp_path / "t.parquet"):
        table = any_table(source)
        assert columns_of(table)[0].kind == "date"
        assert dates_in(table["at"], "at")[0] == np.datetime64("2024-06-30T22:00")


def test_durations_are_seconds(tmp_path: Path) -> None:
    spans = [dt.timedelta(minutes=2 * i * i, milliseconds=500) for i in range(30)]
    frame = pd.DataFrame({"took": pd.to_timedelta([*spans, None])})
    frame.to_parquet(tmp_path / "t.parquet")
    plain = {"took": [*spans, None]}
    for source in (frame, pl.from_pandas(frame), pl.DataFrame(plain), plain, tmp_path / "t.parquet", frame.to_numpy()):
        table = any_table(source)
        (name,) = table.columns
        assert [(column.kind, column.missing) for column in columns_of(table)] == [("number", 1)]
        np.testing.assert_allclose(numbers_in(table[name], name), [*(s.total_seconds() for s in spans), np.nan])
