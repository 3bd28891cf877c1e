"""Without positions attention is over a set: outputs move with their inputs, and nothing else about order shows."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from clearhead.nn.attention import MultiHeadAttention, basic_attention
from clearhead.nn.embed import PointEmbedding
from clearhead.nn.heads import ClassHead, Pooler
from clearhead.nn.masks import causal
from clearhead.nn.positions import POSITIONS
from clearhead.nn.residual import RESIDUALS
from clearhead.nn.rows import Rows
from clearhead.nn.scores import SCORES
from clearhead.nn.stack import COMBINATIONS
from tests.parity.plain import same
from tests.unit.small import small_model

LENGTH = 6
orders = st.permutations(range(LENGTH)).map(torch.tensor)
SUSAN_GAVE = torch.tensor([[1, 2, 3, 4, 5]])  # Susan gave roses to Mary
MARY_GAVE = torch.tensor([[5, 2, 3, 4, 1]])  # Mary gave roses to Susan
SWAP = torch.tensor([4, 1, 2, 3, 0])


def shaken(module: Any) -> Any:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return module.eval()


@given(orders)
def test_attention_without_parameters_is_equivariant(order_L: Tensor) -> None:
    x_BLD = torch.randn(2, LENGTH, 4)
    same(basic_attention(x_BLD[:, order_L]), basic_attention(x_BLD)[:, order_L])


@given(orders, st.sampled_from(sorted(SCORES)), st.sampled_from([4, 2, 1]))
def test_outputs_move_with_their_inputs(order_L: Tensor, score: str, kv_heads: int) -> None:
    attention = shaken(MultiHeadAttention(8, 4, kv_heads=kv_heads, score=SCORES[score](4, 2, 1.0)))
    x_BLD = torch.randn(2, LENGTH, 8)
    same(attention(x_BLD[:, order_L])[0], attention(x_BLD)[0][:, order_L])


@given(orders)
def test_each_output_is_invariant_to_the_order_of_what_it_reads(order_L: Tensor) -> None:
    attention = shaken(MultiHeadAttention(8, 2).across())
    x_BLD, context_BMD = torch.randn(2, 3, 8), torch.randn(2, LENGTH, 8)
    same(attention(x_BLD, context_BMD=context_BMD[:, order_L])[0], attention(x_BLD, context_BMD=context_BMD)[0])


@given(orders, st.sampled_from(sorted(RESIDUALS)), st.sampled_from(sorted(COMBINATIONS)))
def test_whole_encoders_too_and_their_mean_is_invariant(order_L: Tensor, residual: str, combination: str) -> None:
    model = shaken(small_model("encoder_only", positions="none", residual=residual, combination=combination))
    x_BLD = torch.randn(2, LENGTH, 16)
    straight, _ = model.encoder(x_BLD)
    mixed, _ = model.encoder(x_BLD[:, order_L])
    same(mixed, straight[:, order_L], 1e-4)
    same(mixed.mean(1), straight.mean(1), 1e-4)


def test_a_causal_mask_brings_order() -> None:
    """The control: the properties above can fail."""
    attention = MultiHeadAttention(8, 2).eval()
    x_BLD, order_L = torch.randn(1, 3, 8), torch.tensor([2, 0, 1])
    moved = attention(x_BLD, mask=causal())[0][:, order_L]
    assert not torch.allclose(attention(x_BLD[:, order_L], mask=causal())[0], moved, atol=1e-3)


def test_who_gave_roses_to_whom_is_invisible_without_positions() -> None:
    model = shaken(small_model("encoder_only", positions="none", pooling="mean", classes=3))
    same(model(MARY_GAVE), model(SUSAN_GAVE)[:, SWAP])
    same(model.classes(MARY_GAVE), model.classes(SUSAN_GAVE))


@pytest.mark.parametrize("positions", sorted(set(POSITIONS) - {"none"}))
def test_who_gave_roses_to_whom_is_seen_with_any_positions(positions: str) -> None:
    model = shaken(small_model("encoder_only", positions=positions, pooling="mean", classes=3))
    assert not torch.allclose(model(MARY_GAVE), model(SUSAN_GAVE)[:, SWAP], atol=1e-3)
    assert not torch.allclose(model.classes(MARY_GAVE), model.classes(SUSAN_GAVE), atol=1e-4)


@given(orders, st.sampled_from(["mean", "maximum"]))
def test_a_cloud_of_points_is_classified_alike_in_any_order(order_L: Tensor, pooling: str) -> None:
    encoder = small_model("encoder_only", positions="none").encoder
    embed, pool, head = PointEmbedding(3, 16), Pooler(16, pooling), ClassHead(16, 4)
    shaken(nn.ModuleList([embed, encoder, pool, head]))

    def classify(points_BLW: Tensor) -> Tensor:
        hidden_BLD, _ = encoder(embed(points_BLW))
        return head(pool(hidden_BLD, Rows.of(None, LENGTH, pack=False)))

    points_BLW = torch.randn(3, LENGTH, 3)
    same(classify(points_BLW[:, order_L]), classify(points_BLW), 1e-4)
    assert not torch.allclose(classify(points_BLW + 1), classify(points_BLW), atol=1e-3)
