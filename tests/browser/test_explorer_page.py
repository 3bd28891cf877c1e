"""The explorer's page in a real browser, against a made-up model whose every number is known."""

from typing import Any

import numpy as np
import pytest

from tests.browser.fake import WORDS, Answers, Fake, FakeRun, decode
from tests.browser.fake_server import FakeServer
from tests.browser.windows import TEXT, VIEWS, Window, numbers, settle, table, tensor, window_of

TOKENS = [*TEXT.split(), "<eos>"]


@pytest.mark.parametrize("state", VIEWS)
def test_every_view_opens(window: Window, state: str) -> None:
    page = window.show(state)
    assert page.locator("#view .card").count() >= 1
    assert page.locator("#error").is_hidden()
    assert page.locator("#view .board canvas, #view svg").count() >= 1 or "decoding" in state


@pytest.mark.parametrize("mode", ["decoder", "encoder"])
def test_models_with_one_side_open_too(browser: Any, mode: str) -> None:
    with window_of(browser, Fake(mode, biased=True)) as (_, window):
        page = window.show("view=steps&stage=4")
        assert "position" in page.locator(".stages [aria-current]").inner_text()
        for view in ("decoding", "lens", "positions", "attention"):
            page.click(f"#tab-{view}")
            settle(page)
            assert page.locator("#error").is_hidden()
        assert page.locator("input[value=square]").is_disabled()
        if mode == "encoder":
            page.click("#tab-decoding")
            assert "does not write" in page.locator("#card-decoding").inner_text()


def test_the_numbers_of_a_matrix_are_the_tensors(window: Window) -> None:
    page = window.show("view=attention&mode=matrix&part=decoder.1.attention&head=2")
    wanted = tensor("decoder.1.attention.weights")[2]
    np.testing.assert_allclose(numbers(table(page, "matrix")), wanted, rtol=1e-5, atol=1e-7)


def test_lines_show_the_mean_of_the_heads_that_are_chosen(window: Window) -> None:
    page, weights = window.show("part=decoder.0.cross&shown=0,3"), tensor("decoder.0.cross.weights")
    np.testing.assert_allclose(numbers(table(page, "lines")), weights[[0, 3]].mean(0), rtol=1e-4)
    page.locator(".chips .chip", has_text="All").click()
    settle(page)
    np.testing.assert_allclose(numbers(table(page, "lines")), weights.mean(0), rtol=1e-4)


def test_a_token_of_the_lines_is_pointed_at_and_locked(window: Window) -> None:
    page = window.show("part=decoder.0.cross&shown=1")
    box = page.locator("#card-lines .lines svg").bounding_box()
    third = (box["x"] + 150, box["y"] + 40 + 46 * 2.5)
    page.mouse.move(*third)
    reading = page.locator("#reading").inner_text()
    best = tensor("decoder.0.cross.weights")[1, 2].argmax()
    assert reading.startswith(f"“am” reads “{TOKENS[best]}”")
    page.mouse.click(*third)
    settle(page)
    assert "pinned=1" in page.evaluate("location.hash")
    assert "row=2" in page.evaluate("location.hash")


@pytest.mark.parametrize(("stage", "name"), [(2, "scores"), (3, "scaled"), (4, "masked"), (5, "weights")])
def test_each_step_shows_its_own_numbers(window: Window, stage: int, name: str) -> None:
    page = window.show(f"view=steps&part=decoder.0.attention&head=1&stage={stage}")
    wanted = tensor(f"decoder.0.attention.{name}")[1]
    np.testing.assert_allclose(numbers(table(page, "formula")), wanted, rtol=1e-5, atol=1e-7)


def test_one_query_by_hand(window: Window) -> None:
    page = window.show("view=steps&part=encoder.0.attention&head=3&row=2")
    wanted = [tensor(f"encoder.0.attention.{name}")[3, 2] for name in ("scores", "scaled", "masked", "weights")]
    np.testing.assert_allclose(numbers(table(page, "row")), np.stack(wanted, axis=1), rtol=1e-5)
    wanted_output = tensor("encoder.0.attention.output")
    np.testing.assert_allclose(numbers(table(page, "together")), wanted_output, rtol=1e-4, atol=1e-5)


def test_a_score_that_is_no_product_is_not_called_one(browser: Any) -> None:
    with window_of(browser, Fake("decoder", dot=False)) as (_, window):
        page = window.show("view=steps&stage=1")
        assert "s = score(q, k)" in page.locator(".stepper-row").inner_text()
        assert "⊙" not in page.locator(".stepper").inner_text()
        assert "Q Kᵀ" not in window.show("view=steps").locator(".stepper").inner_text()
        assert table(page, "row")[0] == ["key", "score", "scaled", "masked", "softmax"]


def test_a_stepper_goes_through_all_steps(window: Window) -> None:
    page, names = window.show("view=steps"), list[str]()
    onward = page.locator(".stepper button", has_text="Next")
    while onward.is_enabled():
        onward.click()
        settle(page)
        names.append(page.locator(".stages [aria-current]").inner_text().split()[0])
    assert names == sorted(names)
    assert set(names) == set("123456")


