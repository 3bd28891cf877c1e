"""Decoding, positions, norms, patches, tables: the picture's numbers are the ones it was given."""

from pathlib import Path

import numpy as np
import pytest

from clearhead.draw.beam import Choice, Node, beam_tree, decoding_steps, lens
from clearhead.draw.figure import PAGE, Sheet
from clearhead.draw.palette import HEADS, ROLES
from clearhead.draw.positions import image_patches, norm_groups, position_maps, positions_by_hand
from clearhead.draw.scale import around_zero, shares
from clearhead.draw.tables import column_importance, columns_as_tokens
from clearhead.draw.words import number
from clearhead.errors import ConfigError, ShapeError
from tests.unit.drawn import fills, has_cells, inside, saves, texts

RANDOM = np.random.default_rng(0)
TREE = [
    Node(0, None, "<s>", 0.0, winner=True),
    Node(1, 0, "the", -0.4, winner=True),
    Node(2, 0, "a", -1.2),
    Node(3, 1, "cat", -0.7, winner=True),
    Node(4, 2, "dog", -2.25, alive=False, reason="pruned"),
]


def test_the_tree_shows_every_token_score_and_reason(tmp_path: Path) -> None:
    figure = beam_tree(TREE, on=Sheet(dark=True))
    shown = texts(figure)
    assert {"<s>", "the", "a", "cat", "dog", "−0.40", "−1.20", "−0.70", "−2.25", "pruned"} <= set(shown)
    drawn = figure.svg()
    assert drawn.count(f"stroke: {ROLES['output'].colour.lower()}") == 2  # the winner's two edges
    assert drawn.count("stroke-dasharray") == 1
    saves(figure, tmp_path)


def test_a_tree_is_drawn_in_any_order_of_branches_and_alone() -> None:
    assert texts(beam_tree([Node(7, None, "x", 0.0)]))[0] == "x"
    two = [Node(0, None, "a", 0.0), Node(1, None, "b", 0.0)]
    assert {"a", "b"} <= set(texts(beam_tree(two)))


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ([], "nothing to draw"),
        ([Node(0, None, "a", 0.0)] * 2, "number 0"),
        ([Node(1, 5, "a", 0.0)], "continues 5"),
        ([Node(0, 0, "a", 0.0)], "continues 0"),
    ],
)
def test_what_is_no_tree_is_one_sentence(nodes: list[Node], says: str) -> None:
    with pytest.raises(ShapeError, match=says):
        beam_tree(nodes)


def test_a_tree_of_512_steps_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match="not 512"):
        beam_tree([Node(i, i - 1 if i else None, "x", 0.0) for i in range(512)], on=PAGE)


def test_each_step_shows_its_words_and_probabilities(tmp_path: Path) -> None:
    steps = [Choice(["the", "a"], [0.7, 0.2], 0), Choice(["dog", "cat"], [0.5, 0.45], 1), Choice(["\n"], [0.91], 0)]
    figure = decoding_steps(steps)
    assert texts(figure)[:12] == [
        "step 1",
        "the",
        "0.70",
        "a",
        "0.20",
        "step 2",
        "dog",
        "0.50",
        "cat",
        "0.45",
        "step 3",
        "↵",
    ]
    assert fills(figure).count(ROLES["output"].colour.lower()) == 3
    saves(figure, tmp_path)
    with pytest.raises(ShapeError, match="step 1"):
        decoding_steps([Choice(["a"], [0.5], 1)])
    with pytest.raises(ShapeError, match="no steps"):
        decoding_steps([])


def test_the_lens_has_the_last_layer_on_top(tmp_path: Path) -> None:
    values = RANDOM.uniform(size=(3, 2))
    figure = lens([["a", "b"], ["c", "d"], ["e", "f"]], values, tokens=["in", "put"])
    assert has_cells(figure, shares(values), values[::-1])
    assert texts(figure)[:11] == ["3", "2", "1", "e", "f", "c", "d", "a", "b", "in", "put"]
    saves(figure, tmp_path)
    with pytest.raises(ShapeError, match="do not fit"):
        lens([["a"]], values)
    assert texts(lens([["w"] * 512] * 2, RANDOM.uniform(size=(2, 512)), tokens=["token"] * 512))


