"""`make results`: every name of docs/results.md is one that can be run, and what is run can be run."""

import json
import re
import shlex
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

from clearhead.cli.main import VERBS
from clearhead.tasks.recipe import load_recipe
from tests.conftest import ROOT
from tests.unit.scripts import benchmark


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return benchmark("results", monkeypatch)


def test_the_page_and_the_script_know_the_same_names(results: ModuleType) -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert set(re.findall(r"make results NAME=([\w-]+)", page)) == results.NAMES.keys()


def test_every_command_is_one(results: ModuleType) -> None:
    for of in results.NAMES.values():
        for program, first, *rest in map(shlex.split, of.commands):
            if program == "clearhead":
                assert first in VERBS
            else:
                source = (ROOT / first).read_text(encoding="utf-8")
                assert program == "python"
                assert all(
                    option in source or f"--{{{'name'}}}" in source for option in rest if option.startswith("--")
                )
            if first == "train":
                sets = [value.format(data="d", run="r") for option, value in pairwise(rest) if option == "--set"]
                assert load_recipe(ROOT / rest[0], sets).data.train or "phrasebook" in rest[0]


def test_what_was_measured_is_shown_and_kept(
    results: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "say.py").write_text('import json, sys; print(json.dumps({"bleu": 12.3456, "where": sys.argv[1]}))')
    command = f"python {tmp_path / 'say.py'} {{data}}/x --json"
    monkeypatch.setitem(results.NAMES, "one", results.Result("one thing", (command,), "13 by somebody"))
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    data = tmp_path / "a folder"
    monkeypatch.setattr(sys, "argv", ["results.py", "one", "--data", str(data)])
    results.main()
    shown = capsys.readouterr().out
    assert "| bleu 12.346 |" in shown
    assert "13 by somebody" in shown
    kept = json.loads((tmp_path / "results-one.json").read_text(encoding="utf-8"))
    assert kept["commands"][0]["figures"]["where"] == f"{data}/x"


def test_a_command_that_fails_ends_it(results: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(results.NAMES, "one", results.Result("one thing", ("python -c 'raise SystemExit(3)'",)))
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["results.py", "one"])
    with pytest.raises(SystemExit, match="it left with code 3"):
        results.main()
    assert [*tmp_path.iterdir()] == []