def test_a_cell_can_be_walked_back(window: Window) -> None:
    page = window.show("view=attention&mode=matrix&part=decoder.1.cross&row=1&column=2")
    page.locator("#card-matrix .board").focus()
    page.keyboard.press("Enter")
    page.locator("#cell .factor").first.click()
    page.wait_for_selector("#cell .trail li:nth-child(2)")
    terms = page.locator("#cell .terms td.value").all_inner_texts()
    total = sum(float(word.replace("−", "-")) for word in terms)
    assert total == pytest.approx(tensor("decoder.1.cross.scores")[0, 1, 2], abs=0.05)
    page.locator("#cell .factor").first.click()
    page.wait_for_selector("#cell .trail li:nth-child(3)")
    page.keyboard.press("Escape")
    assert page.locator("#cell").is_hidden()


def test_a_head_is_switched_off_and_on_again(window: Window, server: FakeServer) -> None:
    page = window.show("view=attention&mode=atlas&part=decoder.0.cross&head=1")
    page.locator(".about .switch").first.click()
    settle(page)
    asked = {"text": TEXT, "answer": None, "off": {"decoder.0.cross": [1]}, "layers_off": []}
    assert server.bodies("runs")[-1] == asked
    said = page.locator("#card-compare .said").all_inner_texts()
    before, after = (FakeRun(Fake(), TEXT, None, off) for off in ({}, asked["off"]))
    assert said == [" ".join(before.said), " ".join(after.said)]
    assert said[0] != said[1]
    losses = [float(word.split()[-1]) for word in page.locator("#card-compare .before-after .hint").all_inner_texts()]
    assert losses == pytest.approx([run.summary["predicts"]["loss"] for run in (before, after)], rel=0.01)
    assert "1 head switched off" in page.locator("#switched").inner_text()
    page.locator("#switched button", has_text="All on again").click()
    settle(page)
    assert page.locator("#card-compare").is_hidden()
    assert "off=" not in page.evaluate("location.hash")


def test_the_keyboard_switches_heads_in_the_atlas(window: Window, server: FakeServer) -> None:
    page = window.show("view=attention&mode=atlas&part=encoder.0.attention")
    for key in ("ArrowRight", "ArrowDown", " "):
        page.locator("#card-atlas .board").focus()
        page.keyboard.press(key)
        settle(page)
    assert server.bodies("runs")[-1]["off"] == {"encoder.1.attention": [1]}
    page.locator("#card-atlas .board").focus()
    page.keyboard.press("Enter")
    settle(page)
    assert page.locator("#card-matrix").is_visible()


def test_the_atlas_sorts_and_lists_every_head(window: Window) -> None:
    page = window.show("view=attention&mode=atlas&sort=entropy")
    entropies = [float(row[3]) for row in table(page, "atlas")[1:]]
    assert len(entropies) == 6 * 4
    assert entropies == sorted(entropies, reverse=True)


def test_rivals_are_shown_and_can_be_forced(window: Window, server: FakeServer) -> None:
    page = window.show("view=decoding")
    wanted = decode({"text": TEXT, "forced": [], "temperature": 1, "top_k": 0, "off": {}, "beams": 1})["steps"]
    assert page.locator(".words .word").all_inner_texts() == [step["token"] for step in wanted]
    first = table(page, "decoding")[1]
    assert float(first[3].replace("−", "-")) == pytest.approx(wanted[0]["rivals"][0]["logit"], rel=1e-5)
    page.locator("#card-decoding .tools button", has_text="Table").click()
    rival = wanted[1]["rivals"][1]
    page.locator(".words .column").nth(1).locator(".rival").nth(1).click()
    settle(page)
    assert server.bodies("decode")[-1]["forced"] == [wanted[0]["id"], rival["id"]]
    assert page.locator(".words .word").nth(1).inner_text() == WORDS[rival["id"]]
    page.locator(".slider", has_text="Beams").locator("input").fill("3")
    settle(page)
    assert server.bodies("decode")[-1]["beams"] == 3
    assert any(row[4] == "outside the beam" for row in table(page, "beam")[1:])


def test_shares_add_up_and_the_lens_shows_each_layer(window: Window) -> None:
    page, run = window.show("view=lens&position=2"), FakeRun(Fake(), TEXT, None)
    assert page.locator("#card-flow svg").count() == 1
    shares = Answers.shares(run, {"position": "2"})
    shown = numbers(table(page, "shares"))[:, 0]
    np.testing.assert_allclose(shown, [share["value"] for share in shares["shares"]], rtol=1e-5)
    assert shown.sum() == pytest.approx(shares["logit"], abs=1e-3)
    lens = Answers.lens(run, {"top": "10"})
    best = [word[0]["token"] for layer in lens["best"] for word in layer]
    assert [row[2] for row in table(page, "lens")[1:]] == best
    moves = lens["moved"][-1][2]
    moved = page.locator("#card-lens .guesses ul li span").all_inner_texts()
    assert moved == [word["token"] for word in [*moves["promoted"], *moves["suppressed"]]]


def test_ordinals_are_those_of_english(window: Window) -> None:
    ranks = {1: "first", 3: "third", 4: "4th", 11: "11th", 12: "12th", 13: "13th", 21: "21st", 22: "22nd", 23: "23rd",
             111: "111th", 112: "112th", 123: "123rd"}  # fmt: skip
    page = window.show("view=lens")
    ask = "async (ranks) => { const { ordinal } = await import('/static/text.js'); return ranks.map(ordinal); }"
    assert page.evaluate(ask, [*ranks]) == [*ranks.values()]
