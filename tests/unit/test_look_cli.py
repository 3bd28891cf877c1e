"""`clearhead look`: the terminal, figures, recordings, pages; and what it refuses."""

import builtins
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearhead.cli.shades import pointed, shaded, width_of_shades
from clearhead.draw.words import number
from clearhead.look.recording import Recording
from clearhead.tasks.directory import save_model
from clearhead.tasks.viewing import Off, Viewer
from tests.unit.command_line import refusal, run
from tests.unit.tiny_viewers import TEXT, tiny_viewer

ANSWER = "d e f"


@pytest.fixture(scope="module")
def viewer() -> Viewer:
    return tiny_viewer("encoder-decoder")


@pytest.fixture(scope="module")
def model(viewer: Viewer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "pair"
    save_model(folder, viewer.parts)
    return folder


def weights(viewer: Viewer, name: str, **options: Any) -> np.ndarray:
    view = viewer.view(TEXT, ANSWER, **options)
    return view.seen(f"{name}.weights")[f"{name}.weights"].tensor[0].double().numpy()


def texts(path: Path) -> set[str]:
    return {"".join(e.itertext()) for e in ET.parse(path).getroot().iterfind(".//{http://www.w3.org/2000/svg}text")}


def test_the_terminal_is_fullest_where_the_weight_is() -> None:
    w = np.array([[0.9, 0.05, 0.05], [0.0, 0.4, 0.6]])
    head, first, second = [line.plain for line in shaded(w, ["Le", "chat", "."], ["The", "cat"], {(0, 0)})]
    assert head.split() == ["Le", "chat", "."]
    assert first.rstrip() == "  The  ██•"
    assert second.rstrip() == "  cat      ▒▒▒▒  ▓"
    assert width_of_shades(["Le", "chat", "."], ["The", "cat"]) == len(first)
    assert [line.plain for line in pointed(w, ["Le", "chat", "."], ["The", "cat"])] == [
        "  The  →  Le 0.90  chat 0.05  . 0.05",
        "  cat  →  . 0.60  chat 0.40  Le 0.00",
    ]


def test_a_wide_sign_takes_two_places() -> None:
    head, line = shaded(np.array([[1.0, 0.0]]), ["日本", "a"], ["x"])
    assert head.plain == "     日本  a"
    assert line.plain.startswith("  x  ████")


def test_attention_in_the_terminal(
    viewer: Viewer, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("look", TEXT, "-m", model, "--answer", ANSWER, "--layer", "1", "--head", "2")
    monkeypatch.setenv("COLUMNS", "120")
    shades = run(capsys, *asked)
    assert shades.code == 0
    assert "decoder.1.cross, head 2" in shades.out
    assert any(shade in shades.out for shade in "░▒▓█")
    monkeypatch.setenv("COLUMNS", "20")
    named = run(capsys, *asked).out.splitlines()[1:]
    w_LM = weights(viewer, "decoder.1.cross")[2]
    assert len(named) == len(w_LM)
    for line, row_M in zip(named, w_LM, strict=True):
        assert f"{row_M.max():.2f}" in line


def test_a_figure_has_the_models_numbers(
    viewer: Viewer, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "head.svg"
    asked = ("look", TEXT, "-m", model, "--answer", ANSWER, "--layer", "decoder.0.cross", "--head", "1")
    done = run(capsys, *asked, "--save", file)
    assert (done.code, done.out.strip()) == (0, str(file))
    plain = {number(value) for value in weights(viewer, "decoder.0.cross")[1].flatten()}
    assert plain <= texts(file)
    off = ("--off", "decoder.0.attention:0", "--off", "encoder.1", "--force")
    assert run(capsys, *asked, *off, "--save", file, "--wide", "--dark").code == 0
    switched = weights(viewer, "decoder.0.cross", off=Off({"decoder.0.attention": [0]}, ["encoder.1"]))[1]
    changed = {number(value) for value in switched.flatten()}
    assert changed <= texts(file)
    assert changed != plain


def test_a_beam_has_a_page_where_others_have_a_column(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    widths = {}
    for what in ("beam", "attention"):
        run(capsys, "look", TEXT, "-m", model, "--what", what, "--save", tmp_path / f"{what}.svg")
        widths[what] = float(ET.parse(tmp_path / f"{what}.svg").getroot().attrib["width"].removesuffix("pt"))
    assert widths["beam"] > 1.5 * widths["attention"]


def test_a_recording_and_a_page(
    viewer: Viewer, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "seen.safetensors"
    asked = ("look", TEXT, "-m", model, "--answer", ANSWER)
    assert run(capsys, *asked, "--tap", "*.cross.weights", "--save", file).code == 0
    seen = Recording.open(file)
    assert list(seen) == ["decoder.0.cross.weights", "decoder.1.cross.weights"]
    np.testing.assert_allclose(
        seen["decoder.0.cross.weights"].tensor[0].numpy(), weights(viewer, "decoder.0.cross"), atol=1e-6
    )
    page = tmp_path / "page.html"
    assert run(capsys, *asked, "--save", page).code == 0
    assert page.read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html>")


def test_refusals(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = tmp_path / "there.svg"
    there.write_text("mine")

    def said(*options: str | Path) -> str:
        return refusal(run(capsys, "look", TEXT, "-m", model, *options))

    assert "exists already" in said("--save", there)
    assert there.read_text() == "mine"
    assert "--save lens.svg" in said("--what", "lens")
    assert "no picture 'portrait'" in said("--what", "portrait")
    assert ".jpg" in said("--save", tmp_path / "a.jpg")
    assert "make it first" in said("--save", tmp_path / "none" / "a.svg")
    assert "not 'decoder.1.cross:x'" in said("--off", "decoder.1.cross:x")
    assert "no head 9" in said("--layer", "0", "--head", "9")
    assert "no attention is named 'middle'" in said("--layer", "middle")
    assert not list(tmp_path.glob("*.tmp"))


def test_without_matplotlib_a_figure_is_refused_and_the_terminal_is_not(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any, **options: Any) -> Any:
        if name.split(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    assert "clearhead[draw]" in refusal(run(capsys, "look", TEXT, "-m", model, "--save", tmp_path / "a.svg"))
    assert run(capsys, "look", TEXT, "-m", model).code == 0
