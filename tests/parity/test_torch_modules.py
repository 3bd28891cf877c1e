"""The same weights in PyTorch's own modules and in ours: the same answers."""

import copy
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from clearhead.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.block import Block
from clearhead.nn.cache import State
from clearhead.nn.feedforward import FEEDFORWARDS
from clearhead.nn.masks import EVERYTHING, Mask, causal, padding, window
from clearhead.nn.norm import NORMS
from clearhead.nn.residual import RESIDUALS, Join, Residual
from clearhead.nn.rows import Rows
from clearhead.nn.stack import Stack
from clearhead.tap import named_taps, watching
from tests.parity.plain import same

WIDTH, HEADS, HIDDEN, LAYERS = 16, 4, 24, 3
BATCH, LENGTH, SOURCE = 3, 6, 5
COUNTS, SOURCE_COUNTS = torch.tensor([6, 2, 4]), torch.tensor([3, 5, 1])
ORDERS = {"post_norm": False, "pre_norm": True}  # ours -> torch's `norm_first`


def forbidden(mask: Mask, queries: int, keys: int) -> Tensor:
    """Torch's mask says who may not look."""
    return ~mask.dense(queries, keys).expand(-1, -1, queries, keys)[0, 0]


def padded(count_B: Tensor, length: int) -> Tensor:
    return torch.arange(length) >= count_B[:, None]


