"""`clearhead fit` and `clearhead predict`."""

import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from clearhead.cli.fit import _importance
from clearhead.data.table_columns import columns_of
from clearhead.data.table_schema import fit_schema
from clearhead.data.tables import table_of
from clearhead.tasks.table_baseline import yardsticks
from clearhead.tasks.table_importance import IMPORTANCES
from clearhead.tasks.table_report import FileToFit, fit_file
from tests.unit.command_line import Done, refusal, run
from tests.unit.small_tables import classifier, frame, regressor
from tests.unit.tiny_tasks import random_translator

SMALL = ("--layers", "1", "--width", "8", "--epochs", "2")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    X, y = frame(120)
    X.assign(row=range(120), answer=y).to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


def fit(capsys: pytest.CaptureFixture[str], table: Path, *more: str | Path) -> Done:
    return run(capsys, "fit", table, *SMALL, *more)


def test_a_fit_says_what_it_found(capsys: pytest.CaptureFixture[str], table: Path) -> None:
    done = fit(capsys, table, "--target", "answer")
    assert done.code == 0, done
    lines = done.out.splitlines()
    assert [line.split()[:2] for line in lines[1:5]] == [
        ["a", "number"],
        ["b", "number"],
        ["c", "category"],
        ["d", "category"],
    ]
    assert "identifier: left out" in lines[5]
    assert "table classification of answer: 96 to learn from, 24 to test; 2 epochs" in done.out
    assert [line.split("  ")[0] for line in lines if line.startswith(("clearhead", "majority", "gradient"))] == [
        "clearhead",
        "majority",
        "gradient boosting",
    ]
    assert lines[-5].split() == ["column", "accuracy", "lost", "when", "shuffled", "attention"]


def test_bars_are_as_long_as_what_is_lost() -> None:
    found = {"a": {"permutation": 0.5, "attention": 0.2}, "b": {"permutation": 0.25, "attention": 0.8}}
    _, first, second = _importance({**found}, "accuracy").splitlines()
    assert first.count("█") == 2 * second.count("█") == 30
    assert "+0.2500" in second
    assert "0.800" in second
    assert "█" not in _importance({"a": {"permutation": -0.1}}, "rmse")


def test_importance_is_measured_all_over_a_sorted_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearhead.tasks.table_report.SHUFFLED", 10)
    X, y = frame(120)
    X.assign(answer=y).sort_values("answer").to_csv(tmp_path / "t.csv", index=False)
    given: list[Any] = []

    def note(estimator: Any, table: Any, target: Any) -> Any:
        given.append(target)
        return np.zeros(4)

    monkeypatch.setitem(IMPORTANCES, "permutation", note)
    fit_file(FileToFit(tmp_path / "t.csv", "answer"), {"layers": 1, "width": 8, "heads": 2, "epochs": 1})
    assert len(given[0]) == 10
    assert set(given[0]) == {"yes", "no"}


@pytest.mark.parametrize("kind", ["ft", "tab"])
def test_a_fit_in_json_and_a_regression(capsys: pytest.CaptureFixture[str], table: Path, kind: str) -> None:
    done = fit(capsys, table, "--target", "b", "--kind", kind, "--ensemble", "2", "--json", "--category", "answer")
    said = json.loads(done.out)
    assert said["task"] == "table_regression"
    assert set(said["scores"]) == {"clearhead", "mean", "gradient boosting"}
    assert set(said["scores"]["clearhead"]) == {"rmse", "r2"}
    assert set(said["importance"]) == {"a", "c", "d", "answer"}
    for found in said["importance"].values():
        assert set(found) == ({"permutation", "attention"} if kind == "ft" else {"permutation"})
    assert {column["name"]: column["kind"] for column in said["columns"]}["row"] == "identifier"


def test_info_says_what_is_predicted_from_what(capsys: pytest.CaptureFixture[str], table: Path, tmp_path: Path) -> None:
    assert fit(capsys, table, "--target", "answer", "--ensemble", "2", "--out", tmp_path / "m").code == 0
    said = json.loads(run(capsys, "info", tmp_path / "m", "--json").out)
    assert (said["task"], said["predicts"], said["members"]) == ("table_classification", "answer", 2)
    assert said["columns"] == ["a", "b", "c", "d"]
    assert said["parameters"] == sum(said["parts"].values())
    assert "columns" in run(capsys, "info", tmp_path / "m").out


