"""A text in a model from all sides: against the model itself, brute force, and what other rooms compute."""

import base64
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clearhead.errors import ConfigError, DataError
from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.positions import POSITIONS
from clearhead.tasks.contributions import contributions
from clearhead.tasks.head_statistics import head_statistics
from clearhead.tasks.inspecting import Inspection, inspect, off_of
from clearhead.tasks.overview import attentions_of, overview, plain_name, sublayers
from clearhead.tasks.page import Explorer, page_of, recording_of
from clearhead.tasks.pictured_positions import positions_of
from clearhead.tasks.viewing import shown
from tests.unit.tiny_viewers import MODES, TEXT, tiny_viewer


@pytest.fixture(scope="module", params=MODES)
def inspection(request: pytest.FixtureRequest) -> Inspection:
    answer = "c b a" if request.param == "encoder-decoder" else None
    return inspect(tiny_viewer(request.param), TEXT, answer)


def test_the_overview_names_what_is_there(inspection: Inspection) -> None:
    about = overview(inspection.viewer, name="tiny", longest=512)
    assert json.loads(json.dumps(about, allow_nan=False)) == about
    parts = [part for stack in about["stacks"] for layer in stack["layers"] for part in layer["parts"]]
    modules = dict(inspection.viewer.model.named_modules())
    assert [modules[part["name"]] for part in parts] == [
        one.module for layer in sublayers(inspection.viewer) for one in layer
    ]
    for part in parts:
        if part["kind"] != "feedforward":
            assert part["heads"] == modules[part["name"]].heads
            assert part["queries"] in inspection.view.sides
    assert about["parameters"] == sum(p.numel() for p in inspection.viewer.model.parameters())
    assert about["writes"] == (inspection.viewer.mode != "encoder")
    assert sum(len(tower["blocks"]) for tower in about["diagram"]) >= len(about["stacks"])
    for text in about["examples"]:
        inspection.viewer.view(text)


def test_examples_are_in_a_language_that_is_read() -> None:
    viewer = tiny_viewer("encoder")
    assert all("<mask>" in text for text in overview(viewer, name="")["examples"])


def test_the_summary_is_the_models_own(inspection: Inspection) -> None:
    view = inspection.view
    told = inspection.summary()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["bytes"] == inspection.nbytes > 0
    assert told["answer"] == view.answer
    for name, side in view.sides.items():
        assert told["sides"][name]["ids"] == list(side.ids)
    for one in told["attentions"]:
        assert one["scale"] == inspection.viewer.model.get_submodule(one["name"]).score.scale
        assert one["stats"]["importance"] is None
        assert all(len(values) == one["heads"] for name, values in one["stats"].items() if name != "importance")
    predicts = told["predicts"]
    if inspection.viewer.mode == "encoder":
        assert predicts is None
        return
    assert predicts["side"] == view.side
    sure = [score for score in view.scores() if score is not None]
    assert [score for score, known in zip(predicts["scores"], predicts["known"], strict=True) if known] == sure
    assert predicts["loss"] == pytest.approx(-sum(sure) / len(sure))
    assert predicts["known"][-1] == (inspection.viewer.mode == "encoder-decoder")
    assert predicts["ids"][-1] == view.said(-1)


def test_importance_is_that_of_a_gate_on_each_head() -> None:
    inspection = inspect(tiny_viewer("decoder"), TEXT)
    view = inspection.view
    told = {one["name"]: one["stats"]["importance"] for one in inspection.summary(importance=True)["attentions"]}
    attention = inspection.viewer.model.get_submodule("decoder.1.attention")
    before, step = float(view.loss().detach()), 1e-3
    for head in range(attention.heads):
        hook = attention.see_heads.hook

        def gate(y_BHLK: Tensor, head: int = head) -> Tensor:
            scale = torch.ones(1, attention.heads, 1, 1)
            scale[0, head] += step
            return y_BHLK * scale

        attention.see_heads.hook = gate
        with torch.no_grad():
            slope = (float(view.loss()) - before) / step
        attention.see_heads.hook = hook
        assert told["decoder.1.attention"][head] == pytest.approx(abs(slope), abs=2e-2)


