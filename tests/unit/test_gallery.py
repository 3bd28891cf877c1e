"""`make gallery` from a model at random: every figure that there is stands in it, and the page shows each of them."""

import importlib
import inspect
import pkgutil
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType, ModuleType

import pytest
import torch

import clearhead.draw
from clearhead.data.phrasebook.corpus import EXAMPLES
from clearhead.draw.canvas import Canvas
from clearhead.draw.figure import Figure
from clearhead.tasks.directory import ModelParts
from clearhead.tasks.pair_data import PairParts
from clearhead.tasks.translator import Translator
from tests.conftest import ROOT
from tests.unit.scripts import example
from tests.unit.tiny_tasks import PAIR, tiny_recipe

NO_FIGURES = {"page_file"}  # of the explorer
LARGEST = 2_000_000  # bytes of what is committed


@pytest.fixture(scope="module")
def gallery() -> ModuleType:
    return example("gallery")


def parts() -> ModelParts:
    """A translator that knows the words of the gallery's sentences, and nothing else."""
    pairs = [(pair.source, pair.target) for pair in EXAMPLES]
    texts = [("Je suis étudiant. Je suis fatigué. Il est grand.", " ".join(["Susan gave roses to Mary"] * 2))]
    model = {**PAIR, "encoder_layers": 2, "decoder_layers": 2, "width": 16, "hidden": 24, "heads": 4}
    recipe = tiny_recipe("translation", model, tokenizer={"kind": "word", "vocabulary": 200})
    prepared = Translator.prepare(recipe, PairParts(pairs + texts))
    torch.manual_seed(0)
    settings = replace(prepared.settings, generation={"longest_ratio": 1.0, "longest_extra": 2})
    return ModelParts(prepared.model.eval(), prepared.tokenizer, settings)


def figures() -> dict[CodeType, str]:
    """Every function of draw/ that returns a figure."""
    found = {}
    for module in pkgutil.iter_modules(clearhead.draw.__path__):
        if module.name in NO_FIGURES or module.ispkg:
            continue
        names = importlib.import_module(f"clearhead.draw.{module.name}")
        for name, function in inspect.getmembers(names, inspect.isfunction):
            returns = inspect.signature(function).return_annotation
            if function.__module__ == names.__name__ and returns in (Figure, "Figure") and not name.startswith("_"):
                found[function.__code__] = f"{module.name}.{name}"
    return found


def test_every_figure_is_in_it(gallery: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, drawn = figures(), set()
    finish = Canvas.finish

    def finished(canvas: Canvas, height: float, says: str) -> Figure:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code not in wanted:
            frame = frame.f_back
        if frame is not None:
            drawn.add(wanted[frame.f_code])
        return finish(canvas, height, says)

    monkeypatch.setattr(Canvas, "finish", finished)
    page = gallery.make(parts(), tmp_path)
    assert len(wanted) > 25
    assert set(wanted.values()) == drawn
    shown = re.findall(r"!\[(.+)\]\((.+)\)", page.read_text(encoding="utf-8"))
    assert {tmp_path / path for _, path in shown} == set((tmp_path / "gallery").iterdir())
    for says, path in shown:
        assert "<text" in (tmp_path / path).read_text(encoding="utf-8"), path
        assert f"\n{says}\n" in page.read_text(encoding="utf-8")


def test_what_is_committed_is_small_and_whole(gallery: ModuleType) -> None:
    page = ROOT / "docs" / "gallery.md"
    shown = re.findall(r"\]\((gallery/.+)\)", page.read_text(encoding="utf-8"))
    names = [f"gallery/{entry.name}.svg" for entries in gallery.ENTRIES.values() for entry in entries]
    assert shown == names
    assert {f"gallery/{path.name}" for path in (page.parent / "gallery").iterdir()} == set(names)
    assert sum(path.stat().st_size for path in (page.parent / "gallery").iterdir()) < LARGEST


def test_a_model_that_is_not_there_is_refused(gallery: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="no model directory"):
        gallery.main([str(tmp_path / "none"), "--out", str(tmp_path)])