def test_predictions_follow_the_rows(capsys: pytest.CaptureFixture[str], table: Path, tmp_path: Path) -> None:
    assert fit(capsys, table, "--target", "answer", "--out", tmp_path / "m").code == 0
    done = run(capsys, "predict", table, "-m", tmp_path / "m")
    assert done.code == 0, done
    asked = table.read_text().splitlines()
    given = done.out.splitlines()
    assert given[0] == asked[0] + ",predicted_answer,probability_no,probability_yes"
    assert [line.rsplit(",", 3)[0] for line in given] == asked
    data = pd.read_csv(table).set_index("row").drop(columns="answer").iloc[::-1]
    data.assign(row=data.index).to_parquet(tmp_path / "t.parquet")
    assert run(capsys, "predict", tmp_path / "t.parquet", "-m", tmp_path / "m", "-o", tmp_path / "o.parquet").code == 0
    out = pd.read_parquet(tmp_path / "o.parquet")
    assert out.index.tolist() == data.index.tolist()
    whole = pd.read_csv(io.StringIO(done.out)).set_index("row")
    pd.testing.assert_series_equal(
        out["probability_yes"], whole["probability_yes"].loc[out.index], check_names=False, check_index_type=False
    )


def test_refusals(capsys: pytest.CaptureFixture[str], table: Path, tmp_path: Path) -> None:
    assert "no column 'anser'" in refusal(fit(capsys, table, "--target", "anser"))
    assert "there is no file" in refusal(fit(capsys, tmp_path / "u.csv", "--target", "a"))
    assert "exists already" in refusal(fit(capsys, table, "--target", "a", "--out", tmp_path))
    holes = pd.read_csv(table)
    holes.loc[[4, 6], "answer"] = None
    holes.to_csv(tmp_path / "holes.csv", index=False)
    assert "misses 2 values, first in row 4" in refusal(fit(capsys, tmp_path / "holes.csv", "--target", "answer"))
    assert fit(capsys, table, "--target", "answer", "--out", tmp_path / "m").code == 0
    pd.read_csv(table).drop(columns=["a", "c"]).to_csv(tmp_path / "less.csv", index=False)
    done = run(capsys, "predict", tmp_path / "less.csv", "-m", tmp_path / "m", "-o", tmp_path / "o.csv")
    assert "lacks 2 of the columns that the model knows: 'a', 'c'" in refusal(done)
    assert not (tmp_path / "o.csv").exists()
    done = run(capsys, "predict", table, "-m", tmp_path / "m", "-o", tmp_path / "o.parquet")
    assert "name it 'o.csv'" in refusal(done)
    assert "no model directory" in refusal(run(capsys, "predict", table, "-m", tmp_path / "nowhere"))


def test_a_table_model_where_texts_are_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for made, folder in ((classifier(epochs=1), "classes"), (regressor(epochs=1), "values")):
        data, labels = frame(40)
        made.fit(data, labels if folder == "classes" else data["a"]).save_pretrained(folder)
        calls = [[verb, "some words", "-m", folder] for verb in ("look", "translate", "generate", "classify")]
        calls += [["prune", "-m", folder, "--on", "t.txt", "-o", "pruned"], ["evaluate", "t.txt", "-m", folder]]
        calls += [["convert", folder, "theirs"], ["average", folder, folder, "-o", "mean"]]
        for call in calls:
            said = refusal(run(capsys, *call))
            assert said == f"{folder} holds a model for tables: use it with `clearhead predict TABLE -m {folder}`", call


