"""Every recipe loads, explains itself key by key, and trains on files of the form that it names."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from clearhead.data.phrasebook.corpus import sentences
from clearhead.tasks.recipe import load_recipe
from clearhead.tasks.registry import load, run_recipe
from tests.conftest import ROOT

RECIPES = sorted((ROOT / "recipes").glob("*.yaml"))
PAIRS = [(pair.source, pair.target) for pair in sentences(40, seed=3)]

# Small enough for a test, on top of what the recipe itself says.
SMALL = ["train.validate_every=2", "train.checkpoint_every=0", "train.progress=quiet", "train.warmup=1"]
SMALL += ["train.tokens=256", "train.rows=2", "model.width=16", "model.heads=2", "model.hidden=16", "train.ema=0.0"]


def two_columns(path: Path) -> None:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS), encoding="utf-8")


def one_side(path: Path) -> None:
    side = 0 if path.suffix == ".de" else 1
    path.write_text("".join(f"{pair[side]}\n" for pair in PAIRS), encoding="utf-8")


def labelled(path: Path) -> None:
    """Labels before texts, in an encoding that only the recipe can know."""
    encoding = "latin-1" if path.name.startswith("TREC") else "utf-8"
    lines = (f"{len(source) % 2} {source}\n" for source, _ in PAIRS)
    path.write_bytes("".join(lines).replace("œ", "oe").encode(encoding))


def running_text(path: Path) -> None:
    path.write_text("".join(f"{target}\n" for _, target in PAIRS * 3), encoding="utf-8")


FORMS = {
    "tatoeba-fra-eng": two_columns,
    "multi30k-de-en": one_side,
    "sst2": labelled,
    "trec": labelled,
    "tinyshakespeare-cpu": running_text,
    "tinyshakespeare-large": running_text,
    "wikitext-2-masked": running_text,
}


def data_files(values: dict[str, Any]) -> Iterator[Path]:
    """The files that a recipe's data section names."""
    for part in ("train", "valid", "test"):
        named = values["data"].get(part) or []
        yield from (Path(name) for name in ([named] if isinstance(named, str) else named))


def uncommented(text: str) -> list[str]:
    """The lines with a key and a value, but no comment, of which the line before does not say that it covers them."""
    lines = text.splitlines()
    return [
        line
        for before, line in zip(["", *lines], lines, strict=False)
        if line and not line.startswith("#") and not line.endswith(":") and "#" not in line and "below" not in before
    ]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_it_loads_as_it_stands(path: Path) -> None:
    recipe = load_recipe(path)
    assert recipe.to_yaml()


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_key_is_explained(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert f"clearhead train {path.stem} " in text
    assert uncommented(text) == []


def test_a_key_without_a_comment_would_be_found() -> None:
    assert uncommented("a: 1\nb: 2  # two\nc:\n  d: 3\n") == ["a: 1", "  d: 3"]
    assert uncommented("a: 1  # with the line below\nb: 2\nc: 3\n") == ["c: 3"]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_it_trains(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    for file in data_files(values):
        FORMS[path.stem](file)
    sets = [*SMALL, "train.epochs=null", "train.steps=2"]
    if values["data"].get("builtin"):
        sets += ["data.sentences=200", "data.held_out=20"]
    outcome = run_recipe(load_recipe(path, sets), out=tmp_path / "run")
    assert outcome.report.step == 2
    assert values["train"]["metric"] in outcome.report.history[2]
    assert bool(outcome.scores) == bool({"test", "builtin"} & values["data"].keys())
    assert values["task"] == load(outcome.folder).TASK


def test_the_phrasebook_recipe_is_about_unseen_sentences() -> None:
    recipe = load_recipe(ROOT / "recipes" / "phrasebook.yaml")
    assert recipe.data.builtin == "phrasebook"
    assert recipe.data.held_out >= 500


def test_every_form_of_data_has_a_recipe() -> None:
    assert {path.stem for path in RECIPES} == {*FORMS, "phrasebook"}
