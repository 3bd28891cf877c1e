"""Tokens of columns, reading off `[CLS]` alone, and members side by side."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError, ShapeError
from clearhead.models.ft_transformer import FTTransformer, FTTransformerConfig, of_depth
from clearhead.models.tab_transformer import TabTransformer, TabTransformerConfig
from clearhead.nn.attention import Biases, MultiHeadAttention
from clearhead.nn.block import Block
from clearhead.nn.columns import (
    NUMBERS,
    Categories,
    ColumnAwareCategories,
    ColumnTokens,
    LinearNumbers,
    NumberColumns,
    PeriodicNumbers,
    PiecewiseNumbers,
    WithMissing,
)
from clearhead.nn.cut import cut_heads, room_beside
from clearhead.nn.feedforward import FEEDFORWARDS
from clearhead.nn.first import First, FirstAsks
from clearhead.nn.kernels import attend
from clearhead.nn.members import Linears, Members, side_by_side
from clearhead.nn.residual import Residual
from clearhead.tap import watching

FT = FTTransformerConfig(
    numbers=3, categories=(2, 4), outputs=2, width=8, heads=2, hidden=10, layers=2, missing=(1,), unseen=0.1
)
TAB = TabTransformerConfig(
    numbers=3, categories=(2, 4), outputs=2, width=8, heads=2, hidden=16, layers=2, shared=2, missing=(1,), unseen=0.1
)


def encoding(x: float, edges: list[float]) -> list[float]:
    """Gorishniy 2022, equation 1, read aloud."""
    found = []
    bins = len(edges) - 1
    for t in range(1, bins + 1):
        low, high = edges[t - 1], edges[t]
        if x < low and t > 1:
            found.append(0.0)
        elif x >= high and t < bins:
            found.append(1.0)
        else:
            found.append((x - low) / (high - low))
    return found


def test_piecewise_numbers_are_the_equation() -> None:
    edges = [[-1.0, 0.0, 0.5, 3.0], [0.0, 2.0]]
    embed = PiecewiseNumbers([3, 1], 4)
    embed.set_edges([torch.tensor(edge) for edge in edges])
    number_BC = torch.tensor([[-2.0, -1.0], [-0.5, 0.3], [0.2, 2.0], [0.5, 5.0], [4.0, 1.0]])
    for row, token_CD in zip(number_BC, embed(number_BC), strict=True):
        for c in range(2):
            e = torch.tensor(encoding(float(row[c]), edges[c]))
            expected = e @ embed.weight_CWD[c, : len(e)] + embed.bias_CD[c]
            torch.testing.assert_close(token_CD[c], expected)


def test_edges_must_rise_and_fit() -> None:
    embed = PiecewiseNumbers([2], 4)
    with pytest.raises(ShapeError, match="2 bins and needs 3 rising edges"):
        embed.set_edges([torch.tensor([0.0, 1.0])])
    with pytest.raises(ShapeError, match="rising"):
        embed.set_edges([torch.tensor([0.0, 1.0, 1.0])])
    with pytest.raises(ConfigError, match="at least one bin"):
        PiecewiseNumbers([0], 4)


def test_periodic_and_linear_numbers_are_their_formulas() -> None:
    number_BC = torch.randn(5, 2)
    linear = LinearNumbers(2, 4)
    expected = torch.stack([number_BC[:, [c]] * linear.weight_CD[c] + linear.bias_CD[c] for c in range(2)], 1)
    torch.testing.assert_close(linear(number_BC), expected)
    periodic = PeriodicNumbers(2, 4, 3, 0.5)
    for c in range(2):
        angle = 2 * torch.pi * number_BC[:, [c]] * periodic.frequency_CK[c]
        waves = torch.cat([angle.cos(), angle.sin()], 1)
        expected = torch.relu(waves @ periodic.weight_CWD[c] + periodic.bias_CD[c])
        torch.testing.assert_close(periodic(number_BC)[:, c], expected)


@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_every_embedding_goes_by_columns(name: str) -> None:
    """A column's token depends on that column alone, and changes with it."""
    embed = NUMBERS[name](NumberColumns(3, 4, bins=(2, 1, 3), frequencies=4, sigma=1.0))
    number_BC = torch.randn(4, 3)
    other_BC = number_BC.clone()
    other_BC[:, 1] += 0.7
    same = torch.isclose(embed(number_BC), embed(other_BC)).all(0).all(1)
    assert same.tolist() == [True, False, True]


