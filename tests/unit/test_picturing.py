"""Pictures of a text in a model: their numbers and colours are those that the taps show."""

import re
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from clearhead.cli.look import PICTURES
from clearhead.draw.figure import PAGE, Figure
from clearhead.draw.scale import Scale, around_zero, shares
from clearhead.draw.words import number, visible
from clearhead.errors import ClearheadError, ConfigError, DataError
from clearhead.look.circuits import composition
from clearhead.look.flow import attention_flow, attention_rollout
from clearhead.look.prune import prune_heads
from clearhead.nn.positions import POSITIONS
from clearhead.tasks.directory import ModelParts
from clearhead.tasks.picturing import WHAT, picture, steps_of
from clearhead.tasks.picturing_decoding import choices, searched, tree
from clearhead.tasks.spots import Asked, spot_of
from clearhead.tasks.translator import Translator
from clearhead.tasks.viewing import Off, View, Viewer, shown
from tests.unit.drawn import colours, fills, has_cells, inside, saves, texts
from tests.unit.tiny_viewers import MODES, TEXT, tiny_viewer

REFUSED = {
    "encoder-decoder": set(),
    "decoder": {"square"},
    "encoder": {"square", "beam"},
}


@cache
def view(mode: str = "encoder-decoder", text: str = TEXT) -> View:
    return tiny_viewer(mode).view(text, "d e f a" if mode == "encoder-decoder" else None)


@cache
def long_view() -> View:
    return tiny_viewer("decoder", length=520).view(("a b " * 256).strip())


def weights(of: View, name: str) -> np.ndarray:
    return of.seen(f"{name}.weights")[f"{name}.weights"].tensor[0].double().numpy()


def test_the_command_line_knows_every_picture() -> None:
    assert tuple(WHAT) == PICTURES


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("what", sorted(WHAT))
def test_every_picture_is_drawn_or_refused_in_a_sentence(mode: str, what: str) -> None:
    if what in REFUSED[mode]:
        with pytest.raises(ConfigError):
            picture(view(mode), what)
        return
    figure = picture(view(mode), what)
    assert isinstance(figure, Figure)
    inside(figure)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("head", [0, 3])
def test_attention_is_that_of_the_head(mode: str, head: int, tmp_path: Path) -> None:
    spot = spot_of(view(mode), Asked(1))
    w_LM = weights(view(mode), spot.name)[head]
    figure = picture(view(mode), "attention", layer=1, head=head)
    said = texts(figure)
    hidden = np.triu(np.ones(w_LM.shape, dtype=bool), 1) if spot.place.kind == "masked" else np.zeros(w_LM.shape, bool)
    assert f"{spot.name}, head {head}" in said
    for i, j in np.argwhere(~hidden):
        assert number(w_LM[i, j]) in said
    if not hidden.any():
        assert has_cells(figure, shares(w_LM), w_LM)
    assert set(map(visible, view(mode).sides[spot.place.keys].tokens)) <= set(said)
    saves(figure, tmp_path)


def test_a_layer_is_named_as_people_like() -> None:
    by_number = picture(view(), "attention", layer=1, head=2).svg()
    for name in ("decoder.1.cross", "decoder.1.cross.weights"):
        assert picture(view(), "attention", layer=name, head=2).svg() == by_number
    assert picture(view(), "attention", layer="decoder.1", side="cross", head=2).svg() == by_number
    assert picture(view(), "attention", layer=1, side="encoder", head=2).svg() != by_number
    several = texts(picture(view(), "attention", layer=0, head=(1, 3)))
    mean_LM = weights(view(), "decoder.0.cross")[[1, 3]].mean(0)
    assert "decoder.0.cross, the mean of heads 1, 3" in several
    assert {number(value) for value in mean_LM.flatten()} <= set(several)


def test_without_a_word_it_is_the_models_own_head_or_all() -> None:
    grid = picture(view(), "attention")
    assert "2 layers of 4 heads" in grid.says
    viewer = tiny_viewer("encoder-decoder")
    settings = replace(viewer.parts.settings, generation={"alignment_head": [0, 2, True], "longest_extra": 3})
    chosen = Viewer(replace(viewer.parts, settings=settings)).view(TEXT, "d e")
    assert "decoder.0.cross, head 2" in texts(picture(chosen, "attention"))
    assert "2 layers of 4 heads" in picture(chosen, "attention", side="decoder").says