def shake(module: nn.Module) -> None:
    """Biases and gains away from their zeros and ones."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)


@torch.no_grad()
def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    parts = theirs.in_proj_weight.chunk(3) if theirs.in_proj_weight is not None else (
        theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight,
    )  # fmt: skip
    for name, weight in zip("qkv", parts, strict=True):
        ours.matrices()[name].copy_(weight)
    bias = dict(ours.project.named_parameters())
    if "qkv.bias" in bias:
        bias["qkv.bias"].copy_(theirs.in_proj_bias)
    else:
        bias["q.bias"].copy_(theirs.in_proj_bias[:WIDTH])
        bias["kv.bias"].copy_(theirs.in_proj_bias[WIDTH:])
    ours.out.load_state_dict(theirs.out_proj.state_dict())


def copy_norm(join: Residual, norm: nn.LayerNorm) -> None:
    (slot,) = (m for m in (join.before, join.after) if isinstance(m, nn.LayerNorm))
    slot.load_state_dict(norm.state_dict())


def copy_block(ours: Block, theirs: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer) -> None:
    copy_attention(ours.attention, theirs.self_attn)
    copy_norm(ours.add_attention, theirs.norm1)
    if ours.cross is not None and ours.add_cross is not None:
        copy_attention(ours.cross, theirs.multihead_attn)
        copy_norm(ours.add_cross, theirs.norm2)
    copy_norm(ours.add_feedforward, theirs.norm2 if ours.cross is None else theirs.norm3)
    ours.feedforward.widen.load_state_dict(theirs.linear1.state_dict())
    ours.feedforward.narrow.load_state_dict(theirs.linear2.state_dict())


def our_block(order: str, activation: str, *, decoder: bool = False) -> Block:
    def join() -> Residual:
        return RESIDUALS[order].build(Join(lambda: NORMS["layer_norm"](WIDTH, 1e-5), WIDTH, depth=2))

    cross = MultiHeadAttention(WIDTH, HEADS).across() if decoder else None
    return Block(
        MultiHeadAttention(WIDTH, HEADS), FEEDFORWARDS[activation](WIDTH, HIDDEN, 0.0, True), join, cross
    ).eval()  # fmt: skip


def their_layer(
    kind: type[nn.TransformerEncoderLayer] | type[nn.TransformerDecoderLayer], order: str, activation: str
) -> nn.Module:
    layer = kind(
        WIDTH, HEADS, HIDDEN, dropout=0.0, activation=activation, batch_first=True, norm_first=ORDERS[order]
    )  # fmt: skip
    shake(layer)
    return layer


def attention_pair(context_width: int | None = None) -> tuple[MultiHeadAttention, nn.MultiheadAttention]:
    theirs = nn.MultiheadAttention(WIDTH, HEADS, kdim=context_width, vdim=context_width, batch_first=True)
    shake(theirs)
    ours = MultiHeadAttention(WIDTH, HEADS)
    copy_attention(ours if context_width is None else ours.across(context_width), theirs)
    return ours.eval(), theirs


MASKS = {"everything": EVERYTHING, "causal": causal(), "window": window(2), "causal window": causal() & window(3)}


@pytest.mark.parametrize("lengths", ["whole", "padded"])
@pytest.mark.parametrize("name", sorted(MASKS))
def test_self_attention(name: str, lengths: str) -> None:
    ours, theirs = attention_pair()
    x_BLD = torch.randn(BATCH, LENGTH, WIDTH)
    mask, out = MASKS[name], forbidden(MASKS[name], LENGTH, LENGTH)
    out_BM = padded(COUNTS, LENGTH) if lengths == "padded" else None
    if lengths == "padded":
        mask = mask & padding(Rows.of(COUNTS, LENGTH, pack=False))
    expected_BLD, _ = theirs(x_BLD, x_BLD, x_BLD, attn_mask=out, key_padding_mask=out_BM, need_weights=False)
    y_BLD, cache = ours(x_BLD, mask=mask)
    seeing_BL = expected_BLD.isfinite().all(-1)  # theirs gives NaN where a row may look at nothing
    assert seeing_BL.sum() >= COUNTS.sum()
    same(y_BLD[seeing_BL], expected_BLD[seeing_BL])
    assert cache is None


@pytest.mark.parametrize("context_width", [WIDTH, 10])
@pytest.mark.parametrize("lengths", ["whole", "padded"])
def test_cross_attention(lengths: str, context_width: int) -> None:
    ours, theirs = attention_pair(context_width)
    x_BLD, context_BMD = torch.randn(BATCH, LENGTH, WIDTH), torch.randn(BATCH, SOURCE, context_width)
    out_BM = padded(SOURCE_COUNTS, SOURCE) if lengths == "padded" else None
    mask = padding(Rows.of(SOURCE_COUNTS, SOURCE, pack=False)) if lengths == "padded" else EVERYTHING
    expected_BLD, _ = theirs(x_BLD, context_BMD, context_BMD, key_padding_mask=out_BM, need_weights=False)
    same(ours(x_BLD, context_BMD=context_BMD, mask=mask)[0], expected_BLD)
    same(ours(x_BLD, cache=ours.remember(context_BMD, mask), mask=mask)[0], expected_BLD)


def test_weights_of_every_head() -> None:
    ours, theirs = attention_pair()
    x_BLD = torch.randn(BATCH, LENGTH, WIDTH)
    out = forbidden(causal(), LENGTH, LENGTH)
    _, expected_BHLM = theirs(x_BLD, x_BLD, x_BLD, attn_mask=out, average_attn_weights=False)
    seen: list[Tensor] = []
    with watching(ours, {"weights": lambda w_BHLM: seen.append(w_BHLM) or w_BHLM}):
        ours(x_BLD, mask=causal())
    same(seen[0], expected_BHLM)


def test_gradients_of_attention() -> None:
    ours, theirs = attention_pair()
    x_BLD, toward = torch.randn(BATCH, LENGTH, WIDTH), torch.randn(BATCH, LENGTH, WIDTH)
    out = forbidden(causal(), LENGTH, LENGTH)
    (theirs(x_BLD, x_BLD, x_BLD, attn_mask=out, need_weights=False)[0] * toward).sum().backward()
    (ours(x_BLD, mask=causal())[0] * toward).sum().backward()
    same(ours.project.qkv.weight.grad, theirs.in_proj_weight.grad, 1e-4)
    same(ours.project.qkv.bias.grad, theirs.in_proj_bias.grad, 1e-4)
    same(ours.out.weight.grad, theirs.out_proj.weight.grad, 1e-4)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("order", sorted(ORDERS))
def test_encoder_layer(order: str, activation: str) -> None:
    theirs, ours = their_layer(nn.TransformerEncoderLayer, order, activation), our_block(order, activation)
    copy_block(ours, theirs)
    x_BLD = torch.randn(BATCH, LENGTH, WIDTH)
    expected_BLD = theirs(x_BLD, src_key_padding_mask=padded(COUNTS, LENGTH))
    y_BLD, _ = ours(x_BLD, mask=padding(Rows.of(COUNTS, LENGTH, pack=False)))
    same(y_BLD, expected_BLD)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("order", sorted(ORDERS))
def test_decoder_layer(order: str, activation: str) -> None:
    theirs = their_layer(nn.TransformerDecoderLayer, order, activation)
    ours = our_block(order, activation, decoder=True)
    copy_block(ours, theirs)
    x_BLD, context_BMD = torch.randn(BATCH, LENGTH, WIDTH), torch.randn(BATCH, SOURCE, WIDTH)
    expected_BLD = theirs(
        x_BLD,
        context_BMD,
        tgt_mask=forbidden(causal(), LENGTH, LENGTH),
        memory_key_padding_mask=padded(SOURCE_COUNTS, SOURCE),
    )
    context_mask = padding(Rows.of(SOURCE_COUNTS, SOURCE, pack=False))
    y_BLD, _ = ours(x_BLD, mask=causal(), context_BMD=context_BMD, context_mask=context_mask)
    same(y_BLD, expected_BLD)


@dataclass(frozen=True)
class Inputs:
    source_BMD: Tensor
    target_BLD: Tensor

    @staticmethod
    def random() -> "Inputs":
        return Inputs(torch.randn(BATCH, SOURCE, WIDTH), torch.randn(BATCH, LENGTH, WIDTH))


def their_transformer(order: str) -> nn.Transformer:
    encoder_layer = their_layer(nn.TransformerEncoderLayer, order, "relu")
    norm = nn.LayerNorm(WIDTH)
    encoder = nn.TransformerEncoder(encoder_layer, LAYERS, norm, enable_nested_tensor=False)
    theirs = nn.Transformer(
        WIDTH, HEADS, LAYERS, LAYERS, HIDDEN, dropout=0.0, batch_first=True, norm_first=ORDERS[order],
        custom_encoder=encoder,
    )  # fmt: skip
    shake(theirs)
    return theirs


def their_answer(theirs: nn.Transformer, inputs: Inputs) -> Tensor:
    answer: Tensor = theirs(
        inputs.source_BMD,
        inputs.target_BLD,
        tgt_mask=forbidden(causal(), LENGTH, LENGTH),
        src_key_padding_mask=padded(SOURCE_COUNTS, SOURCE),
        memory_key_padding_mask=padded(SOURCE_COUNTS, SOURCE),
    )
    return answer


def our_answer(encoder: Stack, decoder: Stack, inputs: Inputs) -> Tensor:
    rows = Rows.of(SOURCE_COUNTS, SOURCE, pack=False)
    context_BMD, _ = encoder(inputs.source_BMD, mask=padding(rows))
    y_BLD, _ = decoder(inputs.target_BLD, mask=causal(), context_BMD=context_BMD, context_mask=padding(rows))
    return y_BLD


def copy_stack(ours: Stack, theirs: nn.TransformerEncoder | nn.TransformerDecoder) -> None:
    for block, layer in zip(ours.layers, theirs.layers, strict=True):
        copy_block(block, layer)
    ours.norm.load_state_dict(theirs.norm.state_dict())


@pytest.mark.parametrize("order", sorted(ORDERS))
def test_whole_stacks(order: str) -> None:
    """nn.Transformer has a last norm after each stack in both orders."""
    theirs = their_transformer(order)
    encoder = Stack([our_block(order, "relu") for _ in range(LAYERS)], norm=nn.LayerNorm(WIDTH))
    decoder = Stack([our_block(order, "relu", decoder=True) for _ in range(LAYERS)], norm=nn.LayerNorm(WIDTH))
    copy_stack(encoder, theirs.encoder)
    copy_stack(decoder, theirs.decoder)
    inputs = Inputs.random()
    same(our_answer(encoder, decoder, inputs), their_answer(theirs, inputs))


def test_the_stacks_of_the_model_itself() -> None:
    theirs = their_transformer("pre_norm")
    model = EncoderDecoder(
        EncoderDecoderConfig(
            vocabulary=7, width=WIDTH, heads=HEADS, hidden=HIDDEN, encoder_layers=LAYERS, decoder_layers=LAYERS,
            residual="pre_norm", dropout=0.0,
        )
    ).eval()  # fmt: skip
    copy_stack(model.encoder, theirs.encoder)
    copy_stack(model.decoder, theirs.decoder)
    inputs = Inputs.random()
    expected = their_answer(theirs, inputs)
    same(our_answer(model.encoder, model.decoder, inputs), expected)
    weights = [name for name in named_taps(model) if name.endswith(".weights")]
    assert len(weights) == 3 * LAYERS
    with watching(model, {name: lambda w: w for name in weights}):
        same(our_answer(model.encoder, model.decoder, inputs), expected)


def test_stepwise_is_their_whole() -> None:
    """One target token at a time through the caches, against nn.Transformer all at once."""
    theirs = their_transformer("post_norm")
    encoder = Stack([our_block("post_norm", "relu") for _ in range(LAYERS)], norm=copy.deepcopy(theirs.encoder.norm))
    decoder = Stack(
        [our_block("post_norm", "relu", decoder=True) for _ in range(LAYERS)], norm=copy.deepcopy(theirs.decoder.norm)
    )
    copy_stack(encoder, theirs.encoder)
    copy_stack(decoder, theirs.decoder)
    inputs = Inputs.random()
    keys = padding(Rows.of(SOURCE_COUNTS, SOURCE, pack=False))
    with torch.no_grad():
        context_BMD, _ = encoder(inputs.source_BMD, mask=keys)
        state = State(decoder.start(room=2), decoder.remember(context_BMD, keys))
        pieces = []
        for new_BTD in inputs.target_BLD.split(1, dim=1):
            y_BTD, state = decoder(new_BTD, mask=causal(), context_mask=keys, state=state)
            pieces.append(y_BTD)
        same(torch.cat(pieces, dim=1), their_answer(theirs, inputs))