def test_bins_must_be_said_of_each_column() -> None:
    with pytest.raises(ConfigError, match="bins of each column"):
        NUMBERS["piecewise"](NumberColumns(3, 4, bins=(2,)))


def test_a_missing_number_has_a_token_of_its_column() -> None:
    embed = WithMissing(LinearNumbers(3, 4), 3, 4, [0, 2])
    number_BC = torch.tensor([[torch.nan, 1.0, 2.0], [3.0, 1.0, torch.nan]])
    token_BCD = embed(number_BC)
    torch.testing.assert_close(token_BCD[0, 0], embed.missing_CD[0])
    torch.testing.assert_close(token_BCD[1, 2], embed.missing_CD[1])
    torch.testing.assert_close(token_BCD[0, 1:], embed.embed(number_BC.nan_to_num())[0, 1:])
    token_BCD.sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in embed.parameters())
    with pytest.raises(ShapeError, match="not there"):
        WithMissing(LinearNumbers(3, 4), 3, 4, [3])


def test_categories_are_rows_of_one_table() -> None:
    embed = Categories([2, 3], 4)
    assert embed.weight_VD.shape == (5, 4)
    token_BCD = embed(torch.tensor([[1, 0], [0, 2]]))
    torch.testing.assert_close(token_BCD[0, 0], embed.weight_VD[1] + embed.bias_CD[0])
    torch.testing.assert_close(token_BCD[1, 1], embed.weight_VD[4] + embed.bias_CD[1])


def test_training_hides_categories_behind_the_unseen_one() -> None:
    embed = Categories([2, 3], 4, unseen=0.25, bias=False)
    code_BC = torch.zeros(4000, 2, dtype=torch.long)
    hidden_BC = (embed(embed.shown(code_BC)) == embed(embed.size_C[None])).all(2)
    assert abs(float(hidden_BC.float().mean()) - 0.25) < 0.03
    assert not (embed.eval()(code_BC) == embed(embed.size_C[None])).all(2).any()


def test_column_aware_categories_share_the_columns_part() -> None:
    embed = ColumnAwareCategories([2, 3], 8, 3)
    token_BCD = embed(torch.tensor([[0, 0], [1, 2]]))
    torch.testing.assert_close(token_BCD[0, :, 5:], token_BCD[1, :, 5:])
    assert not torch.isclose(token_BCD[0, 0, 5:], token_BCD[0, 1, 5:]).any()
    with pytest.raises(ConfigError, match="room"):
        ColumnAwareCategories([2], 8, 8)


def test_cls_comes_first() -> None:
    tokens = ColumnTokens(4, numbers=LinearNumbers(2, 4), categories=Categories([3], 4))
    x_BLD = tokens(torch.randn(5, 2), torch.zeros(5, 1, dtype=torch.long))
    assert x_BLD.shape == (5, 4, 4)
    torch.testing.assert_close(x_BLD[:, 0], tokens.summary_D.expand(5, -1))


