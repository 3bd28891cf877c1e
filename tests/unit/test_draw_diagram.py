"""Diagrams come from the modules, and the equivalences from arrays that are exactly what they claim."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from clearhead.draw.diagram import DEPTHS, architecture, norm_placements
from clearhead.draw.equivalents import attention_as_convolution, attention_as_linear, heads_as_matrices, reordered
from clearhead.draw.figure import PAGE, Sheet
from clearhead.draw.minimal import minimal_attention, segment_recurrence
from clearhead.draw.scale import around_zero, shares
from clearhead.draw.wiring import Part, plan, sublayer_plan
from clearhead.draw.words import number
from clearhead.errors import ConfigError, ShapeError
from clearhead.models.ft_transformer import FTTransformer, FTTransformerConfig
from clearhead.models.presets import build, preset
from clearhead.models.tab_transformer import TabTransformer, TabTransformerConfig
from clearhead.nn.attention import MultiHeadAttention, basic_attention
from clearhead.nn.equivalence import convolution_as_attention, linear_as_attention
from clearhead.nn.norm import LayerNorm
from clearhead.nn.residual import RESIDUALS, Join
from clearhead.tap import watching
from tests.unit.drawn import has_cells, inside, saves, texts

PLACE = Join(lambda: LayerNorm(4), 4, 12, 0.0, 0.5)
FORMULAS = {
    "pre_norm": "x + F(LN(x))",
    "post_norm": "LN(x + F(x))",
    "inner_norm": "x + LN(F(x))",
    "sandwich": "x + LN(F(LN(x)))",
    "deepnorm": "LN(1.86 x + F(x))",
    "rezero": "x + α F(x)",
    "admin": "LN(ω ⊙ x + F(x))",
    "scaled": "0.5 x + F(LN(x))",
    "no_residual": "F(LN(x))",
}


def tiny(residual: str = "post_norm", **changes: Any) -> nn.Module:
    config = preset("transformer-tiny", vocabulary=11, encoder_layers=3, decoder_layers=2, residual=residual)
    return build(replace(config, **changes))


@pytest.mark.parametrize("name", sorted(RESIDUALS))
def test_a_placement_is_drawn_from_its_slots(name: str) -> None:
    residual = RESIDUALS[name].build(PLACE)
    assert sublayer_plan(residual, Part("F")).formula == FORMULAS[name]
    shown = texts(norm_placements({name: residual}))
    assert {name, FORMULAS[name], "F"} <= set(shown)
    norms = sum(isinstance(module, LayerNorm) for module in residual.modules())
    assert shown.count("LayerNorm") == norms
    assert shown.count("+") == (name != "no_residual")


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("residual", ["post_norm", "pre_norm"])
def test_an_encoder_decoder_at_every_depth(depth: str, residual: str, tmp_path: Path) -> None:
    model = tiny(residual)
    shown = Counter(texts(architecture(model, depth=depth, on=Sheet(dark=residual == "pre_norm"))))
    final = 2 * (residual == "pre_norm")
    assert shown["embedding"] == shown["+ sinusoids"] == 2
    assert shown["K, V"] == shown["linear"] == shown["→ 11"] == 1
    drawn = {"black box": (0, 0), "stack": (0, 0), "block": (1, 1), "two blocks": (2, 2)}[depth]
    assert (shown["self-attention"], shown["cross-attention"]) == drawn
    assert shown["masked attention"] == shown["cross-attention"]
    assert shown["feed-forward"] == 2 * drawn[0]
    assert shown["LayerNorm"] == 5 * drawn[0] + final
    assert shown["+"] == 5 * drawn[0]
    if depth == "block":
        assert shown["3 ×"] == shown["2 ×"] == 1
        saves(architecture(model), tmp_path)
    if depth == "stack":
        assert {"encoder layer 3", "decoder layer 2"} <= set(shown)
    if depth == "black box":
        assert {"3 layers", "2 layers"} <= set(shown)


def test_a_deep_stack_leaves_the_middle_out() -> None:
    model = build(preset("gpt-tiny", vocabulary=5, layers=40, width=8, heads=1, hidden=8))
    shown = texts(architecture(model, depth="stack"))
    assert [t for t in shown if t.startswith("decoder layer")] == [f"decoder layer {i}" for i in (1, 2, 40)]


@pytest.mark.parametrize("name", ["gpt-tiny", "modern-tiny", "bert-tiny", "vit-tiny", "transformer-tiny"])
@pytest.mark.parametrize("depth", DEPTHS)
def test_every_architecture_is_a_figure(name: str, depth: str) -> None:
    model = build(name) if name == "vit-tiny" else build(name, vocabulary=7)
    shown = texts(architecture(model, depth=depth, on=PAGE))
    if depth == "block":
        heads = model.config.heads
        assert any(t.startswith(f"{heads} heads × {model.config.width // heads}") for t in shown)


def test_heads_that_can_be_asked_by_themselves_stand_side_by_side() -> None:
    (tower,) = plan(build("bert-tiny", vocabulary=7, classes=3, labels=4))
    names = [[part.name for part in chain] for chain in tower.heads]
    assert names == [["word head"], ["pooling", "linear"], ["linear"]]
    (image,) = plan(build("vit-tiny"))
    assert [part.name for part in image.heads[0]] == ["pooling", "linear"]


def test_tables_too() -> None:
    model = FTTransformer(FTTransformerConfig(numbers=2, categories=(3,), outputs=2, layers=3, width=8, heads=2))
    (tower,) = plan(model)
    assert [count for _, count in tower.blocks] == [1, 1, 1]  # the first has no norm, the last reads `[CLS]` alone
    assert "the first asks" in texts(architecture(model))
    tab = TabTransformer(TabTransformerConfig(numbers=3, categories=(3, 4), outputs=2, layers=2))
    assert {"‖ numbers", "MLP", "2 ×"} <= set(texts(architecture(tab)))


def test_what_has_no_blocks_and_what_has_no_such_depth_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match="Linear has no stack"):
        architecture(nn.Linear(2, 2))
    with pytest.raises(ConfigError, match="'atom'"):
        architecture(tiny(), depth="atom")
    with pytest.raises(ConfigError, match="no residual"):
        norm_placements({})


@pytest.mark.parametrize("across", [False, True])
def test_the_parts_of_an_attention_have_its_sizes(across: bool) -> None:
    attention = MultiHeadAttention(12, 4, kv_heads=2, head_width=5)
    shown = texts(minimal_attention(attention.across() if across else attention))
    assert {"12 → 20", "20 → 12", "softmax", "4 × 5", "W Q", "W K", "W V", "W O"} <= set(shown)
    assert shown.count("12 → 10") == 2
    assert ("context" in shown) == across


def test_segments_reach_back_by_layers() -> None:
    figure = segment_recurrence(3, 4, 2)
    assert figure.says.startswith("7 of 8 places")
    assert {"segment 1", "segment 2"} <= set(texts(figure))
    with pytest.raises(ConfigError, match="512"):
        segment_recurrence(1, 256, 1)
    with pytest.raises(ConfigError, match="layers=0"):
        segment_recurrence(0, 4, 2)


def weights_of(attention: MultiHeadAttention, mask: Any, x_BLD: Tensor) -> np.ndarray:
    seen: list[Tensor] = []
    with torch.no_grad(), watching(attention, {"weights": lambda w: seen.append(w) or w}):
        attention(x_BLD, mask=mask)
    return seen[0][0].double().numpy()


def test_reordered_words_keep_their_outputs() -> None:
    first, second = "Susan gave roses to Mary".split(), "Mary gave roses to Susan".split()
    embed = {word: torch.randn(5, dtype=torch.float64) for word in first}
    a, b = (basic_attention(torch.stack([embed[w] for w in words])[None])[0].numpy() for words in (first, second))
    figure = reordered(first, second, a, b)
    assert texts(figure).count("Susan") == 2
    for vector in (*a, *b):
        assert has_cells(figure, around_zero(np.concatenate([a, b])), vector)
    assert float(figure.says.split()[-1]) < 1e-12
    moved = reordered(first, second, a, b + 0.5)
    assert float(moved.says.split()[-1]) == pytest.approx(0.5)
    with pytest.raises(ShapeError, match="another order"):
        reordered(first, ["Bob", *second[1:]], a, b)


def test_heads_side_by_side_are_the_sum_over_heads() -> None:
    z, w = np.random.default_rng(0).normal(size=(3, 4, 2)), np.random.default_rng(1).normal(size=(6, 5))
    figure = heads_as_matrices(z, w)
    total = sum(z[i] @ w[2 * i : 2 * i + 2] for i in range(3))
    assert has_cells(figure, around_zero(total), total)
    assert has_cells(figure, around_zero(w), w)
    assert {"4 × 6", "6 × 5", "4 × 5"} <= set(texts(figure))
    with pytest.raises(ShapeError, match="6 rows"):
        heads_as_matrices(z, w[:5])


def test_a_fully_connected_layer_is_drawn_from_its_attention() -> None:
    layer = nn.Linear(12, 5)
    attention, mask = linear_as_attention(layer, 4)
    weights = weights_of(attention, mask, torch.randn(1, 4, 3))
    w = layer.weight.detach().double().numpy()
    figure = attention_as_linear(weights, w.T)
    for head in range(4):
        assert has_cells(figure, shares(weights), np.eye(4)[[head] * 4])
    assert has_cells(figure, around_zero(w), w)
    assert {number(v) for v in w.flatten()} <= set(texts(figure))


def test_a_convolution_is_drawn_from_its_attention() -> None:
    attention, mask = convolution_as_attention(nn.Conv2d(2, 3, 3, padding=1), 4, 5)
    weights = weights_of(attention, mask, torch.randn(1, 20, 2))
    figure = attention_as_convolution(weights, 4, 5)
    assert {"head 1: −1, −1", "head 5: 0, 0", "head 9: +1, +1"} <= set(texts(figure))
    for head, (down, right) in enumerate((r, c) for r in (-1, 0, 1) for c in (-1, 0, 1)):
        looks = np.zeros((4, 5))
        looks[2 + down, 2 + right] = 1.0
        assert has_cells(figure, shares(weights), looks)
        np.testing.assert_array_equal(weights[head, 12].reshape(4, 5), looks)
    with pytest.raises(ShapeError, match="k² heads"):
        attention_as_convolution(weights[:8], 4, 5)
    with pytest.raises(ShapeError, match="no pixel 20"):
        attention_as_convolution(weights, 4, 5, pixel=20)


def test_all_of_them_stay_on_the_sheet() -> None:
    random = np.random.default_rng(0)
    inside(norm_placements({name: row.build(PLACE) for name, row in RESIDUALS.items()}))
    inside(minimal_attention(MultiHeadAttention(8, 2)))
    inside(segment_recurrence(3, 4, 2, segments=3))
    inside(heads_as_matrices(random.normal(size=(8, 3, 64)), random.normal(size=(512, 512))))
    words = ["Donaudampfschifffahrtsgesellschaft", "e\u0301", "שלום"]
    vectors = random.normal(size=(3, 64))
    inside(reordered(words, words[::-1], vectors, vectors[::-1]))
    inside(architecture(build("bert-tiny", vocabulary=7, classes=3, labels=4, next_sentence=True)))