def test_heads_that_nobody_hears_have_no_importance() -> None:
    viewer = tiny_viewer("encoder-decoder")
    deaf = inspect(viewer, TEXT, off=off_of({}, ["decoder.0", "decoder.1"]))
    assert {str(one["stats"]["importance"]) for one in deaf.summary(importance=True)["attentions"]} == {"None"}
    half = inspect(viewer, TEXT, off=off_of({}, ["decoder.1"])).summary(importance=True)["attentions"]
    told = {one["name"]: one["stats"]["importance"] for one in half}
    assert told["decoder.1.cross"] is None
    assert any(value > 0 for value in told["encoder.0.attention"])


def test_tensors_are_what_the_view_sees(inspection: Inspection) -> None:
    for place in attentions_of(inspection.viewer):
        for tap in ("q", "scores", "masked", "weights", "heads", "output"):
            name = f"{place.name}.{tap}"
            assert torch.equal(inspection.at(name), inspection.view.seen([name, "*.weights"])[name].tensor[0])
        assert inspection.tensor(f"{place.name}.bias") is None
    assert inspection.tensor("nothing.of.that.name") is None
    assert inspection.tensor("*.weights") is None
    with pytest.raises(DataError, match="nothing passes"):
        inspection.at("nothing")
    kept = inspection.nbytes
    inspection.forget()
    assert inspection.nbytes == 0 < kept


def test_grouped_heads_have_axes_of_their_own() -> None:
    inspection = inspect(tiny_viewer("decoder", kv_heads=2), TEXT)
    shown = {tap: inspection.tensor(f"decoder.0.attention.{tap}") for tap in ("q", "k")}
    assert {tap: one.axes for tap, one in shown.items() if one is not None} == {"q": "HLK", "k": "GLK"}


def brute(weights: Tensor, queries: list[int], keys: list[int], within: bool) -> dict[str, float]:
    """The statistics of one head, by counting."""
    rows = weights.tolist()
    found: dict[str, list[float]] = {"previous": [], "duplicate": [], "induction": []}
    entropy, distance = [], []
    for i, row in enumerate(rows):
        entropy.append(-sum(w * math.log2(w) for w in row if w > 0))
        distance.append(sum(w * abs(i - j) for j, w in enumerate(row)))
        equal = [j for j in range(len(keys)) if keys[j] == queries[i] and (j < i or not within)]
        places = {
            "previous": [i - 1] if 0 <= i - 1 < len(keys) else [],
            "duplicate": equal,
            "induction": [j + 1 for j in equal if j + 1 < len(keys)],
        }
        for name, chosen in places.items():
            if chosen:
                found[name].append(sum(row[j] for j in chosen))
    means = {name: sum(values) / max(len(values), 1) for name, values in found.items()}
    return {"entropy": sum(entropy) / len(rows), "distance": sum(distance) / len(rows), **means}


@settings(deadline=None, max_examples=40)
@given(
    queries=st.lists(st.integers(0, 2), min_size=1, max_size=6),
    keys=st.lists(st.integers(0, 2), min_size=1, max_size=6),
    within=st.booleans(),
    seed=st.integers(0, 9),
)
def test_statistics_by_counting(queries: list[int], keys: list[int], within: bool, seed: int) -> None:
    keys = queries if within else keys
    torch.manual_seed(seed)
    weights_HLM = (3 * torch.randn(2, len(queries), len(keys))).softmax(-1)
    told = head_statistics(weights_HLM, queries, keys, within=within)
    for head in range(2):
        for name, value in brute(weights_HLM[head].double(), queries, keys, within).items():
            assert told[name][head] == pytest.approx(value, abs=1e-6), name


def test_memory_counts_in_the_entropy_alone() -> None:
    weights_HLM = torch.tensor([[[0.5, 0.5, 0.0], [0.5, 0.25, 0.25]]])
    told = head_statistics(weights_HLM, [7, 7], [7, 7], within=True, slots=1)
    assert told["entropy"] == [pytest.approx((1.0 + 1.5) / 2)]
    assert told["previous"] == told["duplicate"] == [pytest.approx(0.25)]
    assert told["distance"] == [pytest.approx(0.125)]


def test_thumbnails_are_largest_weights(inspection: Inspection) -> None:
    small = inspection.thumbnails(3)
    weights = [inspection.at(f"{place.name}.weights") for place in attentions_of(inspection.viewer)]
    assert small.shape == (sum(len(one) for one in weights), 3, 3)
    assert small.dtype == torch.uint8
    at = 0
    for one in weights:
        for head in one:
            assert int(small[at].max()) == round(float(head.max()) * 255)
            corner = head[: math.ceil(head.shape[0] / 3), : math.ceil(head.shape[1] / 3)]
            assert int(small[at, 0, 0]) == round(float(corner.max()) * 255)
            at += 1