def test_a_model_for_texts_where_tables_are_read(
    capsys: pytest.CaptureFixture[str], table: Path, tmp_path: Path
) -> None:
    random_translator().save_pretrained(tmp_path / "ours")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "config.json").write_text('{"model_type": "marian"}')
    (tmp_path / "theirs.gguf").touch()
    theirs = "another project's model"
    for name, held in (("ours", "a model for translation"), ("theirs", theirs), ("theirs.gguf", theirs)):
        said = refusal(run(capsys, "predict", table, "-m", tmp_path / name))
        assert said == f"{tmp_path / name} holds {held}, not one for tables: `clearhead fit` makes those"
    said = refusal(run(capsys, "predict", table, "-m", "clearhead/fr-en"))
    assert said.endswith("fr-en holds a model for translation, not one for tables: `clearhead fit` makes those")


def test_files_that_are_not_whole(capsys: pytest.CaptureFixture[str], table: Path, tmp_path: Path) -> None:
    assert fit(capsys, table, "--target", "answer", "--out", tmp_path / "m").code == 0
    packed = gzip.compress(table.read_bytes())
    spoiled = {"cut": packed[:-40], "text": table.read_bytes(), "torn": packed[:99] + bytes(50) + packed[149:]}
    for name, content in spoiled.items():
        (tmp_path / f"{name}.csv.gz").write_bytes(content)
        for call in (["fit", "--target", "answer"], ["predict", "-m", tmp_path / "m", "-o", tmp_path / "o.csv"]):
            said = refusal(run(capsys, call[0], tmp_path / f"{name}.csv.gz", *call[1:]))
            assert f"{name}.csv.gz: not a whole gzip file" in said, said
    said = refusal(run(capsys, "predict", tmp_path, "-m", tmp_path / "m", "-o", tmp_path / "o.csv"))
    assert said == f"{tmp_path}: cannot be read: Is a directory"
    whole = pa.BufferOutputStream()
    pd.read_csv(table).to_parquet(whole, compression="gzip")
    content = whole.getvalue().to_pybytes()
    (tmp_path / "torn.parquet").write_bytes(content[:60] + bytes(200) + content[260:])
    said = refusal(
        run(capsys, "predict", tmp_path / "torn.parquet", "-m", tmp_path / "m", "-o", tmp_path / "o.parquet")
    )
    assert "torn.parquet cannot be read as Parquet" in said
    assert not [*tmp_path.glob("*o.*")]


def test_what_is_named_gz_is_packed(capsys: pytest.CaptureFixture[str], table: Path, tmp_path: Path) -> None:
    assert fit(capsys, table, "--target", "answer", "--out", tmp_path / "m").code == 0
    for name in ("o.csv", "o.csv.gz"):
        assert run(capsys, "predict", table, "-m", tmp_path / "m", "-o", tmp_path / name).code == 0
    assert gzip.decompress((tmp_path / "o.csv.gz").read_bytes()) == (tmp_path / "o.csv").read_bytes()


def test_a_folder_that_cannot_be_made_is_refused_before_training(
    capsys: pytest.CaptureFixture[str], table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clearhead.tasks.table_report.fit_file", lambda *_: pytest.fail("it was trained"))
    said = refusal(fit(capsys, table, "--target", "answer", "--out", table / "below" / "m"))
    assert "cannot be made where it is wanted" in said


def test_a_seed_that_no_generator_takes_is_wrong_usage(capsys: pytest.CaptureFixture[str], table: Path) -> None:
    assert fit(capsys, table, "--target", "answer", "--seed", str(2**32)).code == 2


def test_a_different_label_in_each_row(capsys: pytest.CaptureFixture[str], table: Path) -> None:
    said = refusal(fit(capsys, table, "--target", "a", "--aim", "classification"))
    assert said == "120 rows are too few to keep some of them for a test, with 120 classes in the target 'a'"


def test_boosting_takes_a_class_of_one_row_however_large_the_table() -> None:
    table = table_of({"a": np.random.default_rng(0).integers(0, 4, 10_001)})
    target = np.array(["rare", *["often", "seldom"] * 5000])
    schema = fit_schema(table, columns_of(table), scaling="standard", unseen=True)
    _, boosted = yardsticks(schema, (table, target), table.take(slice(0, 5)), classes=True)
    assert boosted.probability_BC is not None
    assert boosted.probability_BC.shape == (5, 3)
