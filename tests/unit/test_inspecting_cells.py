"""Where numbers come from: in every member of the family the terms make the number, and each factor is a number."""

import math
import random
from typing import Any

import pytest
import torch

from clearhead.errors import DataError
from clearhead.nn.feedforward import FEEDFORWARDS
from clearhead.nn.norm import NORMS
from clearhead.nn.positions import POSITIONS
from clearhead.nn.residual import RESIDUALS
from clearhead.nn.scores import SCORES
from clearhead.nn.stack import COMBINATIONS
from clearhead.tap import named_taps
from clearhead.tasks.cells import Cell, Place
from clearhead.tasks.inspecting import inspect, off_of
from clearhead.tasks.viewing import Viewer
from clearhead.tasks.walk import Walk, cell_of
from tests.unit.tiny_viewers import MODES, TEXT, tiny_viewer

NOT_TAKEN_APART = "not taken apart"
TABLES: dict[str, Any] = {
    "residual": RESIDUALS, "norm": NORMS, "score": SCORES, "positions": POSITIONS, "feedforward": FEEDFORWARDS,
    "combination": COMBINATIONS,
}  # fmt: skip
ROWS = [{key: name} for key, table in TABLES.items() for name in sorted(table)]
ROWS += [
    {"kv_heads": 2}, {"kv_heads": 1, "positions": "transformer_xl"}, {"persistent": 3}, {"head_width": 6},
    {"persistent": 2, "score": "cosine", "positions": "alibi"}, {"persistent": 2, "score": "additive", "kv_heads": 2},
    {"persistent": 2, "positions": "shaw"}, {"residual_factor": 0.5, "residual": "scaled", "norm": "rms_norm"},
    {"combination": "dense", "residual": "post_norm"}, {"biases": False},
]  # fmt: skip


def value(cell: Cell) -> float:
    """What the terms come to."""
    values = [term.value for term in cell.made.terms]
    if cell.made.combine == "softmax":
        more = [] if cell.rest is None else [cell.rest[1]]
        return math.exp(values[0]) / math.fsum(math.exp(one) for one in [*values, *more])
    return math.fsum(values) + (0.0 if cell.rest is None else cell.rest[1])


def check(walk: Walk, place: Place) -> Cell:
    """The cell's terms make its value, and each factor that came from a cell is that cell's value."""
    cell = walk.cell(place)
    assert cell is not None, place
    if NOT_TAKEN_APART in cell.made.says:
        assert not cell.made.terms
        return cell
    if cell.value == -math.inf:
        assert not cell.made.terms
        assert cell.as_json()["value"] is None
        return cell
    assert value(cell) == pytest.approx(cell.value, abs=1e-4, rel=1e-4), (place, cell.made)
    for term in cell.made.terms:
        assert len(term.factors) == len(term.came)
        for factor, came in zip(term.factors, term.came, strict=True):
            if came is not None:
                there = walk.values(came.tap)[came[2 if came.head is None else 1 :]]
                assert there.item() == pytest.approx(factor, abs=1e-5), (place, came)
    return cell


def some_places(walk: Walk, count: int, seed: int = 0) -> list[Place]:
    """A few cells at random of everything that passes a tap, and of everything that is made of such."""
    draw = random.Random(seed)
    names = {**dict.fromkeys(named_taps(walk.viewer.model)), **dict.fromkeys(walk.explanations)}
    places = []
    for name in names:
        shown = walk.shown(name)
        if shown is not None:
            for _ in range(count):
                *head, row, column = (draw.randrange(size) for size in shown.tensor.shape)
                places.append(Place(name, head[0] if head else None, row, column))
    return places


def walk_of(viewer: Viewer, text: str = TEXT) -> Walk:
    return Walk(inspect(viewer, text))


def biases_of(mode: str, row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "biases": (False,) * 3} if mode == "decoder" and "biases" in row else row


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(map(str, row.values())))
def test_terms_make_the_number(mode: str, row: dict[str, Any]) -> None:
    walk = walk_of(tiny_viewer(mode, layers=2 if "combination" in row else 1, **biases_of(mode, row)))
    taken = [check(walk, place) for place in some_places(walk, 1)]
    ends = {cell.place.tap.rpartition(".")[2] for cell in taken if NOT_TAKEN_APART in cell.made.says}
    assert ends == ({"hidden", "output"} if row == {"feedforward": "product_keys"} else set())