def test_the_lens_is_that_of_the_view(inspection: Inspection) -> None:
    told, lens = inspection.lens(3), inspection.view.lens()
    assert len(told["layers"]) == len(lens.layers) == 3
    probability, word = lens.best(3)
    ids = [[[one["id"] for one in best] for best in layer] for layer in told["best"]]
    assert ids == word[:, 0].tolist()
    np.testing.assert_allclose([[[one["probability"] for one in best] for best in layer] for layer in told["best"]],
                               probability[:, 0].numpy(), rtol=1e-4)  # fmt: skip
    said = torch.tensor([[inspection.view.said(at) for at in range(word.shape[2])]])
    if inspection.viewer.mode == "encoder":
        assert told["rank"] is None
    else:
        assert told["rank"] == lens.rank(said)[:, 0].tolist()


def test_words_that_a_layer_moves_are_those_of_the_whole_vocabulary(inspection: Inspection) -> None:
    """Also where they are among the best of neither layer: by brute force."""
    p_XLV = inspection.view.lens().logits_XBLV[:, 0].softmax(-1).double()
    told = inspection.lens(1)["moved"]
    assert told[0] is None
    for layer, moves in enumerate(told[1:], 1):
        for by_V, said in zip(p_XLV[layer] - p_XLV[layer - 1], moves, strict=True):
            rising = sorted(by_V.tolist())
            promoted, suppressed = [x for x in rising[:-4:-1] if x > 0], [x for x in rising[:3] if x < 0]
            assert [one["by"] for one in said["promoted"]] == pytest.approx(promoted, abs=1e-6)
            assert [one["by"] for one in said["suppressed"]] == pytest.approx(suppressed, abs=1e-6)
            for one in [*said["promoted"], *said["suppressed"]]:
                assert one["by"] == pytest.approx(float(by_V[one["id"]]), abs=1e-6)
                assert one["token"] == inspection.word(one["id"])


def test_shares_add_up(inspection: Inspection) -> None:
    told = inspection.shares(1, word=5, against=6)
    logits_V = inspection.view.run()[0, 1].double()
    assert told["logit"] == pytest.approx(float(logits_V[5] - logits_V[6]), abs=1e-4)
    assert sum(one["value"] for one in told["shares"]) == pytest.approx(told["logit"])
    heads = [one for one in told["shares"] if one["head"] is not None]
    assert {one["name"] for one in heads} == {f"{one['part']}.head.{one['head']}" for one in heads}
    assert inspection.shares(0)["word"]["id"] == inspection.view.said(0)
    for asked in ({"position": 99}, {"position": 0, "word": 999}, {"position": 0, "against": -1}):
        with pytest.raises(DataError):
            inspection.shares(**asked)


@pytest.mark.parametrize("choices", [{}, {"kv_heads": 2}, {"persistent": 2}])
def test_contributions_by_brute_force(choices: dict[str, int]) -> None:
    viewer = tiny_viewer("encoder-decoder", **choices)
    inspection = inspect(viewer, TEXT, off=off_of({"decoder.0.cross": [1]}, ["decoder.1"]))
    told = contributions(inspection)
    assert told["layers"] == [one.name for layer in sublayers(viewer) for one in layer]
    for name in ("encoder.0.attention", "decoder.0.cross"):
        attention = viewer.model.get_submodule(name)
        assert isinstance(attention, MultiHeadAttention)
        weights, v = inspection.at(f"{name}.weights"), inspection.at(f"{name}.v")
        if attention.memory is not None:
            v = torch.cat([attention.memory.values_GPK.detach(), v], 1)
        out = attention.out.weight.detach()
        for i in range(weights.shape[1]):
            for j in range(weights.shape[2]):
                moved = torch.zeros(16)
                for head in range(4):
                    if name == "decoder.0.cross" and head == 1:
                        continue
                    group = head // (4 // attention.kv_heads)
                    moved += weights[head, i, j] * out[:, 4 * head : 4 * head + 4] @ v[group, j]
                assert told["norms"][name][i][j] == pytest.approx(float(moved.norm()), abs=1e-4)
    assert not np.any(told["norms"]["decoder.1.attention"])
    assert not np.any(told["feedforward"]["decoder.1.feedforward"])
    assert told["stream"]["decoder.1"] == told["stream"]["decoder.0"]


