"""The figure as a value, the palette, and words that fit."""

import builtins
import errno
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.draw.canvas import Canvas, ink_on
from clearhead.draw.figure import COLUMN, FORMATS, PAGE, Figure, Sheet, need_matplotlib
from clearhead.draw.palette import DARK, HEADS, LIGHT, ROLES
from clearhead.draw.words import fit, number, tokens_for, visible, width_of, wrap
from clearhead.errors import ConfigError, MissingPackageError, ShapeError
from tests.unit.drawn import texts


def written(text: str = "the $x$ & <b>", on: Sheet = COLUMN) -> Figure:
    canvas = Canvas(on)
    canvas.text((40, 10), text)
    return canvas.finish(20, "a word")


@pytest.mark.parametrize(("on", "inches"), [(COLUMN, 3.3), (PAGE, 7.0), (Sheet("page", dark=True), 7.0)])
def test_a_sheet_is_as_wide_as_it_says(on: Sheet, inches: float) -> None:
    assert ET.fromstring(written(on=on).svg()).attrib["width"] == f"{inches * 72:g}pt"


def test_a_width_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match="'poster'"):
        Sheet("poster")


def test_text_is_text_and_no_formula() -> None:
    assert texts(written()) == ["the $x$ & <b>"]
    assert written()._repr_svg_() == written().svg()


@pytest.mark.parametrize("suffix", sorted(FORMATS))
def test_the_same_figure_is_the_same_file(suffix: str, tmp_path: Path) -> None:
    one, two = written().save(tmp_path / f"one{suffix}"), written().save(str(tmp_path / f"two{suffix}"))
    assert one.read_bytes() == two.read_bytes()
    assert b"a word" in one.read_bytes() or suffix == ".pdf"
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"one{suffix}", f"two{suffix}"]


def test_an_unknown_suffix_and_a_missing_directory_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.svg, \.pdf, \.png, not as 'figure\.docx'"):
        written().save(tmp_path / "figure.docx")
    with pytest.raises(ConfigError, match="no directory"):
        written().save(tmp_path / "nowhere" / "figure.svg")


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full: make room, or write elsewhere"),
        (OSError(errno.EIO, "Input/output error", "of.tmp"), "the system says 'Input/output error'"),
    ],
)
def test_a_file_is_whole_or_as_it_was(
    error: OSError, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "figure.svg"
    path.write_text("before")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(ConfigError) as refused:
        written().save(path)
    assert str(refused.value) == f"{path} could not be written because {why}"
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_no_place_for_a_figure(tmp_path: Path) -> None:
    path = tmp_path / "folder.svg"
    path.mkdir()
    with pytest.raises(ConfigError, match=re.escape(f"{path} could not be written because the system says")):
        written().save(path)
    assert list(tmp_path.iterdir()) == [path]


def test_without_matplotlib_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *rest: object) -> object:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(MissingPackageError, match=r"pip install 'clearhead\[draw\]'"):
        need_matplotlib()


def test_the_paper_is_light_or_dark() -> None:
    assert LIGHT.paper.lower() in written().svg()
    assert DARK.paper.lower() in written(on=Sheet(dark=True)).svg()


def test_roles_and_heads_can_be_told_apart() -> None:
    assert [role.letter for role in ROLES.values()] == ["Q", "K", "V", "Z"]
    assert len({role.colour for role in ROLES.values()}) == 4
    assert len(set(HEADS)) == len(HEADS)


def _contrast(one: str, two: str) -> float:
    """WCAG's contrast ratio."""
    from matplotlib.colors import to_rgb

    def light(colour: str) -> float:
        r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour))
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    high, low = sorted((light(one), light(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_words_read_well_on_their_ground(theme: object) -> None:
    assert _contrast(theme.ink, theme.paper) > 7
    assert _contrast(theme.faint, theme.paper) > 4.5
    for colour in HEADS:
        assert _contrast(ink_on(colour), colour) > 4.5


@given(st.text(max_size=30), st.floats(4, 80))
def test_what_is_fitted_fits(text: str, points: float) -> None:
    shown = fit(visible(text), points, 6.5)
    assert shown == "…" or width_of(shown, 6.5) <= points


@given(st.text(max_size=12))
def test_every_text_can_be_written(text: str) -> None:
    shown = visible(text)
    assert shown
    assert texts(written(shown)) == [shown]


def test_a_letter_keeps_its_accents() -> None:
    text = "e\u0301" * 30
    shown = fit(text, 40, 6.5)
    assert shown.endswith("\u0301…")


def test_lines_fit_and_hold_all_words() -> None:
    text = "each row of each of the three parts sums to 1"
    lines = wrap(text, 60, 6.5)
    assert " ".join(lines) == text
    assert all(width_of(line, 6.5) <= 60 for line in lines)


def test_numbers() -> None:
    assert [number(v) for v in (float("nan"), float("inf"), -float("inf"))] == ["NaN", "+∞", "−∞"]
    assert number(9.996) == "10.0"
    assert number(-123.4) == "−123"


def test_labels_must_be_as_many_as_cells() -> None:
    assert tokens_for(None, 3, "rows") == ["1", "2", "3"]
    with pytest.raises(ShapeError, match="2 rows are given for 3"):
        tokens_for(["a", "b"], 3, "rows")