def test_layers_that_share_their_weights_have_cells_in_every_round() -> None:
    walk = walk_of(tiny_viewer("encoder", layers=4, distinct=2, embedding_width=6))
    names = {place.tap for place in some_places(walk, 1)}
    assert {"widen", "encoder.1@1.attention.weights", "encoder.0.attention.weights"} <= names
    for place in some_places(walk, 2):
        check(walk, place)
    first, again = (walk.values(f"encoder.0{turn}.attention.weights") for turn in ("", "@1"))
    assert not torch.equal(first, again)
    assert walk.shown("encoder.0@2.attention.weights") is None


@pytest.mark.parametrize("mode", MODES)
def test_pruned_models_and_models_with_parts_off(mode: str) -> None:
    stack = "encoder" if mode == "encoder" else "decoder"
    pruned = ((f"{stack}.0.attention", (1, 3)),)
    viewer = tiny_viewer(mode, layers=3, pruned=pruned, positions="t5")
    off = off_of({f"{stack}.0.attention": [1]}, [f"{stack}.1"])
    walk = Walk(inspect(viewer, TEXT, off=off))
    for place in some_places(walk, 2):
        check(walk, place)
    silent = walk.cell(Place(f"{stack}.0.attention.heads", 1, 0, 0))
    assert silent is not None
    assert "switched off" in silent.made.says
    # the layer behind the one that is off reads what came before it
    read = walk.cell(Place(f"{stack}.2.add_attention.sum", None, 0, 0))
    assert read is not None
    assert f"{stack}.0.add_feedforward.sum" in {came.tap for term in read.made.terms for came in term.came if came}


def test_the_way_back_ends_at_the_embedding() -> None:
    walk = walk_of(tiny_viewer("encoder-decoder", residual="pre_norm"))
    place: Place | None = Place("output.logits", None, 2, 5)
    seen = []
    while place is not None:
        assert place.tap not in seen[:-1]
        cell = check(walk, place)
        seen.append(place.tap)
        came = [one for term in cell.made.terms for one in term.came if one is not None]
        place = came[0] if came else None
    assert seen[-1] in {"target_embed.tokens", "source_embed.tokens"}
    assert len(seen) > 8


def test_many_terms_are_summed_up() -> None:
    walk = walk_of(tiny_viewer("decoder", width=64, heads=4, score="dot"), "a b c d e f " * 5)
    wide = check(walk, Place("decoder.0.attention.q", 0, 1, 1))
    assert wide.rest is not None
    assert len(wide.made.terms) + wide.rest[0] in {64, 65}
    tall = check(walk, Place("decoder.0.attention.weights", 0, 29, 3))
    assert tall.rest is None
    assert {term["from"][0]["column"] for term in tall.as_json()["terms"]} == set(range(30))


def test_a_long_softmax_keeps_its_own_term() -> None:
    walk = walk_of(tiny_viewer("encoder", length=64), "a b c d e f " * 8)
    for column in (0, 20, 49):
        cell = check(walk, Place("encoder.0.attention.weights", 2, 7, column))
        assert cell.rest is not None
        own = cell.made.terms[0].came[0]
        assert own is not None
        assert own.column == column


def test_cells_that_are_not_there_are_refused() -> None:
    inspection = inspect(tiny_viewer("decoder"), TEXT)
    assert cell_of(inspection, Place("decoder.9.attention.q", 0, 0, 0)) is None
    assert cell_of(inspection, Place("decoder.*", 0, 0, 0)) is None
    for place in (
        Place("decoder.0.attention.q", None, 0, 0),
        Place("decoder.0.attention.q", 0, 99, 0),
        Place("decoder.0.attention.output", 0, 0, 0),
    ):
        with pytest.raises(DataError, match="no cell"):
            cell_of(inspection, place)