# ---------------------------------------------------------------- the layer above the tokens


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"numbers": 0, "missing": ()},
        {"categories": ()},
        {"embedding": "piecewise", "bins": (2, 1, 3)},
        {"embedding": "periodic", "frequencies": 2, "categories": (2,) * 20},
    ],
    ids=["both", "categories", "numbers", "piecewise", "periodic"],
)
@pytest.mark.parametrize("training", [False, True])
def test_rows_through_the_layer_are_tokens_through_the_layer(changes: dict[str, Any], training: bool) -> None:
    """The first projection by the columns' tables, and while somebody watches, by the tokens: all gradients agree."""
    config = replace(FT, hidden_dropout=0.0, attention_dropout=0.0, unseen=0.3, **changes)
    model = FTTransformer(config).train(training)
    random = torch.Generator().manual_seed(2)
    number_BC = torch.randn(64, config.numbers, generator=random)
    number_BC[::7, 1:2] = torch.nan
    number_BC.requires_grad_(config.numbers > 0)
    code_BC = (
        torch.stack([torch.randint(n + 1, (64,), generator=random) for n in config.categories], 1)
        if config.categories
        else torch.empty(64, 0, dtype=torch.long)
    )
    wanted = [*([number_BC] if config.numbers else []), *model.parameters()]

    def seen() -> tuple[Tensor, list[Tensor], int]:
        torch.manual_seed(5)
        y_BO = model(number_BC, code_BC)
        return y_BO, list(torch.autograd.grad(y_BO.square().sum(), wanted)), model.flops(64)

    y_BO, grads, fewer = seen()
    with watching(model, {"columns.tokens": lambda x_BLD: x_BLD}):
        usual_BO, usual, more = seen()
    assert (fewer < more) == (config.embedding != "periodic" or len(config.categories) > 2)
    torch.testing.assert_close(y_BO, usual_BO)
    for ours, theirs in zip(grads, usual, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4, equal_nan=True)
    assert model.flops(1) == model.flops(2) / 2  # too few tokens to save any


# ---------------------------------------------------------------- [CLS] alone


def test_a_block_for_the_first_position_is_the_block_cut() -> None:
    """The same weights, once for all positions and once for the first alone: outputs and gradients agree."""

    def residuals(keep: nn.Module | None) -> list[Residual]:
        return [Residual(before=nn.LayerNorm(8), keep=keep), Residual(before=nn.LayerNorm(8))]

    whole = Block(MultiHeadAttention(8, 2), FEEDFORWARDS["reglu"](8, 6, 0.0, True), iter(residuals(None)).__next__)
    first = Block(
        FirstAsks(MultiHeadAttention(8, 2)), FEEDFORWARDS["reglu"](8, 6, 0.0, True), iter(residuals(First())).__next__
    )
    state = whole.state_dict()
    for kind in ("weight", "bias"):
        q, k, v = state.pop(f"attention.project.qkv.{kind}").chunk(3)
        state |= {
            f"attention.attention.project.q.{kind}": q,
            f"attention.attention.project.kv.{kind}": torch.cat([k, v]),
        }
        state[f"attention.attention.out.{kind}"] = state.pop(f"attention.out.{kind}")
    first.load_state_dict(state)
    x_BLD = torch.randn(3, 5, 8, requires_grad=True)
    y_BLD, y_B1D = whole(x_BLD)[0], first(x_BLD)[0]
    torch.testing.assert_close(y_B1D, y_BLD[:, :1])
    grads = [torch.autograd.grad(y[:, 0].square().sum(), x_BLD)[0] for y in (y_BLD, y_B1D)]
    torch.testing.assert_close(*grads)
    assert first.flops(3, 1, 5) < whole.flops(3, 5, 5)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("head_width", [None, 3])