def test_a_grid_has_every_head_in_its_place() -> None:
    of = view("decoder")
    all_NHLM = np.stack([weights(of, f"decoder.{layer}.attention") for layer in range(2)])
    scale = shares(all_NHLM)
    images = picture(of, "heads").drawing.axes[0].images
    assert len(images) == 8
    for image, w_LM in zip(images, all_NHLM.reshape(8, *all_NHLM.shape[2:]), strict=True):
        np.testing.assert_allclose(np.asarray(image.get_array()), scale.colours(w_LM))
    assert texts(picture(of, "heads")).count("0") == 2  # the first head, and the first layer


def test_lines_are_those_of_the_heads_and_of_one_token() -> None:
    of = view()
    every = picture(of, "lines", layer=1, head=[0, 2])
    assert {"0", "2"} <= set(texts(every))
    one = picture(of, "lines", layer=1, head=[0], position=1)
    row_M = weights(of, "decoder.1.cross")[0, 1]
    assert f"the widest is {row_M.max():.2f}" in one.says
    assert len(one.drawing.axes[0].lines) < len(every.drawing.axes[0].lines)


def test_one_square_holds_the_three() -> None:
    of = view()
    encoder, decoder, cross = (
        weights(of, name)[1] for name in ("encoder.0.attention", "decoder.0.attention", "decoder.0.cross")
    )
    said = texts(picture(of, "square", layer=0, head=1))
    for w in (encoder, np.tril(decoder), cross):
        assert {number(value) for value in w[w > 0]} <= set(said)


@pytest.mark.parametrize("mode", MODES)
def test_steps_are_what_passed_the_taps(mode: str) -> None:
    side = "decoder" if mode == "decoder" else "encoder"
    spot = spot_of(view(mode), Asked(0, side=side))
    x_LD, of = steps_of(view(mode), spot, 1)
    attention = view(mode).viewer.model.get_submodule(spot.name)
    y_BLD = attention(torch.from_numpy(x_LD).float()[None])[0] if spot.place.kind == "self" else None
    assert of.q.shape == (len(x_LD), attention.head_width)
    np.testing.assert_allclose(of.scores, of.q @ of.k.T, atol=1e-5)
    np.testing.assert_allclose(of.weights @ of.v, of.output, atol=1e-5)
    if y_BLD is not None:
        seen = view(mode).seen(f"{spot.name}.output")[f"{spot.name}.output"].tensor
        torch.testing.assert_close(y_BLD, seen, atol=1e-5, rtol=1e-5)
    said = texts(picture(view(mode), "steps", layer=0, head=1, side=side))
    assert {number(value) for value in of.scores[-1]} <= set(said)
    assert "3  ÷ 2.00" in said


def test_a_lens_shows_guesses_and_their_probabilities() -> None:
    of = view("decoder")
    probability, word = (x[:, 0, :, 0] for x in of.lens().best())
    figure = picture(of, "lens")
    said = texts(figure)
    for id in word.flatten().tolist():
        assert visible(shown(id, of.viewer.writer)) in said
    scale = shares(probability.double().numpy())
    assert has_cells(figure, scale, probability.double().numpy()[::-1])


@pytest.mark.parametrize("mode", MODES)
def test_shares_add_up_to_the_logit(mode: str) -> None:
    of = view(mode)
    word = of.said(2)
    figure = picture(of, "shares", position=2)
    logit = float(of.run()[0, 2, word])
    total = float(re.search(r"add up to (-?[\d.]+)", " ".join(texts(figure)))[1])
    assert total == pytest.approx(logit, abs=2e-3)
    largest = max(of.shares(2, word).of.items(), key=lambda one: abs(one[1]))
    assert largest[0].replace(".head.", ":") in texts(figure)
    assert number(largest[1]) in texts(figure)


@pytest.mark.parametrize("what", ["rollout", "flow"])
@pytest.mark.parametrize("mode", MODES)
def test_what_reaches_what(mode: str, what: str) -> None:
    of = view(mode)
    seen = of.seen([f"{place.name}.weights" for place in of.viewer.attentions()])
    reach = {"rollout": attention_rollout, "flow": attention_flow}[what](of.viewer.model, seen)
    values = reach.own_LL if reach.source_LM is None else torch.cat([reach.source_LM, reach.own_LL], 1)
    assert has_cells(picture(of, what), shares(values.numpy()), values.numpy())


