"""The scripts of `examples/` that people start from: short, and run as they stand, with less time to learn."""

from pathlib import Path

import pytest

from clearhead.tasks.exchange import save_foreign
from clearhead.tasks.masked_model import MaskedModel
from clearhead.tasks.recipe import parse_recipe
from clearhead.tasks.registry import load
from tests.conftest import ROOT
from tests.unit.scripts import example
from tests.unit.tiny_tasks import random_translator

LINES = 60
SCRIPTS = sorted(path for path in (ROOT / "examples").glob("*.py") if path.stem not in ("demo", "gallery"))


def test_each_is_tried_here_and_short() -> None:
    tried = {name.removeprefix("test_").removesuffix("_learns") for name in globals() if name.startswith("test_")}
    for path in SCRIPTS:
        assert path.stem in tried, path.name
        assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES, path.name


def test_own_translator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = example("own_translator").main(str(tmp_path / "m"), count=300, steps=2)
    assert f"je suis étudiant → {said} " in capsys.readouterr().out
    assert load(tmp_path / "m").translate("je suis étudiant", beams=4) == said
    (tmp_path / "pairs.tsv").write_text("un\tone\ndeux\ttwo\n" * 40)
    mine = example("own_translator")
    assert isinstance(mine.main(str(tmp_path / "mine"), str(tmp_path / "pairs.tsv"), steps=2), str)


def test_own_gpt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = example("own_gpt").main(str(tmp_path / "m"), count=300, steps=2)
    assert "in order" in capsys.readouterr().out
    assert load(tmp_path / "m").generate("The cat", longest=30) == said


def test_table_learns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert example("table").main(epochs=8) > 0.9
    shown = capsys.readouterr().out
    assert "gradient boosting  " in shown
    people = "\n".join(f"{'ab'[place % 2]},{place % 7},{'yn'[place % 2]}" for place in range(80))
    (tmp_path / "people.csv").write_text(f"city,age,buys\n{people}\n")
    assert example("table").main(str(tmp_path / "people.csv"), "buys", epochs=2) >= 0
    assert "gradient boosting" not in capsys.readouterr().out  # which cannot read text


def test_sentiment_learns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = example("sentiment")
    found = module.main(str(tmp_path / "m"), steps=60)
    assert found["good"] > 0.5
    accuracy = float(capsys.readouterr().out.split("accuracy on others: ")[1].split()[0])
    assert accuracy > 0.9
    assert module.moods(50, 1) != module.moods(50, 2)


def test_loaded_bert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["the capital of france is paris .", "a man is eating food ."] * 8
    recipe = parse_recipe(
        {
            "task": MaskedModel.TASK,
            "tokenizer": {"vocabulary": 300},
            "model": {"preset": "bert-base", "width": 32, "heads": 4, "layers": 2, "hidden": 64},
            "train": {"steps": 2},
        }
    )
    ours = MaskedModel.fit(texts, recipe=recipe)
    folder = save_foreign(tmp_path / "theirs", ours.parts)
    assert len(example("loaded_bert").main(str(folder))) == 5
    assert "head 0 of the first layer looks from <mask> to " in capsys.readouterr().out


def test_figure(tmp_path: Path) -> None:
    random_translator().save_pretrained(tmp_path / "m")
    drawn = example("figure").main(str(tmp_path / "figures"), str(tmp_path / "m"), "a b c")
    assert [path.name for path in drawn] == ["change.svg", "diagram-dark.svg", "head.pdf", "lens.pdf"]
    assert "without encoder.0.attention:0" in drawn[0].read_text(encoding="utf-8")
    assert all(path.read_bytes().startswith(b"%PDF") for path in drawn[2:])
