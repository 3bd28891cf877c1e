"""A saved page says where a number came from as the server does, or that it cannot: never anything else."""

import json
import math
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from clearhead.draw.page_file import static_files
from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.positions import POSITIONS
from clearhead.nn.scores import SCORES, Dot
from clearhead.tasks.cells import Place
from clearhead.tasks.inspecting import inspect, off_of
from clearhead.tasks.overview import plain_name
from clearhead.tasks.page import recording_of
from clearhead.tasks.viewing import Off, Viewer
from clearhead.tasks.walk import Walk
from tests.unit.tiny_viewers import TEXT, tiny_viewer

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node, which runs the page's code, is missing")

DERIVED = ("scores", "scaled", "masked", "weights", "heads")
ASK = """
import { readFileSync } from "node:fs";
import { FileSource, Refusal } from "./source.js";
const { recording, places } = JSON.parse(readFileSync(0, "utf8"));
const source = new FileSource(recording);
const answers = [];
for (const place of places) {
  answers.push(await source.cell("", place).catch((error) => {
    if (error instanceof Refusal) return null;
    throw error;
  }));
}
console.log(JSON.stringify(answers));
"""
ROWS: list[dict[str, Any]] = [
    *({"score": name} for name in sorted(SCORES)), *({"positions": name} for name in sorted(POSITIONS)),
    {"kv_heads": 2}, {"persistent": 3}, {"persistent": 2, "positions": "alibi", "kv_heads": 2},
    {"persistent": 2, "positions": "shaw"}, {"persistent": 2, "score": "cosine"},
]  # fmt: skip


def answers(folder: Path, recording: dict[str, Any], places: list[Place]) -> list[dict[str, Any] | None]:
    """What the page's own code says about these cells of a recording; None where it says that it cannot."""
    for name, (_, content) in static_files().items():
        (folder / name).write_bytes(content)
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    (folder / "ask.js").write_text(ASK, encoding="utf-8")
    given = json.dumps({"recording": recording, "places": [place._asdict() for place in places]})
    done = subprocess.run(
        ["node", "ask.js"], cwd=folder, input=given, capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr
    said: list[dict[str, Any] | None] = json.loads(done.stdout)
    return said


def comes_to(cell: dict[str, Any]) -> float:
    """What the terms make by the rule that the panel states."""
    values = [term["value"] for term in cell["terms"]] + ([cell["rest"]["value"]] if cell["rest"] else [])
    if cell["combine"] == "softmax":
        return math.exp(values[0]) / math.fsum(map(math.exp, values))
    return math.fsum(values)


def can_be_explained(walk: Walk, place: Place) -> bool:
    """Whether all that the number was made of is in a recording: no weights of the model are."""
    part, _, what = place.tap.rpartition(".")
    attention = walk.viewer.model.get_submodule(plain_name(part)[0])
    assert isinstance(attention, MultiHeadAttention)
    slots = 0 if attention.memory is None else attention.memory.slots
    if what == "scores":
        return isinstance(attention.score, Dot) and place.column >= slots
    silent = place.head in walk.inspection.view.off.heads.get(plain_name(part)[0], ())
    return what != "heads" or silent or (attention.positions.value is None and not slots)


def check(
    folder: Path, viewer: Viewer, *, text: str = TEXT, off: Off | None = None, taps: tuple[str, ...] = DERIVED
) -> list[dict[str, Any]]:
    """Ask page and server for many cells of every attention; what the page explained."""
    walk = Walk(inspect(viewer, text, off=off))
    recording = recording_of(walk.inspection.view)
    draw, places = random.Random(0), list[Place]()
    for name in (f"{one['name']}.{tap}" for one in recording["run"]["attentions"] for tap in taps):
        places += [Place(name, *map(draw.randrange, walk.values(name).shape)) for _ in range(25)]
    explained = []
    for place, said in zip(places, answers(folder, recording, places), strict=True):
        assert (said is not None) == can_be_explained(walk, place), place
        if said is None:
            continue
        cell = walk.cell(place)
        assert cell is not None
        wanted = cell.as_json()
        assert said["combine"] == wanted["combine"], place
        assert [term["from"] for term in said["terms"]] == [term["from"] for term in wanted["terms"]], place
        values, others = [
            [term["value"] for term in one["terms"]] + list((one["rest"] or {}).values()) for one in (said, wanted)
        ]
        assert values == pytest.approx(others, rel=1e-4, abs=1e-5), place
        if said["terms"]:
            assert comes_to(said) == pytest.approx(cell.value, rel=1e-4, abs=1e-4), place
        explained.append(said)
    return explained


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(map(str, row.values())))
def test_the_page_explains_what_the_server_explains(tmp_path: Path, row: dict[str, Any]) -> None:
    assert check(tmp_path, tiny_viewer("encoder-decoder", layers=1, **row))


def test_a_head_that_is_off_reads_nothing_in_any_round(tmp_path: Path) -> None:
    viewer = tiny_viewer("encoder", layers=2, distinct=1)
    off = off_of({"encoder.0.attention": [0, 1, 2]})
    cells = check(tmp_path, viewer, off=off, taps=("heads",))
    assert {cell["tap"] for cell in cells} == {"encoder.0.attention.heads", "encoder.0@1.attention.heads"}
    assert all((cell["value"] == 0) == (cell["terms"] == []) == (cell["head"] < 3) for cell in cells)


def test_a_long_row_is_summed_up(tmp_path: Path) -> None:
    viewer, text = tiny_viewer("encoder", layers=1, length=64), "a b c d e f " * 8
    keys = len(viewer.view(text).sides["text"].tokens)
    cells = check(tmp_path, viewer, text=text, taps=("weights", "heads"))
    assert {cell["rest"]["count"] + len(cell["terms"]) for cell in cells} == {keys}
    assert keys > 32
