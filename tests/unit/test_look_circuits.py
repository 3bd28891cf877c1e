"""Circuits against scores and outputs that the model computes itself; neurons against plain loops."""

import pytest
import torch

from clearhead.errors import ConfigError, ShapeError
from clearhead.look.capture import look
from clearhead.look.circuits import COMPOSITIONS, composition, excited_by, ov, qk, words_of_neuron
from tests.unit.small import read, small_model, tokens


@pytest.mark.parametrize("path", ["decoder.1.attention", "decoder.1.cross"])
@pytest.mark.parametrize("kv_heads", [None, 2])
def test_qk_and_ov_are_what_the_head_does(path: str, kv_heads: int | None) -> None:
    model = small_model("encoder_decoder", kv_heads=kv_heads, biases=False)
    attention, x_BLD = model.get_submodule(path), torch.randn(1, 3, 16)
    context = {"context_BMD": x_BLD} if path.endswith("cross") else {}
    with look(attention, ["scores", "weights"]) as seen, torch.no_grad():
        y_BLD, _ = attention(x_BLD, **context)
    sent_LD = torch.zeros(3, 16)
    for head in range(4):
        by_hand = x_BLD[0] @ qk(model, path, head) @ x_BLD[0].T
        torch.testing.assert_close(seen["scores"].tensor[0, head], by_hand, atol=1e-5, rtol=1e-4)
        sent_LD += seen["weights"].tensor[0, head] @ (x_BLD[0] @ ov(model, path, head).T)
    torch.testing.assert_close(y_BLD[0], sent_LD, atol=1e-5, rtol=1e-4)
    with pytest.raises(ConfigError, match="heads 0 to 3, not 4"):
        qk(model, path, 4)


@pytest.mark.parametrize("kind", sorted(COMPOSITIONS))
def test_composition_is_a_ratio_of_norms(kind: str) -> None:
    model = small_model("encoder_decoder").double()
    found = composition(model, kind)
    of = {name: i for i, name in enumerate(found.names)}
    assert len(of) == 4 * 6
    matrix = {
        "q": lambda path, head: qk(model, path, head).T,
        "k": lambda path, head: qk(model, path, head),
        "v": lambda path, head: ov(model, path, head),
    }[kind]
    earlier = {
        "encoder.1.attention": ["encoder.0.attention"],
        "decoder.0.attention": [],
        "decoder.1.attention": ["decoder.0.attention", "decoder.0.cross"],
        "decoder.0.cross": ["decoder.0.attention"] if kind == "q" else ["encoder.0.attention", "encoder.1.attention"],
    }
    for later, befores in earlier.items():
        row = found.score_XX[of[f"{later}.head.2"]]
        expected = torch.zeros_like(row)
        for before in befores:
            for head in range(4):
                second, first = matrix(later, 2), ov(model, before, head)
                expected[of[f"{before}.head.{head}"]] = (second @ first).norm() / (second.norm() * first.norm())
        torch.testing.assert_close(row, expected)


def test_an_unknown_composition_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown composition 'o'"):
        composition(small_model("decoder_only"), "o")


def test_the_texts_that_excite_a_neuron() -> None:
    model, token_BL = small_model("decoder_only"), tokens(3, 4)
    texts = [[f"w{token}" for token in row[:count]] for row, count in zip(token_BL.tolist(), (4, 2, 3), strict=True)]
    with look(model, "decoder.1.*") as seen:
        read(model, token_BL)
    hidden = seen["decoder.1.feedforward.hidden"]
    found = excited_by(hidden, texts, neuron=5, count=4)
    values = {
        (row, place): float(hidden.tensor[row, place, 5])
        for row, text in enumerate(texts)
        for place in range(len(text))
    }
    assert [one.value for one in found] == sorted(values.values(), reverse=True)[:4]
    assert all(values[one.row, one.position] == one.value for one in found)
    assert all(list(one.text) == texts[one.row][: one.position + 1] for one in found)
    with pytest.raises(ShapeError, match="2 texts do not lie"):
        excited_by(hidden, texts[:2], neuron=5)
    with pytest.raises(ShapeError, match="axes BLF"):
        excited_by(seen["decoder.1.add_feedforward.sum"], texts, neuron=5)


def test_a_neuron_that_layers_share_is_excited_in_any_of_them() -> None:
    model, token_BL = small_model("encoder_only", layers=3, distinct=1, init="xavier"), tokens(3, 4)
    texts = [[f"w{token}" for token in row] for row in token_BL.tolist()]
    with look(model, "encoder.0.feedforward.hidden") as seen:
        read(model, token_BL)
    hidden = seen["encoder.0.feedforward.hidden"]
    for neuron in range(24):
        found = {(one.row, one.position): one.value for one in excited_by(hidden, texts, neuron, count=12)}
        for (row, place), value in found.items():
            assert value == max(float(each[row, place, neuron]) for each in hidden.values)
        assert len(found) == 12


@pytest.mark.parametrize("mode", ["decoder_only", "encoder_only"])
def test_the_words_that_a_neuron_speaks_for(mode: str) -> None:
    model = small_model(mode)
    stack = "encoder" if mode == "encoder_only" else "decoder"
    found = words_of_neuron(model, f"{stack}.0.feedforward", 3, count=2)
    with torch.no_grad():
        value_D = model.get_submodule(stack).layers[0].feedforward.narrow.weight[:, 3]
        if mode == "encoder_only":
            value_D = model.word_head.dense.weight @ value_D
        logits = [float(word_D @ value_D) for word_D in model.embed.tokens.weight]
    assert [word for word, _ in found] == sorted(range(13), key=lambda word: -logits[word])[:2]
    assert found[0][1] == pytest.approx(max(logits), abs=1e-6)
    with pytest.raises(ConfigError, match="is no feed-forward layer"):
        words_of_neuron(model, f"{stack}.0.attention", 3)