def test_the_first_reads_the_same_while_somebody_watches(bias: bool, head_width: int | None) -> None:
    """The short way against the usual one, which whoever watches is shown: outputs and all gradients agree."""
    first = FirstAsks(MultiHeadAttention(8, 2, head_width=head_width, biases=Biases(*[bias] * 4)))
    x_BLD = torch.randn(3, 5, 8, requires_grad=True)
    wanted = [x_BLD, *first.parameters()]
    seen: list[Tensor] = []

    def look(weights_BHLM: Tensor) -> Tensor:
        seen.append(weights_BHLM)
        return weights_BHLM

    y_B1D, fewer = first(x_BLD)[0], first.flops(3, 1, 5)
    with watching(first, {"attention.weights": look}):
        usual_B1D, more = first(x_BLD)[0], first.flops(3, 1, 5)
    assert [tuple(weights_BHLM.shape) for weights_BHLM in seen] == [(3, 2, 1, 5)]
    assert fewer < more
    torch.testing.assert_close(y_B1D, usual_B1D)
    grads = [torch.autograd.grad(y.square().sum(), wanted) for y in (y_B1D, usual_B1D)]
    for ours, usual in zip(*grads, strict=True):
        torch.testing.assert_close(ours, usual, atol=1e-6, rtol=1e-4)


def test_the_first_drops_weights_in_training() -> None:
    """At a rate of a half, a row of ones is read as 0, 2, or something between, and as itself on average."""
    first = FirstAsks(MultiHeadAttention(4, 1, dropout=0.5, biases=Biases(*[False] * 4))).train()
    with torch.no_grad():
        for weight in (first.attention.out.weight, first.attention.project.kv.weight[4:]):
            weight.copy_(torch.eye(4))
    with torch.no_grad():
        y_B1D, _ = first(torch.ones(4000, 3, 4))
    assert y_B1D.std() > 0.1
    assert abs(float(y_B1D.mean()) - 1) < 0.05
    torch.testing.assert_close(first.eval()(torch.ones(2, 3, 4))[0], torch.ones(2, 1, 4))


def test_members_side_by_side_ask_as_they_would_alone() -> None:
    members = [FirstAsks(MultiHeadAttention(8, 2)) for _ in range(3)]
    x_BLD = torch.randn(6, 5, 8)
    alone = torch.cat([member(part)[0] for member, part in zip(members, x_BLD.chunk(3), strict=True)])
    torch.testing.assert_close(side_by_side(members)(x_BLD)[0], alone)