def test_the_stream_draws_what_is_given() -> None:
    """Each position's edges add up to one, and what is alone reads itself."""
    of = view("decoder", "a")
    figure = picture(of, "stream")
    assert len(figure.drawing.axes[0].lines) == 2  # of the only token to itself, in each layer
    assert "decoder.1" in texts(figure)
    bigger = picture(view("decoder"), "stream")
    assert set(map(visible, view("decoder").sides["text"].tokens)) <= set(texts(bigger))


def test_circuits_are_those_of_the_matrices() -> None:
    of = view("decoder")
    scores = composition(of.viewer.model, "v").score_XX.numpy()
    said = texts(picture(of, "circuits"))
    assert {"decoder.0.attention:0", "decoder.1.attention:3"} <= set(said)
    assert {number(value) for value in scores[scores > 0]} <= set(said)
    attention = of.viewer.model.decoder.layers[1].attention
    w = {name: matrix.detach().double() for name, matrix in attention.matrices().items()}
    x_LD = of.seen("embed.tokens")["embed.tokens"].tensor[0].double()
    rows = slice(2 * attention.head_width, 3 * attention.head_width)
    asked = ((x_LD @ w["q"][rows].T) @ (x_LD @ w["k"][rows].T).T).numpy()
    assert has_cells(picture(of, "qk", layer=1, head=2), around_zero(asked), asked)
    words = of.viewer.model.output.linear.weight.detach().double()[list(of.sides["text"].ids)]
    said_LL = (words @ (w["out"][:, rows] @ w["v"][rows]) @ x_LD.T).numpy()
    assert has_cells(picture(of, "ov", layer=1, head=2), around_zero(said_LL), said_LL)


def test_neurons_are_the_excited_ones() -> None:
    of = view("decoder")
    hidden = of.seen("decoder.1.feedforward.hidden")["decoder.1.feedforward.hidden"].tensor[0, -1].double()
    added = hidden * of.viewer.model.decoder.layers[1].feedforward.narrow.weight.detach().double().norm(dim=0)
    said = texts(picture(of, "neurons"))
    assert any(text.startswith(f"{int(added.abs().argmax())}: ") for text in said)
    assert number(float(added[added.abs().argmax()])) in said


@pytest.mark.parametrize("positions", sorted(POSITIONS))
@pytest.mark.parametrize("mode", ["decoder", "encoder-decoder"])
def test_positions_of_any_kind(mode: str, positions: str) -> None:
    of = tiny_viewer(mode, positions=positions).view(TEXT)
    if positions == "none":
        with pytest.raises(ConfigError, match="no positions"):
            picture(of, "positions")
        return
    figure = picture(of, "positions")
    inside(figure)
    kinds = " ".join(texts(figure))
    assert ("added to each token" in kinds) == (positions.startswith("sinusoidal") or positions == "learned")
    assert ("vector of ones" in kinds) == positions.startswith("rotary")


def test_decoding_is_the_translators_own_record() -> None:
    of = tiny_viewer("encoder-decoder", seed=3).view(TEXT)
    translator = Translator(of.viewer.parts)
    (answer,) = translator.answers([TEXT], split=False)[0]
    steps = choices(of)
    assert len(answer.scores) > 2
    assert [step.tokens[step.taken] for step in steps][: len(answer.scores)] == [
        shown(word, of.viewer.writer) for word in of.wanted
    ][: len(answer.scores)]
    chosen = [step.probabilities[step.taken] for step in steps][: len(answer.scores)]
    np.testing.assert_allclose(np.log(chosen), answer.scores, atol=1e-4)
    said = texts(picture(of, "decoding"))
    assert {number(p) for step in steps for p in step.probabilities} <= set(said)


@pytest.mark.parametrize("mode", ["encoder-decoder", "decoder"])
def test_a_tree_is_the_searchs_own_record(mode: str) -> None:
    of = view(mode)
    found = searched(of)
    nodes = tree(found, of, "start")
    assert len(nodes) == 1 + sum(map(len, found.steps))
    won = [node for node in nodes if node.winner][1:]
    best = found.best[0]
    ids = [*best.tokens, *([] if best.end is None else [best.end])]
    assert [node.token for node in won] == [shown(id, of.viewer.writer) for id in ids]
    assert won[-1].score == pytest.approx(sum(best.scores), abs=1e-5)
    for node in nodes[1:]:
        if node.reason:
            assert not any(other.parent == node.id for other in nodes)
    said = texts(picture(of, "beam", on=PAGE))
    assert {number(node.score) for node in nodes} <= set(said)


