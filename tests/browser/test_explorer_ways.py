"""The explorer's page in other hands: keys alone, narrow screens, long texts, hostile ones, files on disk."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearhead.draw.page_file import page_file
from tests.browser.fake import Fake
from tests.browser.fake_server import FakeServer, recording
from tests.browser.windows import TEXT, VIEWS, Window, numbers, settle, table, tensor, window_of


def test_the_address_holds_the_state(window: Window) -> None:
    page = window.show("view=attention&mode=matrix&part=decoder.0.cross")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "]", "}"):
        page.locator("#card-matrix .board").focus()
        page.keyboard.press(key)
        settle(page)
    crumbs = page.locator(".crumbs").inner_text()
    assert crumbs.split("\n") == ["fake", "decoder 2", "cross-attention", "head 2", "am → suis"]
    page.reload()
    settle(page)
    assert page.locator(".crumbs").inner_text() == crumbs


def test_the_live_region_reads_the_cell(window: Window) -> None:
    page = window.show("view=attention&mode=matrix&part=decoder.0.cross&row=1&column=0")
    page.locator("#card-matrix .board").focus()
    page.keyboard.press("ArrowRight")
    weights = tensor("decoder.0.cross.weights")[0, 1]
    place = ("first", "second", "third", "4th")[int((weights > weights[1]).sum())]
    wanted = f"decoder 1 · cross-attention, head 1: “i” reads “suis”, {weights[1]:#.3g}, {place} of 4"
    assert page.locator("#live").inner_text() == wanted


def test_the_tour_is_walked_by_keyboard_alone(window: Window) -> None:
    page = window.show("part=decoder.1.cross")
    page.locator("#text").focus()
    for _ in range(12):
        page.keyboard.press("Shift+Tab")
        if page.evaluate("document.activeElement.id") == "tour-button":
            break
    page.keyboard.press("Enter")
    page.wait_for_selector("#tour:not([hidden])")
    titles = [page.locator("#tour h2").inner_text()]
    for count in range(2, 11):
        for key in ("Tab", "Enter") if count == 2 else ("ArrowRight",):
            page.keyboard.press(key)
        page.wait_for_selector(f"#tour .hint:text('{count} of 10')")
        titles.append(page.locator("#tour h2").inner_text())
    assert [title.split(":")[0] for title in titles if title.startswith("Step")] == [f"Step {i}" for i in range(1, 7)]
    page.keyboard.press("Escape")
    assert page.locator("#tour").is_hidden()
    assert page.evaluate("document.activeElement.id") == "tour-button"


def test_help_opens_and_closes_by_key(window: Window) -> None:
    page = window.show("")
    page.keyboard.press("?")
    assert page.locator("dialog#help").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("dialog#help").is_hidden()


@pytest.mark.parametrize("state", [*VIEWS, "view=attention&mode=atlas&off=decoder.0.cross:1", "view=decoding&beams=4"])
def test_a_narrow_screen_never_scrolls_sideways(window: Window, state: str) -> None:
    window.page.set_viewport_size({"width": 360, "height": 700})
    page = window.show(state)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_dark_light_and_forced_colours(window: Window) -> None:
    page = window.show("view=attention&mode=matrix")

    def ground() -> int:
        return int(
            page.evaluate("getComputedStyle(document.querySelector('.card')).backgroundColor")
            .split("(")[1]
            .split(",")[0]
        )

    page.emulate_media(color_scheme="dark")
    assert ground() < 64
    for theme in ("light", "dark"):
        page.click("#theme-button")
        settle(page)
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        assert (ground() > 192) is (theme == "light")
    page.emulate_media(color_scheme="light", forced_colors="active")
    settle(page)
    assert page.locator("#card-matrix canvas").first.is_visible()
    page.emulate_media(forced_colors="none")


def test_nothing_moves_where_motion_is_not_wanted(window: Window) -> None:
    page = window.show("")
    moving = "[...document.querySelectorAll('*')].filter(n => getComputedStyle(n).transitionDuration !== '0s').length"
    assert page.evaluate(moving) == 0
    page.emulate_media(reduced_motion="no-preference")
    assert page.evaluate(moving) > 0
    page.emulate_media(reduced_motion="reduce")


def test_many_tokens_stay_few_nodes(browser: Any) -> None:
    text = " ".join(f"mot{i}" for i in range(505))
    with window_of(browser, Fake(layers=1, heads=2, head_width=4)) as (_, window):
        plain = ("mode=lines", "mode=matrix", "mode=square", "view=steps", "view=lens")
        for state in (*plain, "mode=matrix&tables=matrix", "mode=square&tables=square", "view=lens&tables=lens"):
            page = window.show(state, text)
            assert page.evaluate("document.querySelectorAll('*').length") < 5_000


def test_a_model_of_144_heads(browser: Any) -> None:
    with window_of(browser, Fake("decoder", layers=12, heads=12, head_width=4)) as (_, window):
        page = window.show("mode=atlas")
        assert "144 heads" in page.locator("#card-atlas .hint").first.inner_text()
        assert page.locator("#card-atlas canvas").count() == 2


def test_script_in_the_text_is_text(window: Window) -> None:
    text = "<script>window.hacked=1</script> <img/src=x/onerror=window.hacked=1>"
    for state in VIEWS:
        page = window.show(state, text)
        assert page.evaluate("window.hacked === undefined")
        assert page.locator("main img, main script").count() == 0
        assert page.locator("#text").input_value() == text


def test_a_refusal_is_shown_as_a_sentence(window: Window) -> None:
    page = window.show("")
    page.fill("#text", "mot " * 600)
    page.keyboard.press("Enter")
    page.wait_for_selector("#error:not([hidden])")
    assert page.locator("#error").inner_text() == "The text has more than 512 tokens; shorten it."
    assert all("422" in said for said in window.wrong)
    window.wrong.clear()
    window.show("view=steps")
    assert page.locator("#error").is_hidden()


def test_a_recording_that_was_dropped_is_made_again(window: Window, server: FakeServer) -> None:
    page = window.show("", "le chat dort bien")
    server.runs.clear()
    page.click("#tab-steps")
    settle(page)
    assert page.locator("#card-formula canvas").count() == 2
    assert [body["text"] for body in server.bodies("runs")][-2:] == ["le chat dort bien"] * 2
    assert all("404" in said for said in window.wrong)
    window.wrong.clear()


@pytest.mark.parametrize("kind", ["SVG", "PNG", "CSV"])
def test_a_picture_is_kept(window: Window, kind: str, tmp_path: Path) -> None:
    page = window.show("view=attention&mode=matrix&part=decoder.1.attention")
    with page.expect_download() as waiting:
        page.locator("#card-matrix .tools button", has_text=kind).click()
    path = tmp_path / waiting.value.suggested_filename
    waiting.value.save_as(path)
    assert path.name == f"fake-matrix.{kind.lower()}"
    content = path.read_bytes()
    if kind == "PNG":
        assert content.startswith(b"\x89PNG")
    elif kind == "SVG":
        assert "each row sums to 1" in content.decode()
        assert "student</text>" in content.decode()
    else:
        rows = list(csv.reader(content.decode().splitlines()))
        weights = np.array([[float(word) for word in row[1:]] for row in rows[1:]])
        np.testing.assert_allclose(weights, tensor("decoder.1.attention.weights")[0], rtol=1e-6)


def test_an_answer_that_comes_late_does_not_overwrite_a_newer_one(window: Window, server: FakeServer) -> None:
    page = window.show("")
    server.slow = "lent"
    page.evaluate("location.hash = 'text=lent'")
    page.evaluate("location.hash = 'text=vite+vite'")
    page.wait_for_timeout(600)
    settle(page)
    assert page.locator("#text").input_value() == "vite vite"
    assert table(page, "lines")[0] == ["reads ↓", "vite", "vite", "<eos>"]


def test_a_file_opens_from_disk_and_asks_nobody(browser: Any, tmp_path: Path) -> None:
    path, asked = tmp_path / "page.html", list[str]()
    path.write_text(page_file(recording(Fake(), TEXT)), encoding="utf-8")
    window = Window(browser, path.as_uri())
    window.page.on("request", lambda request: asked.append(request.url))
    for state in VIEWS:
        page = window.show(state)
        assert page.locator("#view .card").count() >= 1
        assert page.locator("#error").is_hidden()
    assert "clearhead explore" in page.locator("#only-file").inner_text()
    page = window.show("view=attention&mode=matrix&part=encoder.1.attention&head=1")
    wanted = tensor("encoder.1.attention.weights")[1]
    np.testing.assert_allclose(numbers(table(page, "matrix")), wanted, rtol=1e-5)
    page = window.show("cell=decoder.0.cross.scores:1:2:0")
    terms = page.locator("#cell .terms td.value").all_inner_texts()
    total = sum(float(word.replace("−", "-")) for word in terms)
    assert total == pytest.approx(tensor("decoder.0.cross.scores")[1, 2, 0], abs=0.05)
    assert [one for one in asked if not one.startswith(("data:", path.as_uri()))] == []
    window.close()
