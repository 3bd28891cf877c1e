"""The table models against the authors' package and PyTorch's own modules, with the same weights."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearhead.models.ft_transformer import DEPTHS, FTTransformer, FTTransformerConfig, of_depth
from clearhead.models.tab_transformer import TabTransformer, TabTransformerConfig
from clearhead.nn.attention import MultiHeadAttention
from clearhead.tap import watching

TheirFTTransformer = pytest.importorskip("rtdl_revisiting_models").FTTransformer
CATEGORIES = (3, 5, 2)
ROWS = 7


def theirs_and_ours(numbers: int, categories: tuple[int, ...], layers: int = 3) -> tuple[Any, FTTransformer]:
    """The same small model twice, its weights far from any special value."""
    sizes = {"n_blocks": layers, "d_block": 24, "attention_n_heads": 4, "ffn_d_hidden_multiplier": 4 / 3}
    rates = {"attention_dropout": 0.2, "ffn_dropout": 0.1, "residual_dropout": 0.0}
    theirs = TheirFTTransformer(
        n_cont_features=numbers, cat_cardinalities=list(categories), d_out=2, **sizes, **rates
    ).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    config = FTTransformerConfig(
        numbers=numbers, categories=categories, outputs=2, width=24, heads=4, hidden=32, layers=layers
    )
    return theirs, poured(theirs, FTTransformer(config).eval())


@torch.no_grad()
def poured(theirs: Any, ours: FTTransformer) -> FTTransformer:
    """Their weights in our model, each tensor once."""
    ours.columns.summary_D.copy_(theirs.cls_embedding.weight)
    if theirs.cont_embeddings is not None:
        ours.columns.numbers.weight_CD.copy_(theirs.cont_embeddings.weight)
        ours.columns.numbers.bias_CD.copy_(theirs.cont_embeddings.bias)
    if theirs.cat_embeddings is not None:
        ours.columns.categories.weight_VD.copy_(torch.cat([table.weight for table in theirs.cat_embeddings.embeddings]))
        ours.columns.categories.bias_CD.copy_(theirs.cat_embeddings.bias)
    *below, last = zip(ours.encoder.layers, theirs.backbone.blocks, strict=True)
    for mine, block in below:
        asked = block["attention"]
        fill(mine.attention.project.qkv, asked.W_q, asked.W_k, asked.W_v)
    mine, block = last
    fill(mine.attention.attention.project.q, block["attention"].W_q)
    fill(mine.attention.attention.project.kv, block["attention"].W_k, block["attention"].W_v)
    for mine, block in [*below, last]:
        attention = getattr(mine.attention, "attention", mine.attention)
        fill(attention.out, block["attention"].W_out)
        linear, bent = halves(block["ffn"].linear1)  # they bend the second half, we the first
        fill(mine.feedforward.widen, bent, linear)
        fill(mine.feedforward.narrow, block["ffn"].linear2)
        mine.add_feedforward.before.load_state_dict(block["ffn_normalization"].state_dict())
        if "attention_normalization" in block:
            mine.add_attention.before.load_state_dict(block["attention_normalization"].state_dict())
    ours.encoder.norm.load_state_dict(theirs.backbone.output.normalization.state_dict())
    fill(ours.head.linear, theirs.backbone.output.linear)
    return ours


def fill(into: nn.Linear, *linears: Any) -> None:
    into.weight.copy_(torch.cat([linear.weight for linear in linears]))
    into.bias.copy_(torch.cat([linear.bias for linear in linears]))


def halves(linear: nn.Linear) -> list[nn.Linear]:
    parts = []
    for weight, bias in zip(linear.weight.chunk(2), linear.bias.chunk(2), strict=True):
        part = nn.Linear(weight.shape[1], weight.shape[0])
        part.weight, part.bias = nn.Parameter(weight.clone()), nn.Parameter(bias.clone())
        parts.append(part)
    return parts


def rows(numbers: int, categories: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    codes = [torch.randint(size, (ROWS, 1)) for size in categories]
    return torch.randn(ROWS, numbers), torch.cat(codes, 1) if codes else torch.empty(ROWS, 0, dtype=torch.long)


def called(theirs: Any, number_BC: Tensor, code_BC: Tensor) -> Tensor:
    return theirs(number_BC if number_BC.shape[1] else None, code_BC if code_BC.shape[1] else None)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize(("numbers", "categories"), [(8, ()), (4, CATEGORIES), (0, CATEGORIES)])
def test_ft_transformer_block_for_block(numbers: int, categories: tuple[int, ...], layers: int) -> None:
    theirs, ours = theirs_and_ours(numbers, categories, layers)
    given = rows(numbers, categories)
    seen: dict[str, Tensor] = {}
    for i, block in enumerate(theirs.backbone.blocks):
        block["output"].register_forward_hook(lambda module, _, x, i=i: seen.update({f"theirs.{i}": x}))
    note = lambda i: lambda x: seen.setdefault(f"ours.{i}", x)  # noqa: E731
    with watching(ours, {f"encoder.{i}.add_feedforward.sum": note(i) for i in range(layers)}):
        logits = ours(*given)
    torch.testing.assert_close(logits, called(theirs, *given), atol=1e-5, rtol=1e-5)
    for i in range(layers):
        expected = seen[f"theirs.{i}"] if i < layers - 1 else seen[f"theirs.{i}"][:, :1]
        torch.testing.assert_close(seen[f"ours.{i}"], expected, atol=1e-5, rtol=1e-5)


def test_ft_transformer_learns_alike() -> None:
    theirs, ours = theirs_and_ours(4, CATEGORIES)
    given = rows(4, CATEGORIES)
    called(theirs, *given).square().sum().backward()
    ours(*given).square().sum().backward()
    torch.testing.assert_close(ours.columns.numbers.weight_CD.grad, theirs.cont_embeddings.weight.grad)
    torch.testing.assert_close(
        ours.columns.categories.weight_VD.grad, torch.cat([t.weight.grad for t in theirs.cat_embeddings.embeddings])
    )


@pytest.mark.parametrize("layers", sorted(DEPTHS))
def test_defaults_by_depth_are_the_authors(layers: int) -> None:
    config = of_depth(layers, FTTransformerConfig(numbers=8))
    usual = TheirFTTransformer.get_default_kwargs(layers)
    assert (config.layers, config.width, config.heads) == (layers, usual["d_block"], usual["attention_n_heads"])
    assert config.attention_dropout == usual["attention_dropout"]
    assert config.hidden_dropout == usual["ffn_dropout"]
    assert config.dropout == usual["residual_dropout"]
    theirs = TheirFTTransformer(n_cont_features=8, cat_cardinalities=[], d_out=1, **usual)
    count = sum(parameter.numel() for parameter in FTTransformer(config).parameters())
    assert count == sum(parameter.numel() for parameter in theirs.parameters())


def test_the_papers_default_has_the_known_number_of_parameters() -> None:
    assert FTTransformer(FTTransformerConfig(numbers=8)).parameters_table().total == 894_913


def test_tab_transformers_encoder_is_post_norm_as_pytorchs() -> None:
    config = TabTransformerConfig(
        numbers=3, categories=CATEGORIES, width=16, heads=4, hidden=24, layers=2, shared=4, number_norm=True
    )
    ours = TabTransformer(config).eval()
    layer = nn.TransformerEncoderLayer(16, 4, 24, dropout=0.0, batch_first=True)
    theirs = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    with torch.no_grad():
        for mine, their in zip(ours.encoder.layers, theirs.layers, strict=True):  # type: ignore[union-attr]
            assert isinstance(mine.attention, MultiHeadAttention)
            mine.attention.project.qkv.weight.copy_(their.self_attn.in_proj_weight)  # type: ignore[union-attr]
            mine.attention.project.qkv.bias.copy_(their.self_attn.in_proj_bias)  # type: ignore[union-attr]
            mine.attention.out.load_state_dict(their.self_attn.out_proj.state_dict())
            mine.feedforward.widen.load_state_dict(their.linear1.state_dict())  # type: ignore[union-attr]
            mine.feedforward.narrow.load_state_dict(their.linear2.state_dict())  # type: ignore[union-attr]
            mine.add_attention.after.load_state_dict(their.norm1.state_dict())  # type: ignore[union-attr]
            mine.add_feedforward.after.load_state_dict(their.norm2.state_dict())  # type: ignore[union-attr]
    number_BC, code_BC = rows(3, CATEGORIES)
    token_BCD = ours.columns(code_BC)  # type: ignore[misc]
    expected = torch.cat([theirs(token_BCD).flatten(1), nn.functional.layer_norm(number_BC, (3,))], dim=1)
    torch.testing.assert_close(ours.features(number_BC, code_BC), expected, atol=1e-5, rtol=1e-5)