def closed_form(length: int, width: int, base: float = 10_000.0) -> np.ndarray:
    """Sines and cosines in turn, number by number."""
    angle = [[p / base ** (2 * (i // 2) / width) for i in range(width)] for p in range(length)]
    return np.where(np.arange(width) % 2, np.cos(angle), np.sin(angle))


def test_four_dimensions_by_hand() -> None:
    table = closed_form(4, 4, 100.0)
    figure = positions_by_hand(table, tokens=["I", "am", "a", "robot"], base=100.0)
    shown = texts(figure)
    assert shown[:4] == ["sin(p/1)", "cos(p/1)", "sin(p/10)", "cos(p/10)"]
    assert shown[4:20] == [number(v) for v in table.flatten()]
    assert "robot  p = 3" in shown


def test_maps_of_both_forms_say_how_large_they_are() -> None:
    table = closed_form(20, 512)
    halves = np.concatenate([table[:, ::2], table[:, 1::2]], axis=1)
    figure = position_maps({"interleaved": table, "halves": halves})
    assert texts(figure).count("511") == 2
    assert {"interleaved", "halves"} <= set(texts(figure))
    assert figure.svg().count("data:image/png") == 2
    small = closed_form(5, 8)
    assert has_cells(position_maps({"small": small}), around_zero(small), small)
    with pytest.raises(ShapeError, match="no table"):
        position_maps({})


def test_norms_colour_what_they_normalise_together() -> None:
    x = RANDOM.normal(size=(2, 3, 4))
    figure = norm_groups(x)
    assert fills(figure).count(HEADS[1].lower()) == 4 + 2 * 3 + 3
    shown = texts(figure)
    for group in (x[0, 0], x[:, :, 0], x[0, :, 0]):
        assert {f"μ = {number(group.mean())}", f"σ = {number(group.std())}", f"{group.size} numbers"} <= set(shown)
    with pytest.raises(ShapeError, match="17"):
        norm_groups(np.zeros((1, 17, 1)))


def test_patches_are_numbered_line_by_line() -> None:
    figure = image_patches(RANDOM.uniform(size=(8, 12, 3)), 4)
    shown = texts(figure)
    assert shown[:7] == ["CLS", *"123456"]
    assert figure.svg().count("data:image/png") == 1 + 6
    with pytest.raises(ShapeError, match="patch=5"):
        image_patches(np.zeros((8, 8)), 5)
    with pytest.raises(ShapeError, match="not"):
        image_patches(np.zeros((8, 8, 7)), 4)


def test_columns_stand_by_importance() -> None:
    figure = column_importance(["a", "b", "c"], [0.1, 0.5, -0.2], errors=[0.0, 0.1, 0.0])
    shown = texts(figure)
    assert [t for t in shown if t in "abc"] == ["b", "a", "c"]
    assert {"0.10", "0.50", "−0.20"} <= set(shown)
    with pytest.raises(ShapeError, match="finite"):
        column_importance(["a"], [np.nan])
    with pytest.raises(ShapeError, match="2 errors"):
        column_importance(["a"], [1.0], errors=[1.0, 2.0])


def test_a_row_becomes_tokens() -> None:
    vectors = RANDOM.normal(size=(3, 4))
    figure = columns_as_tokens(["age", "city"], [33, "Lyon"], vectors, kinds=["number", "category"])
    assert {"[CLS]", "age", "33", "number", "city", "Lyon", "category"} <= set(texts(figure))
    for vector in vectors:
        assert has_cells(figure, around_zero(vectors), vector)
    with pytest.raises(ShapeError, match="do not fit"):
        columns_as_tokens(["age"], [1, 2], vectors)


LONG = ["Donaudampfschifffahrtsgesellschaft", "e\u0301te\u0301", "שלום"]


@pytest.mark.parametrize("on", [Sheet(), PAGE])
def test_long_words_stay_on_the_sheet(on: Sheet) -> None:
    inside(beam_tree([Node(i, i - 1 if i else None, LONG[i], -1.0, False, "pruned") for i in range(3)], on=on))
    inside(decoding_steps([Choice(LONG, [0.98, 0.01, 0.01], i) for i in range(3)], on=on))
    inside(lens([LONG] * 2, RANDOM.uniform(size=(2, 3)), tokens=LONG, layers=LONG[:2], on=on))
    inside(positions_by_hand(closed_form(3, 4), tokens=LONG, on=on))
    inside(position_maps({LONG[0] * 3: closed_form(20, 512)}, on=on))
    inside(norm_groups(RANDOM.normal(size=(4, 6, 6)), on=on))
    inside(image_patches(RANDOM.uniform(size=(28, 28)), 4, on=on))
    inside(column_importance(LONG, [0.3, -0.4, 0.1], errors=[0.1, 0.1, 0.1], on=on))
    inside(columns_as_tokens(LONG, LONG, RANDOM.normal(size=(4, 64)), kinds=["number", "number", "category"], on=on))
