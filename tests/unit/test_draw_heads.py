"""Matrices and heads: every cell's colour and number is the array's."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearhead.draw.figure import PAGE, Sheet
from clearhead.draw.heads import all_heads, kept, lines, one_square, pooled
from clearhead.draw.matrix import matrix
from clearhead.draw.palette import HEADS
from clearhead.draw.scale import around_zero, shares
from clearhead.draw.stream import residual_stream
from clearhead.draw.words import number
from clearhead.errors import ConfigError, ShapeError
from tests.unit.drawn import colours, fills, has_cells, inside, saves, softmax, texts


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return softmax(np.random.default_rng(seed).normal(size=shape) * 2)


def test_cells_tokens_and_numbers_are_the_arrays(tmp_path: Path) -> None:
    w = weights(3, 4)
    figure = matrix(w, rows=["a", "b", "c"], columns=["w", "x", "y", "z"], says="each row sums to 1")
    shown = texts(figure)
    assert has_cells(figure, shares(w), w)
    assert shown[:12] == [number(v) for v in w.flatten()]
    assert shown[12:19] == ["a", "b", "c", "w", "x", "y", "z"]
    assert "weights: each row sums to 1" in shown
    assert number(w.max()) in shown[19:]
    saves(figure, tmp_path)


def test_a_tensor_is_an_array_too() -> None:
    w = torch.randn(2, 2, requires_grad=True)
    figure = matrix(w, what="scores", says="as they are")
    assert has_cells(figure, around_zero(w.detach().double().numpy()), w.detach().double().numpy())


def test_masked_cells_are_hatched_and_hold_no_number() -> None:
    w = np.tril(np.full((4, 4), 0.25))
    masked = np.triu(np.ones((4, 4), dtype=bool), 1)
    figure = matrix(w, masked=masked)
    assert texts(figure).count("0.25") == 10 + 1  # the legend names the largest
    assert "masked" in texts(figure)
    assert "<pattern" in figure.svg()
    assert "<pattern" not in matrix(w).svg()


def test_what_is_no_number_has_a_glyph() -> None:
    x = np.array([[np.nan, 1.0], [np.inf, -np.inf]])
    shown = texts(matrix(x, what="scores", says="as they are"))
    assert shown[:4] == ["×", "1.00", "+∞", "−∞"]
    assert "not a number" in shown


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("size", [1, 60, 512])
def test_any_size_is_a_figure(size: int, dark: bool) -> None:
    w = weights(size, size)
    figure = matrix(w, rows=["tok"] * size, columns=["tok"] * size, on=Sheet(dark=dark))
    assert "tok" in texts(figure)
    assert ("data:image/png" in figure.svg()) == (size * size > 1600)


def test_any_script_is_a_figure() -> None:
    names = ["שלום", "e\u0301te\u0301", "Donaudampfschifffahrtsgesellschaftskapitän" * 3, "日本"]
    figure = matrix(weights(4, 4), rows=names, columns=names)
    shown = texts(figure)
    inside(figure)
    inside(lines(weights(2, 4, 4), queries=names, keys=names))
    inside(one_square(weights(2, 2), np.eye(2), weights(2, 2), source=names[:2], target=names[2:]))
    assert {"שלום", "e\u0301te\u0301", "日本"} <= set(shown)
    assert any(t.startswith("Donau") and t.endswith("…") for t in shown)


@pytest.mark.parametrize("values", [np.zeros((0, 3)), np.zeros(3), np.zeros((1, 2, 3))])
def test_what_is_no_matrix_is_one_sentence(values: np.ndarray) -> None:
    with pytest.raises(ShapeError, match="shape"):
        matrix(values)


def test_a_mask_of_another_shape_is_one_sentence() -> None:
    with pytest.raises(ShapeError, match=r"\(1, 2\).*\(2, 2\)"):
        matrix(np.eye(2), masked=[[True, False]])


@pytest.mark.parametrize("apart", [5, 7, 8])
def test_where_few_cells_have_a_label_each_of_these_is_shown(apart: int) -> None:
    """Far more cells than lines of text have room beside them."""
    names = [f"layer {i // apart}" if i % apart == 0 else None for i in range(10 * apart)]
    said = texts(matrix(np.eye(10 * apart), rows=names, columns=names))
    assert [text for text in said if text.startswith("layer")] == [f"layer {i}" for i in range(10)] * 2
    crowded = [text for text in texts(matrix(np.eye(300), rows=[f"row {i}" for i in range(300)])) if "row" in text]
    assert 10 < len(crowded) < 150


@given(st.integers(1, 5), st.integers(1, 7), st.floats(0.05, 1.0), st.integers(0, 99))
def test_the_fewest_weights_that_hold_the_share(rows: int, columns: int, share: float, seed: int) -> None:
    w = weights(rows, columns, seed=seed)
    chosen = kept(w, share)
    held = np.where(chosen, w, 0).sum(1)
    smallest = np.where(chosen, w, np.inf).min(1)
    assert (held >= share - 1e-9).all()
    assert (held - smallest < share + 1e-9).all()
    assert (np.where(chosen, -np.inf, w).max(1) <= smallest).all()


def test_a_line_for_every_kept_weight_in_its_heads_colour(tmp_path: Path) -> None:
    w = weights(2, 3, 5)
    figure = lines(w, queries=["a", "b", "c"], keys=list("vwxyz"), heads=[3, 7], share=0.8)
    drawn = figure.svg()
    for head in range(2):
        assert drawn.count(f"stroke: {HEADS[head].lower()}") == kept(w[head], 0.8).sum()
    shown = texts(figure)
    assert shown[1:3] == ["3", "7"]
    assert {"a", "b", "c", *"vwxyz"} <= set(shown)
    assert any("top 80%" in t and f"{w.max():.2f}" in t for t in shown)
    saves(figure, tmp_path)


@pytest.mark.parametrize(("shape", "says"), [((9, 2, 2), "8 heads, not 9"), ((1, 512, 512), "64 tokens, not 512")])
def test_too_much_for_lines_is_one_sentence(shape: tuple[int, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        lines(np.zeros(shape))


def test_a_share_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="share=0"):
        lines(weights(1, 2, 2), share=0)


def test_one_token_has_one_line() -> None:
    assert lines([[[1.0]]], queries=["x"], keys=["x"]).svg().count(f"stroke: {HEADS[0].lower()}") == 1


def test_all_144_heads_are_there_each_an_image_of_its_own() -> None:
    figure = all_heads(weights(12, 12, 6, 6), on=PAGE)
    assert figure.svg().count("data:image/png") == 144
    assert texts(figure).count("12") == 2


def test_long_texts_are_pooled_by_the_largest() -> None:
    w = weights(2, 1, 100, 70)
    small = pooled(w, 48)
    assert small.shape == (2, 1, 34, 24)
    assert small[1, 0, 33, 0] == w[1, 0, 99, :3].max()
    assert small.max() == w.max()
    assert any("3 × 3 block" in t for t in texts(all_heads(w)))


def test_one_square_holds_all_three(tmp_path: Path) -> None:
    encoder, cross = weights(3, 3), weights(2, 3, seed=1)
    decoder = np.array([[1.0, 0.0], [0.3, 0.7]])
    figure = one_square(encoder, decoder, cross, source=["le", "chat", "dort"], target=["the", "cat"])
    shown = texts(figure)
    expected = [*encoder.flatten(), *cross[0], 1.0, *cross[1], 0.3, 0.7]
    assert shown[: len(expected)] == [number(v) for v in expected]
    assert shown.count("chat") == 2
    assert {"encoder", "decoder", "masked"} <= set(shown)
    assert fills(figure)
    saves(figure, tmp_path)


def test_attentions_that_do_not_fit_are_one_sentence() -> None:
    with pytest.raises(ShapeError, match="cross"):
        one_square(np.eye(3), np.eye(2), np.eye(2))
    with pytest.raises(ShapeError, match="nothing to draw"):
        one_square(np.zeros((0, 0)), np.eye(2), np.zeros((2, 0)))


def test_the_lines_of_one_query_alone() -> None:
    w = weights(2, 4, 5)
    figure = lines(w, only=2, share=1.0)
    assert len(figure.drawing.axes[0].lines) == 2 * 5
    assert f"the widest is {w[:, 2].max():.2f}" in figure.says
    with pytest.raises(ShapeError, match="no query 4"):
        lines(w, only=4)


@pytest.mark.parametrize("on", [Sheet(), Sheet("page", dark=True)])
def test_the_stream_has_a_disc_for_each_number_and_a_line_for_each_edge(on: Sheet) -> None:
    edges, values = weights(2, 5, 5), np.random.default_rng(0).uniform(size=(2, 5))
    figure = residual_stream(edges, values, tokens=list("abcde"), layers=["low", "high"], least=0.2, on=on)
    assert len(figure.drawing.axes[0].lines) == int((edges >= 0.2).sum())
    scale = shares(values)
    discs = [fill for fill in fills(figure) if fill in set(colours(scale, values))]
    assert discs[:10] == colours(scale, values)
    assert {"low", "high", *"abcde"} <= set(texts(figure))
    inside(figure)
    with pytest.raises(ShapeError, match="do not fit"):
        residual_stream(edges, values[:, :3])
    with pytest.raises(ConfigError, match="room for"):
        residual_stream(np.ones((1, 60, 60)), np.ones((1, 60)), on=on)
