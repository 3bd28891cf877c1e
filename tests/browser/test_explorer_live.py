"""The page with a real model behind it: numbers read off the page are the tensors, and switches switch."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import torch
from PIL import Image

from clearhead.tasks.cells import Place
from clearhead.tasks.contributions import contributions
from clearhead.tasks.inspecting import inspect, off_of
from clearhead.tasks.loading import load_model
from clearhead.tasks.overview import attentions_of
from clearhead.tasks.page import page_of
from clearhead.tasks.viewing import Viewer
from clearhead.tasks.walk import cell_of
from tests.unit.tiny_viewers import TEXT, tiny_viewer

pytest.importorskip("fastapi", reason="the explorer's server needs fastapi")
pytest.importorskip("uvicorn", reason="the explorer's server needs uvicorn")

from clearhead.serve.connections import Patience
from clearhead.serve.explorer import explorer_app
from clearhead.serve.run import bind, make_server

REFUSED = "status of 400"  # what a browser says by itself of a request that is refused
PART, HEAD = "decoder.1.cross", 2
PATIENCE = 60_000
OWN = ("file:", "data:", "blob:")


def model() -> Viewer:
    return tiny_viewer("encoder-decoder", seed=5, tied=False)


@pytest.fixture(scope="module")
def viewer() -> Viewer:
    """The same as behind the page, yet another one: while the server looks into a model, nobody else may."""
    return model()


@contextmanager
def served(viewer: Viewer, name: str) -> Iterator[str]:
    """The address of a page with that model behind it."""
    with bind("127.0.0.1", 0) as listening:
        server = make_server(lambda closing: explorer_app(viewer, name=name, closing=closing), Patience())
        running = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        running.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        server.should_exit = True
        running.join(20)


@pytest.fixture(scope="module")
def home() -> Iterator[str]:
    torch.set_num_threads(1)
    with served(model(), "tiny") as address:
        yield address


@pytest.fixture
def page(browser: Any, home: str) -> Iterator[Any]:
    """A page on which nothing may go wrong and from which nothing may leave the machine."""
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    opened.set_default_timeout(PATIENCE)
    said: list[str] = []
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    opened.on("request", lambda asked: said.append(asked.url) if not asked.url.startswith((home, *OWN)) else None)
    yield opened
    opened.close()
    assert [one for one in said if REFUSED not in one] == []


def rows(page: Any, card: str) -> list[list[str]]:
    """The table of a card, the names of its rows included."""
    page.wait_for_selector(f"#card-{card} .as-table tbody td")
    found: list[list[str]] = page.eval_on_selector_all(
        f"#card-{card} .as-table tbody tr", "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    return [[cell.replace("−", "-") for cell in row] for row in found]


def numbers(page: Any, card: str) -> list[list[float]]:
    """The table of a card, as numbers."""
    return [[float(cell) for cell in row[1:]] for row in rows(page, card)]


def at(home: str, **state: object) -> str:
    return f"{home}#{urlencode({'text': TEXT, **state})}"


def test_weights_read_off_the_page_are_the_tensors(page: Any, home: str, viewer: Viewer) -> None:
    page.goto(at(home, view="attention", mode="matrix", part=PART, head=HEAD, tables="matrix"))
    weights_LM = inspect(viewer, TEXT).at(f"{PART}.weights")[HEAD]
    assert torch.allclose(torch.tensor(numbers(page, "matrix")), weights_LM, atol=1e-5)


def test_a_cell_says_where_it_came_from_and_can_be_walked_back(page: Any, home: str, viewer: Viewer) -> None:
    page.goto(at(home, view="steps", part=PART, head=HEAD, cell=f"{PART}.weights:{HEAD}:1:0"))
    inspection = inspect(viewer, TEXT)
    place: Place | None = Place(f"{PART}.weights", HEAD, 1, 0)
    for _ in range(6):
        assert place is not None
        cell = cell_of(inspection, place)
        assert cell is not None
        page.wait_for_function(
            "([says, count]) => document.querySelector('#cell')?.textContent.includes(says) && "
            "document.querySelectorAll('#cell .terms tbody tr').length === count",
            arg=[cell.made.says[1:], len(cell.made.terms) + (cell.rest is not None)],
        )
        value = page.text_content("#cell .figure-value").replace("−", "-")
        assert float(value) == pytest.approx(cell.value, rel=1e-3, abs=1e-4)
        place = next(came for term in cell.made.terms for came in term.came if came is not None)
        page.click("#cell .factor >> nth=0")


def other_words(viewer: Viewer) -> tuple[str, int]:
    """A head without which the model translates otherwise."""
    whole = viewer.view(TEXT).answer
    for place in viewer.attentions():
        for head in range(place.heads):
            if viewer.view(TEXT, off=off_of({place.name: [head]})).answer not in {whole, ""}:
                return place.name, head
    raise AssertionError("no head of this model changes what it says: choose another seed")


def test_a_head_that_is_switched_off_changes_the_translation_and_on_again_restores_it(
    page: Any, home: str, viewer: Viewer
) -> None:
    part, head = other_words(viewer)
    whole, without = viewer.view(TEXT).answer, viewer.view(TEXT, off=off_of({part: [head]})).answer
    page.goto(at(home, view="attention", mode="atlas", part=part, head=head))
    switch = page.locator("#card-atlas button[role=switch]").first
    switch.wait_for()
    assert page.locator("#card-compare").is_hidden()
    switch.click()
    page.wait_for_function("() => document.querySelectorAll('#card-compare .said').length === 2")
    assert page.locator("#card-compare .said").all_text_contents() == [whole, without]
    page.locator("#card-atlas button[role=switch]").first.click()
    page.wait_for_function("() => document.querySelector('#card-compare').hidden")


@pytest.mark.parametrize("view", ["attention", "steps", "decoding", "lens", "positions"])
def test_every_view_opens(page: Any, home: str, view: str) -> None:
    page.goto(at(home, view=view))
    page.wait_for_selector("#view .card")
    page.wait_for_selector("body[aria-busy=false]")
    assert page.locator("#error").is_hidden()


def test_a_text_that_is_refused_says_why(page: Any, home: str) -> None:
    page.goto(at(home))
    page.wait_for_selector("#view .card")
    page.fill("#text", "a " * 600)
    page.click("#run")
    page.wait_for_selector("#error:not([hidden])")
    assert "shorten" in page.text_content("#error")


def test_a_saved_page_opens_from_disk_with_the_same_numbers(page: Any, viewer: Viewer, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    inspection = inspect(viewer, TEXT)
    file.write_text(page_of(inspection.view, name="tiny"), encoding="utf-8")
    page.goto(at(file.as_uri(), view="attention", mode="matrix", part=PART, head=HEAD, tables="matrix"))
    weights_LM = inspection.at(f"{PART}.weights")[HEAD]
    assert torch.allclose(torch.tensor(numbers(page, "matrix")), weights_LM, atol=1e-5)


def test_a_page_saved_with_parts_off_says_so(page: Any, viewer: Viewer, tmp_path: Path) -> None:
    file, off = tmp_path / "page.html", off_of({PART: [HEAD]}, ["encoder.0"])
    file.write_text(page_of(viewer.view(TEXT, off=off), name="tiny"), encoding="utf-8")
    page.goto(at(file.as_uri(), view="attention", mode="atlas", tables="atlas"))
    silent = [(row[0], int(float(row[1])) - 1) for row in rows(page, "atlas") if row[2] == "off"]
    heads = {place.name: range(place.heads) for place in viewer.attentions()}
    assert silent == [*(("encoder.0.attention", head) for head in heads["encoder.0.attention"]), (PART, HEAD)]
    assert page.locator("#switched").inner_text() == "1 head and 1 layer switched off."
    assert page.get_by_text("All on again").count() == 0


def test_slots_of_memory_are_not_taken_for_tokens(page: Any, tmp_path: Path) -> None:
    slots, part, head = 2, "decoder.0.attention", 1
    viewer = tiny_viewer("encoder-decoder", layers=1, persistent=slots, positions="alibi")
    inspection, file = inspect(viewer, TEXT), tmp_path / "page.html"
    file.write_text(page_of(inspection.view, name="tiny"), encoding="utf-8")
    sides = {name: side.tokens for name, side in inspection.view.sides.items()}
    places = {place.name: place for place in attentions_of(viewer)}

    def shown(card: str, **state: object) -> list[list[str]]:
        page.goto(at(file.as_uri(), head=head, tables=card, **state))
        page.reload()
        return rows(page, card)

    square = [
        (name, query, key, weight)
        for name in ("encoder.0.attention", "decoder.0.cross", part)
        for query, row in zip(sides[places[name].queries], inspection.at(f"{name}.weights")[head].tolist(), strict=True)
        for key, weight in zip(sides[places[name].keys], row[0 if "cross" in name else slots :], strict=True)
    ]
    said = shown("square", view="attention", mode="square", part=part)
    assert [tuple(row[:3]) for row in said] == [row[:3] for row in square]
    assert [float(row[3]) for row in said] == pytest.approx([row[3] for row in square], abs=1e-5)

    moved = [
        (name, query, key, norm / sum(row))
        for name, norms in contributions(inspection)["norms"].items()
        for query, row in zip(sides[places[name].queries], norms, strict=True)
        for key, norm in zip(sides[places[name].keys], row[0 if "cross" in name else slots :], strict=True)
        if norm / sum(row) >= 0.15
    ]
    moved.sort(key=lambda line: -line[3])
    said = shown("flow", view="lens", edges=15)
    assert [float(row[3]) for row in said] == pytest.approx([line[3] for line in moved], abs=1e-5)
    assert sorted(row[:3] for row in said) == sorted([*line[:3]] for line in moved)

    shown("formula", view="steps", part=part, stage=4)
    bias_LM = torch.nn.functional.pad(inspection.at(f"{part}.bias")[head], (slots, 0))
    assert torch.allclose(torch.tensor(numbers(page, "formula")), bias_LM, atol=1e-5)


def test_an_encoder_without_words_shows_what_moves(page: Any, tmp_path: Path) -> None:
    viewer, file = tiny_viewer("encoder", layers=1, words=False), tmp_path / "page.html"
    file.write_text(page_of(viewer.view(TEXT), name="tiny"), encoding="utf-8")
    page.goto(at(file.as_uri(), view="lens"))
    page.wait_for_selector("#card-flow svg")
    page.wait_for_selector("#card-contributions canvas")
    for card in ("lens", "shares"):
        assert page.locator(f"#card-{card} .empty").inner_text()


def test_the_picture_of_the_readme(browser: Any, tmp_path: Path) -> None:
    """`make screenshot` names a trained model and where its picture goes; without it, it is one of the tiny model."""
    named, out = os.environ.get("CLEARHEAD_SHOWN"), Path(os.environ.get("CLEARHEAD_SCREENSHOT", tmp_path / "page.png"))
    shown, text = (Viewer(load_model(named)), "Je suis étudiant.") if named else (model(), TEXT)
    state = urlencode({"text": text, "view": "steps", "part": PART, "head": HEAD})
    with served(shown, Path(named or "tiny").name) as address:
        page = browser.new_page(viewport={"width": 1280, "height": 1300}, device_scale_factor=1)
        page.goto(f"{address}#{state}")
        page.wait_for_selector("body[aria-busy=false]")
        page.wait_for_selector("#card-row canvas")
        page.screenshot(path=out)
        page.close()
    with Image.open(out) as picture:
        assert picture.size == (1280, 1300)
        assert len(picture.convert("RGB").getcolors(1 << 24)) > 200