@pytest.mark.parametrize(("queries", "keys"), [(1, 5), (3, 3), (4, 15), (2, 17)])
def test_short_rows_of_attention_have_the_right_gradients(queries: int, keys: int) -> None:
    """The kernel for training with dropout, at a rate too small to drop anything, against the formula."""
    shapes = [(2, 2, queries, 4), (2, 2, keys, 4), (2, 2, keys, 4)]
    inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    q, k, v = inputs
    expected = (q @ k.transpose(-1, -2) * 0.5).softmax(-1) @ v
    found = attend(q, k, v, scale=0.5, dropout=1e-9)
    weight = torch.randn_like(expected)
    torch.testing.assert_close(found, expected)
    for ours, theirs in zip(
        torch.autograd.grad((found * weight).sum(), inputs),
        torch.autograd.grad((expected * weight).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("beside", [True, False])
def test_gradients_of_cut_heads_are_those_of_split(beside: bool) -> None:
    """Joined without a copy where they lie side by side already, and by a copy where they do not."""
    heads = (4, 2, 2)
    x_BLHK = torch.randn(3, 5, 8, 6, requires_grad=True)
    plain = [piece.transpose(1, 2) for piece in x_BLHK.split(heads, 2)]
    pieces = cut_heads(x_BLHK, heads)
    for ours, theirs in zip(pieces, plain, strict=True):
        torch.testing.assert_close(ours, theirs)
    grads = room_beside(x_BLHK, heads, 5) if beside else [torch.empty(3, count, 5, 6) for count in heads]
    for grad in grads:
        grad.copy_(torch.randn_like(grad))
    (ours_BLHK,) = torch.autograd.grad(pieces, x_BLHK, grads)
    (theirs_BLHK,) = torch.autograd.grad(plain, x_BLHK, grads)
    torch.testing.assert_close(ours_BLHK, theirs_BLHK)
    assert (ours_BLHK.data_ptr() == grads[0].data_ptr()) == beside


# ---------------------------------------------------------------- members


def rows(number: int = 6) -> tuple[Tensor, Tensor]:
    number_BC = torch.randn(number, 3)
    number_BC[0, 1] = torch.nan
    return number_BC, torch.stack([torch.randint(2, (number,)), torch.randint(4, (number,))], 1)


@pytest.mark.parametrize("config", [FT, TAB], ids=["ft", "tab"])
@pytest.mark.parametrize("members", [1, 3])
def test_members_answer_and_learn_as_alone(config: FTTransformerConfig | TabTransformerConfig, members: int) -> None:
    kind = FTTransformer if isinstance(config, FTTransformerConfig) else TabTransformer
    models = [kind(config).eval() for _ in range(members)]  # type: ignore[arg-type]
    joined = side_by_side(models).eval()
    number_BC, code_BC = rows(6 * members)
    parts = zip(models, number_BC.chunk(members), code_BC.chunk(members), strict=True)
    alone = torch.cat([model(*part) for model, *part in parts])
    together = joined(number_BC, code_BC)
    torch.testing.assert_close(together, alone)
    alone.square().sum().backward()
    together.square().sum().backward()
    stacked = {name.replace(".each", ""): parameter.grad for name, parameter in joined.named_parameters()}
    for name, parameter in models[-1].named_parameters():
        grad = stacked[name]
        assert grad is not None
        torch.testing.assert_close(grad[-1], parameter.grad, atol=1e-5, rtol=1e-4)
    assert sum(p.numel() for p in joined.parameters()) == members * sum(p.numel() for p in models[0].parameters())


def test_every_parameter_of_members_has_their_dimension() -> None:
    joined = side_by_side([FTTransformer(FT) for _ in range(4)])
    assert all(len(parameter) == 4 for parameter in joined.parameters())
    assert isinstance(joined.get_submodule("head.linear"), Linears)
    assert isinstance(joined.get_submodule("columns"), Members)
    with pytest.raises(ShapeError, match="at least one member"):
        side_by_side([])


# ---------------------------------------------------------------- configs


def test_configs_refuse_what_cannot_be() -> None:
    for kind in (FTTransformerConfig, TabTransformerConfig):
        with pytest.raises(ConfigError, match="at least one column"):
            kind()
        with pytest.raises(ConfigError, match="dropout"):
            kind(numbers=1, dropout=1.0)
    with pytest.raises(ConfigError, match="1 to 6 layers: layers=7"):
        of_depth(7, FT)


def test_extra_tokens_are_there_only_where_asked_for() -> None:
    plain = replace(FT, missing=(), unseen=None)
    extra = FTTransformer(FT).parameters_table().total - FTTransformer(plain).parameters_table().total
    assert extra == FT.width * (len(FT.missing) + len(FT.categories))


@pytest.mark.parametrize("config", [FT, TAB], ids=["ft", "tab"])
def test_flops_count_the_products(config: FTTransformerConfig | TabTransformerConfig) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    kind = FTTransformer if isinstance(config, FTTransformerConfig) else TabTransformer
    model = kind(config)  # type: ignore[arg-type]
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(*rows(16))
    head = 2 * 16 * model.head.linear.in_features * model.head.linear.out_features
    assert counter.get_total_flops() == pytest.approx(model.flops(16) + head, rel=0.02)


@pytest.mark.parametrize("numbers", [1, 2, 5])
def test_the_size_of_a_rows_numbers_counts_unless_they_are_normalised(numbers: int) -> None:
    given = torch.randn(1, numbers) * torch.tensor([[1.0], [3.0]])
    for number_norm in (False, True):
        model = TabTransformer(TabTransformerConfig(numbers=numbers, number_norm=number_norm)).eval()
        answers = model(given, torch.empty(2, 0, dtype=torch.long)).detach().numpy()[:, 0]
        assert np.isclose(*answers, rtol=1e-3) == number_norm