@pytest.mark.parametrize("name", sorted(POSITIONS))
def test_positions_are_the_models_own(name: str) -> None:
    viewer = tiny_viewer("decoder", positions=name)
    picture = positions_of(viewer, 5)
    about = picture.about()
    assert about["kind"] == name
    attention = viewer.model.decoder.layers[0].attention
    if picture.what == "none":
        assert picture.tensor is None
        assert name == "none"
        return
    assert picture.tensor is not None
    assert about["shape"] == list(picture.tensor.shape)
    assert not picture.tensor.requires_grad
    if name in {"t5", "alibi"}:
        inspection = inspect(viewer, "a b c d e")
        assert torch.allclose(picture.tensor, inspection.at("decoder.0.attention.bias"))
    elif name.startswith("rotary"):
        q_BHLK = torch.zeros(1, 1, 5, 4)
        q_BHLK[..., 0] = 1.0
        turned = attention.positions.rotate(q_BHLK, torch.arange(5)[None])[0, 0, :, 0]
        assert torch.allclose(turned, picture.tensor[:, 0].cos(), atol=1e-6)
    elif name in {"sinusoidal", "sinusoidal_halves", "learned"}:
        inspection = inspect(viewer, "a b c d e")
        added = inspection.at("embed.placed") - inspection.at("embed.tokens")
        assert torch.allclose(added, picture.tensor, atol=1e-6)
    assert positions_of(tiny_viewer("decoder", positions="learned"), 500).about()["shape"] == [32, 16]


def test_long_texts_and_unknown_heads_are_refused() -> None:
    viewer = tiny_viewer("decoder")
    with pytest.raises(DataError, match="at most 3"):
        inspect(viewer, TEXT, longest=3)
    with pytest.raises(ConfigError, match="heads 0 to 3"):
        inspect(viewer, TEXT, off=off_of({"decoder.0.attention": [9]}))
    with pytest.raises(ConfigError, match="no attention"):
        inspect(viewer, TEXT, off=off_of({"decoder.7.attention": [0]}))
    assert off_of({"encoder.0@1.attention": [2], "encoder.0.attention": [1]}).heads == {"encoder.0.attention": [1, 2]}
    assert plain_name("encoder.0.attention") == ("encoder.0.attention", 0)


def test_a_page_holds_what_a_server_would_answer(inspection: Inspection) -> None:
    held = recording_of(inspection.view, name="tiny")
    assert held["model"]["name"] == "tiny"
    name = f"{attentions_of(inspection.viewer)[-1].name}.weights"
    packed = held["tensors"][name]
    read = np.frombuffer(base64.b64decode(packed["data"]), "<f4").reshape(packed["shape"])
    assert np.array_equal(read, inspection.at(name).numpy())
    assert (held["decode"] is None) == (inspection.viewer.mode == "encoder")
    assert len(held["shares"]) == len(inspection.view.sides[inspection.view.side].ids)
    first = f"{attentions_of(inspection.viewer)[0].name}.weights"
    small = recording_of(inspection.view, limit=inspection.at(first).nbytes)
    assert list(small["tensors"]) == [first]


def test_a_page_is_one_file_and_a_notebook_shows_it() -> None:
    view = inspect(tiny_viewer("decoder"), "a </script> b").view
    page = page_of(view, name="<b>tiny</b>")
    assert page.startswith("<!doctype html>")
    assert "a </script>" not in page
    shown = Explorer(view)._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert "<script" not in shown


def test_an_encoder_without_words_has_a_page_too() -> None:
    held = recording_of(inspect(tiny_viewer("encoder", words=False), TEXT).view)
    assert held["lens"] is None
    assert held["shares"] == {}


def test_words_that_no_tokenizer_has_go_by_their_numbers() -> None:
    tokenizer = tiny_viewer("decoder").writer
    assert shown(tokenizer.vocabulary_size + 7, tokenizer) == f"<{tokenizer.vocabulary_size + 7}>"
    assert shown(tokenizer.encode("a")[0], tokenizer) == "a"