def test_what_is_switched_off_is_off_in_the_picture() -> None:
    viewer = tiny_viewer("decoder")
    plain = picture(viewer.view(TEXT), "lens").svg()
    assert picture(viewer.view(TEXT, off=Off({"decoder.0.attention": [0, 1, 2, 3]})), "lens").svg() != plain
    assert picture(viewer.view(TEXT), "lens").svg() == plain


def test_pruned_models_have_empty_places() -> None:
    viewer = tiny_viewer("decoder")
    smaller = prune_heads(viewer.model, {"decoder.1.attention": [0, 2]})
    of = Viewer(ModelParts(smaller, viewer.parts.tokenizer, viewer.parts.settings)).view(TEXT)
    images = picture(of, "heads").drawing.axes[0].images
    assert [bool(np.asarray(image.get_array())[..., 3].any()) for image in images] == [True] * 6 + [False] * 2
    with pytest.raises(ConfigError, match="heads 0 to 1, and no head 2"):
        picture(of, "attention", layer=1, head=2)


def test_memory_has_slots_beside_the_tokens() -> None:
    of = tiny_viewer("decoder", persistent=2).view(TEXT)
    assert {"slot 0", "slot 1"} <= set(texts(picture(of, "attention", layer=0, head=0)))
    picture(of, "stream")
    with pytest.raises(ConfigError, match="memory"):
        picture(of, "steps", layer=0)


@pytest.mark.parametrize("what", ["attention", "heads", "lens", "decoding", "positions", "rollout", "shares"])
def test_five_hundred_and_twelve_tokens(what: str) -> None:
    assert len(long_view().sides["text"].ids) == 512
    inside(picture(long_view(), what))


@pytest.mark.parametrize("what", ["lines", "graph", "stream", "flow"])
def test_what_has_no_room_for_them_says_so(what: str) -> None:
    with pytest.raises(ConfigError, match=r"up to|has room"):
        picture(long_view(), what)


def test_a_hundred_and_forty_four_heads() -> None:
    of = tiny_viewer("decoder", layers=12, heads=12, width=24).view(TEXT)
    figure = picture(of, "heads")
    assert len(figure.drawing.axes[0].images) == 144
    inside(figure)
    inside(picture(of, "circuits"))
    with pytest.raises(ConfigError, match="8 heads, not 12"):
        picture(of, "lines")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("text", ["a", "", "שלום a", "e\u0301 a\u0300\u0301 b", "🙂\u200d🙂"])
@pytest.mark.parametrize("what", ["attention", "lines", "lens", "steps", "beam"])
def test_odd_texts_are_a_figure_or_a_sentence(mode: str, text: str, what: str) -> None:
    with suppress(ClearheadError):
        inside(picture(tiny_viewer(mode).view(text), what, on=PAGE))


@pytest.mark.parametrize("mode", MODES)
def test_one_token_and_no_source_have_a_figure(mode: str) -> None:
    for text in ("a", ""):
        of = tiny_viewer(mode).view(text)
        w = weights(of, spot_of(of, Asked(0)).name)[0]
        assert {number(value) for value in w.flatten()} <= set(texts(picture(of, "attention", layer=0, head=0)))


def test_refusals_are_sentences() -> None:
    for asked, sentence in (
        ({"what": "portrait"}, "portrait"),
        ({"layer": 9}, "layers 0 to 1, counted from 0, not 9"),
        ({"layer": 0, "head": 7}, "heads 0 to 3, and no head 7"),
        ({"layer": "decoder.7.cross"}, "no attention is named 'decoder.7.cross'"),
        ({"side": "middle"}, "not 'middle'"),
        ({"what": "shares", "position": 99}, "none of them is 99"),
        ({"what": "neurons", "layer": 5}, "layers 0 to 1 of the decoder"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            picture(view(), asked.pop("what", "attention"), **asked)
    with pytest.raises(ConfigError, match="no cross attention; it is a decoder with decoder"):
        picture(view("decoder"), "attention", side="cross")
    with pytest.raises((ConfigError, DataError), match="encoder–decoder"):
        picture(view("encoder"), "square")


def test_colours_are_those_of_the_scale() -> None:
    """The helper that the other tests trust can fail."""
    w = weights(view(), "decoder.0.cross")[0]
    figure = picture(view(), "attention", layer=0, head=0)
    assert not has_cells(figure, shares(w), w[::-1])
    assert set(colours(Scale(0, float(w.max()), ""), w)) <= set(fills(figure))
