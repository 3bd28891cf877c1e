"""`make demo` at a size for tests: it says what it measured, and fails where that is not enough."""

import re
from pathlib import Path
from types import ModuleType

import pytest

from clearhead.tasks.loading import load_model
from tests.unit.scripts import example

SMALL = ["train.steps=2", "data.sentences=300", "data.held_out=60", "train.progress=quiet", "model.width=16"]
SMALL += ["model.hidden=16", "train.tokens=256", "train.warmup=1", "train.validate_every=0"]


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    return example("demo")


def test_an_untrained_model_fails(
    demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "CHOSEN_ON", 20)
    assert demo.main(SMALL) == 1
    shown = capsys.readouterr().out
    assert float(re.search(r"BLEU ([\d.]+), .* \(nrefs:1\|", shown)[1]) < demo.LEAST_BLEU
    assert float(re.search(r"alignment error rate ([\d.]+)", shown)[1]) > demo.MOST_ERROR
    assert len(re.findall(r"^    → ", shown, re.MULTILINE)) == 5
    assert "je suis étudiant" in shown
    assert "clearhead translate" in shown
    assert load_model(tmp_path / "runs" / "demo").settings.task == "translation"


def test_a_good_model_passes(
    demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing can fall short of these bounds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "CHOSEN_ON", 20)
    monkeypatch.setattr(demo, "LEAST_BLEU", 0.0)
    monkeypatch.setattr(demo, "MOST_ERROR", 1.0)
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    assert demo.main(SMALL) == 0
    assert not any((tmp_path / "runs" / "demo").iterdir())
    assert (tmp_path / "runs" / "demo-2" / "last").is_dir()
    assert "runs/demo-2" in capsys.readouterr().out


def test_a_sentence_is_telling_when_words_change_places(demo: ModuleType) -> None:
    def pair(*links: tuple[int, int]) -> demo.Pair:
        return demo.Pair("", "", frozenset(links))

    seven = ["un"] * 7
    assert demo._is_telling(pair((0, 1), (1, 0)), seven, seven)
    assert not demo._is_telling(pair((0, 0), (1, 1)), seven, seven)
    assert not demo._is_telling(pair((0, 1), (1, 0)), ["anticonstitutionnellement"] * 7, seven)
