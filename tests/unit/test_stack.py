"""Blocks and stacks: in which order things run, and what reaches over several layers."""

import pytest
import torch
from torch import Tensor, nn

from clearhead.errors import ShapeError
from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.block import Block
from clearhead.nn.feedforward import FEEDFORWARDS
from clearhead.nn.masks import causal
from clearhead.nn.norm import LayerNorm
from clearhead.nn.residual import Residual
from clearhead.nn.stack import COMBINATIONS, DenseCombination, Stack
from clearhead.tap import named_taps
from tests.parity.plain import same
from tests.unit.small import small_model, tokens

WIDTH = 8


def block(*, cross: bool = False, feedforward: str = "relu") -> Block:
    asking = MultiHeadAttention(WIDTH, 2).across() if cross else None
    layer = FEEDFORWARDS[feedforward](WIDTH, 12, 0.0, True)
    return Block(MultiHeadAttention(WIDTH, 2), layer, lambda: Residual(before=LayerNorm(WIDTH)), asking)


def test_a_block_is_attention_then_context_then_feed_forward() -> None:
    b = block(cross=True)
    assert b.cross is not None
    assert b.add_cross is not None
    x_BLD, context_BMD = torch.randn(2, 4, WIDTH), torch.randn(2, 3, WIDTH)
    y_BLD, cache = b(x_BLD, mask=causal(), context_BMD=context_BMD)
    a_BLD = x_BLD + b.attention(b.add_attention.before(x_BLD), mask=causal())[0]
    c_BLD = a_BLD + b.cross(b.add_cross.before(a_BLD), context_BMD=context_BMD)[0]
    same(y_BLD, c_BLD + b.feedforward(b.add_feedforward.before(c_BLD)))
    assert cache is None


def test_a_block_of_attention_alone() -> None:
    b = block(feedforward="none")
    x_BLD = torch.randn(2, 4, WIDTH)
    same(b(x_BLD)[0], x_BLD + b.attention(b.add_attention.before(x_BLD))[0])
    assert not [name for name, _ in b.named_parameters() if "feedforward" in name]


def test_a_stack_is_its_blocks_then_the_norm() -> None:
    blocks, norm = [block() for _ in range(3)], nn.LayerNorm(WIDTH)
    x_BLD = torch.randn(2, 4, WIDTH)
    y_BLD = x_BLD
    for b in blocks:
        y_BLD, _ = b(y_BLD, mask=causal())
    stack = Stack(blocks, norm=norm)
    same(stack(x_BLD, mask=causal())[0], norm(y_BLD))
    assert len(stack) == 3
    assert stack.layers == blocks


def test_layers_that_share_their_weights_run_more_than_once() -> None:
    first, second = block(), block()
    shared = Stack([first, second], times=2)
    x_BLD = torch.randn(2, 4, WIDTH)
    same(shared(x_BLD)[0], Stack([first, second, first, second])(x_BLD)[0])
    assert len(shared) == 4
    assert len(shared.start(room=3)) == 4
    assert sum(p.numel() for p in shared.parameters()) == sum(p.numel() for p in Stack([first, second]).parameters())
    assert shared.flops(2, 4, 4) == 2 * Stack([first, second]).flops(2, 4, 4)


def test_blocks_are_named_by_their_number() -> None:
    names = named_taps(Stack([block(cross=True), block(cross=True)]))
    assert {"0.attention.weights", "1.cross.weights", "1.add_feedforward.sum"} <= set(names)


def mixture(combination: DenseCombination, seen: list[Tensor]) -> Tensor:
    """Σ_k W_lk LN_k(y_k), one term after the other."""
    row = combination.weights[len(seen) - 1].tolist()
    total = torch.zeros_like(seen[0])
    for k, y_BLD in enumerate(seen):
        centred = y_BLD - y_BLD.mean(-1, keepdim=True)
        norm = combination.norms[k]
        normed = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        total = total + row[k] * (normed * norm.weight + norm.bias)
    return total


def shaken(combination: DenseCombination) -> DenseCombination:
    with torch.no_grad():
        for parameter in combination.parameters():
            parameter.normal_()
    return combination


def test_the_dense_combination_is_its_formula() -> None:
    combination = shaken(DenseCombination(WIDTH, 3))
    for layers in range(1, 5):
        seen = [torch.randn(2, 4, WIDTH) for _ in range(layers)]
        same(combination(seen), mixture(combination, seen))


def test_the_dense_combination_starts_as_the_average() -> None:
    combination = DenseCombination(WIDTH, 3)
    seen = [torch.randn(2, 4, WIDTH) for _ in range(3)]
    average = torch.stack([nn.functional.layer_norm(y, (WIDTH,)) for y in seen]).mean(0)
    same(combination(seen), average)


def test_a_dense_stack_reads_all_layers_below() -> None:
    blocks = [block(), block()]
    combination = shaken(DenseCombination(WIDTH, 2))
    x_BLD = torch.randn(2, 4, WIDTH)
    seen = [x_BLD]
    for b in blocks:
        seen.append(b(mixture(combination, seen))[0])
    same(Stack(blocks, combine=combination)(x_BLD)[0], mixture(combination, seen))


def test_every_combination_is_known_here() -> None:
    assert sorted(COMBINATIONS) == ["dense", "latest"]


@pytest.mark.parametrize("residual", ["post_norm", "pre_norm", "deepnorm", "inner_norm"])
def test_models_have_a_last_norm_where_the_stream_leaves_unnormalised(residual: str) -> None:
    model = small_model("encoder_decoder", residual=residual)
    has = residual in ("pre_norm", "inner_norm")
    assert isinstance(model.encoder.norm, nn.LayerNorm) == isinstance(model.decoder.norm, nn.LayerNorm) == has


def test_cross_attention_reads_the_last_encoder_block() -> None:
    """Each decoder layer's keys come from the encoder's output, not from its own level [vaswani2017 §3.2.3]."""
    model = small_model("encoder_decoder")
    source = tokens(2, 4)
    context_BMD, _ = model.encode(source)
    state = model.start(source)
    for layer, cache in zip(model.decoder.layers, state.cross, strict=True):
        same(cache.keys_BGMK, layer.cross.remember(context_BMD).keys_BGMK)


@pytest.mark.parametrize(("blocks", "times"), [(0, 1), (1, 0), (2, -1)])
def test_a_stack_of_nothing_is_refused(blocks: int, times: int) -> None:
    with pytest.raises(ShapeError, match=f"blocks={blocks}, times={times}"):
        Stack([block() for _ in range(blocks)], times=times)
