"""Attention equals a double loop over positions: every score, mask and grouping of heads."""

import pytest
import torch

from clearhead.nn.attention import Biases, MultiHeadAttention
from clearhead.nn.masks import Mask, causal, graph, padding, prefix, window
from clearhead.nn.rows import Rows
from clearhead.nn.scores import SCORES
from clearhead.tap import watching
from tests.parity.plain import PLAIN_SCORES, Allowed, plain_attention, same

WIDTH, HEADS, LENGTH = 8, 4, 5
COUNTS = torch.tensor([5, 2])
ADJACENCY = torch.tensor([[1, 1, 0, 0, 0], [0, 1, 0, 0, 1], [0, 0, 0, 0, 0], [1, 0, 1, 1, 0], [1, 1, 1, 1, 1]])

# name -> (the mask, the same for row b of the batch as a question about two positions)
VIEWS = {
    "everything": (Mask(), lambda b: lambda h, i, j: True),
    "causal": (causal(), lambda b: lambda h, i, j: j <= i),
    "window": (window(2), lambda b: lambda h, i, j: abs(i - j) < 2),
    "causal window": (causal() & window(3), lambda b: lambda h, i, j: 0 <= i - j < 3),
    "prefix": (prefix(torch.tensor([3, 1])), lambda b: lambda h, i, j: j <= i or j < (3, 1)[b]),
    "padding": (padding(Rows.of(COUNTS, LENGTH, pack=False)), lambda b: lambda h, i, j: j < (5, 2)[b]),
    "graph": (graph(ADJACENCY), lambda b: lambda h, i, j: bool(ADJACENCY[i, j])),
    "all of it": (
        padding(Rows.of(COUNTS, LENGTH, pack=False)) & causal() & window(4) & graph(ADJACENCY),
        lambda b: lambda h, i, j: j < (5, 2)[b] and 0 <= i - j < 4 and bool(ADJACENCY[i, j]),
    ),
}


def shaken(attention: MultiHeadAttention) -> MultiHeadAttention:
    """Every parameter at random, so that no bias is zero and no matrix the identity."""
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.normal_(std=0.5)
    return attention.eval()


@pytest.mark.parametrize("watched", [False, True], ids=["fused", "watched"])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("name", sorted(SCORES))
def test_every_score_and_grouping(name: str, kv_heads: int, watched: bool) -> None:
    attention = shaken(
        MultiHeadAttention(WIDTH, HEADS, kv_heads=kv_heads, score=SCORES[name](HEADS, WIDTH // HEADS, 1.0))
    )
    x_BLD = torch.randn(2, LENGTH, WIDTH)
    with torch.no_grad(), watching(attention, {"weights": lambda w: w} if watched else {}):
        y_BLD, _ = attention(x_BLD)
    score = PLAIN_SCORES[name](attention.score)
    for x_LD, y_LD in zip(x_BLD, y_BLD, strict=True):
        same(y_LD, plain_attention(attention, x_LD, score))


@pytest.mark.parametrize("watched", [False, True], ids=["fused", "watched"])
@pytest.mark.parametrize("view", sorted(VIEWS))
def test_every_mask(view: str, watched: bool) -> None:
    attention = shaken(MultiHeadAttention(WIDTH, HEADS, kv_heads=2))
    mask, allowed_in_row = VIEWS[view]
    x_BLD = torch.randn(2, LENGTH, WIDTH)
    with torch.no_grad(), watching(attention, {"weights": lambda w: w} if watched else {}):
        y_BLD, _ = attention(x_BLD, mask=mask)
    for b in range(2):
        allowed: Allowed = allowed_in_row(b)
        expected = plain_attention(attention, x_BLD[b], PLAIN_SCORES["scaled_dot"](attention.score), allowed=allowed)
        same(y_BLD[b], expected)


@pytest.mark.parametrize("name", sorted(SCORES))
def test_cross_attention_asks_a_context_of_another_width_and_length(name: str) -> None:
    score = SCORES[name](HEADS, WIDTH // HEADS, 1.0)
    attention = shaken(MultiHeadAttention(WIDTH, HEADS, kv_heads=2, score=score).across(6))
    x_BLD, context_BMD = torch.randn(2, 3, WIDTH), torch.randn(2, LENGTH, 6)
    with torch.no_grad():
        y_BLD, _ = attention(x_BLD, context_BMD=context_BMD, mask=padding(Rows.of(COUNTS, LENGTH, pack=False)))
    for b, count in enumerate(COUNTS.tolist()):
        same(
            y_BLD[b],
            plain_attention(
                attention,
                x_BLD[b],
                PLAIN_SCORES[name](attention.score),
                context_BMD[b],
                lambda h, i, j, count=count: j < count,  # type: ignore[misc]
            ),
        )


def test_heads_of_a_width_of_their_own_and_no_biases() -> None:
    none = Biases(q=False, k=False, v=False, out=False)
    attention = shaken(MultiHeadAttention(WIDTH, 3, head_width=5, biases=none))
    x_BLD = torch.randn(1, LENGTH, WIDTH)
    with torch.no_grad():
        y_BLD, _ = attention(x_BLD, mask=causal())
    score = PLAIN_SCORES["scaled_dot"](attention.score)
    same(y_BLD[0], plain_attention(attention, x_BLD[0], score, allowed=lambda h, i, j: j <= i))


def test_a_mask_of_each_head() -> None:
    attention = shaken(MultiHeadAttention(WIDTH, HEADS))
    allowed_HLM = torch.rand(HEADS, LENGTH, LENGTH) < 0.5
    x_BLD = torch.randn(1, LENGTH, WIDTH)
    with torch.no_grad():
        y_BLD, _ = attention(x_BLD, mask=Mask(allowed=allowed_HLM))
    score = PLAIN_SCORES["scaled_dot"](attention.score)
    expected = plain_attention(attention, x_BLD[0], score, allowed=lambda h, i, j: bool(allowed_HLM[h, i, j]))
    same(y_BLD[0], expected)


def test_every_score_has_its_formula() -> None:
    assert sorted(PLAIN_SCORES) == sorted(SCORES)
