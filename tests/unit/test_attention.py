"""Attention: the hand-worked cases, heads together and apart, rows that see nothing, and what is refused."""

import math

import pytest
import torch
from torch import Tensor, nn

from clearhead.errors import ShapeError
from clearhead.nn.attention import Biases, MultiHeadAttention, basic_attention, soft_dictionary
from clearhead.nn.masks import EVERYTHING, Mask, causal
from clearhead.nn.scores import SCORES
from clearhead.tap import Tap, named_taps, watching
from tests.parity.plain import same

LN2, LN3 = math.log(2), math.log(3)


def watch(attention: MultiHeadAttention, x_BLD: Tensor, *names: str, mask: Mask = EVERYTHING) -> dict[str, Tensor]:
    """One reading: its answer, and what passed at the named taps."""
    seen: dict[str, Tensor] = {}

    def keep(name: str) -> object:
        return lambda x: seen.setdefault(name, x)

    with watching(attention, {name: keep(name) for name in names}):  # type: ignore[misc]
        y_BLD, _ = attention(x_BLD, mask=mask)
    return {**seen, "answer": y_BLD}


def test_attention_without_parameters_by_hand() -> None:
    """X Xᵀ = diag(ln 2, ln 3, 0), so the weights are (2 1 1)/4, (1 3 1)/5 and (1 1 1)/3."""
    a, b = math.sqrt(LN2), math.sqrt(LN3)
    x_BLD = torch.tensor([[[a, 0.0], [0.0, b], [0.0, 0.0]]])
    same(basic_attention(x_BLD), torch.tensor([[[2 * a / 4, b / 4], [a / 5, 3 * b / 5], [a / 3, b / 3]]]))


def test_users_ask_films_by_hand() -> None:
    """Tastes and films by (romance, action); a user's score of a film is their dot product."""
    users_LK = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    films_MK = torch.tensor([[LN2, 0.0], [0.0, LN3], [LN2, LN3]])
    minutes_MW = torch.tensor([[100.0], [120.0], [90.0]])
    # scores (ln2 0 ln2), (0 ln3 ln3), (ln2 ln3 ln6): weights (2 1 2)/5, (1 3 3)/7, (2 3 6)/11
    expected = torch.tensor([[500 / 5], [730 / 7], [1100 / 11]])
    same(soft_dictionary(users_LK, films_MK, minutes_MW), expected, 1e-4)


def test_weights_of_every_row_sum_to_one() -> None:
    attention = MultiHeadAttention(12, 3).eval()
    weights_BHLM = watch(attention, torch.randn(2, 5, 12), "weights", mask=causal())["weights"]
    assert weights_BHLM.min() >= 0
    same(weights_BHLM.sum(-1), torch.ones(2, 3, 5))
    ones_BLD = torch.cat([torch.ones(1, 4, 1), torch.randn(1, 4, 3)], dim=-1)
    same(basic_attention(ones_BLD)[..., 0], torch.ones(1, 4))


def test_a_query_equal_to_a_key_finds_its_value_at_low_temperature() -> None:
    keys_MK = nn.functional.normalize(torch.randn(6, 16), dim=-1)
    values_MW = torch.randn(6, 3)
    same(soft_dictionary(keys_MK, keys_MK, values_MW, temperature=0.01), values_MW)
    found = soft_dictionary(keys_MK[4:5], keys_MK, values_MW, temperature=0.01)
    same(found, values_MW[4:5])


def test_the_soft_dictionary_inside_the_module() -> None:
    """With W^Q = W^K = W^V = W^O = I and unit vectors, each position finds itself at low temperature."""
    attention = MultiHeadAttention(16, 1, score=SCORES["dot"](1, 16, 0.01), biases=Biases(False, False, False, False))
    with torch.no_grad():
        for matrix in attention.matrices().values():
            matrix.copy_(torch.eye(16))
    x_BLD = nn.functional.normalize(torch.randn(1, 6, 16), dim=-1)
    same(attention(x_BLD)[0], x_BLD)


@pytest.mark.parametrize("mask", [EVERYTHING, causal()], ids=["everything", "causal"])
def test_heads_together_are_heads_apart(mask: Mask) -> None:
    heads, width, head_width = 3, 12, 4
    together = MultiHeadAttention(width, heads).eval()
    apart = []
    for head in range(heads):
        single = MultiHeadAttention(width, 1, head_width=head_width, biases=Biases(out=False)).eval()
        rows = slice(head * head_width, (head + 1) * head_width)
        with torch.no_grad():
            for name in "qkv":
                single.matrices()[name].copy_(together.matrices()[name][rows])
            biases = together.project.qkv.bias.unflatten(0, (3, width))
            single.project.qkv.bias.copy_(biases[:, rows].flatten())
        single.out = nn.Identity()
        apart.append(single)
    x_BLD = torch.randn(2, 5, width)
    heads_BLD = torch.cat([single(x_BLD, mask=mask)[0] for single in apart], dim=-1)
    same(together(x_BLD, mask=mask)[0], together.out(heads_BLD))


@pytest.mark.parametrize("kv_heads", [2, 1])
def test_grouped_heads_are_repeated_keys_and_values(kv_heads: int) -> None:
    width, heads = 16, 4
    grouped, full = MultiHeadAttention(width, heads, kv_heads=kv_heads), MultiHeadAttention(width, heads)
    head_width, repeat = width // heads, heads // kv_heads
    with torch.no_grad():
        full.matrices()["q"].copy_(grouped.matrices()["q"])
        full.out.load_state_dict(grouped.out.state_dict())
        biases = grouped.project.qkv.bias.split(grouped.sizes)
        repeated = [biases[0]]
        for name, bias in zip("kv", biases[1:], strict=True):
            matrix = grouped.matrices()[name].unflatten(0, (kv_heads, head_width))
            full.matrices()[name].copy_(matrix.repeat_interleave(repeat, dim=0).flatten(0, 1))
            repeated.append(bias.unflatten(0, (kv_heads, -1)).repeat_interleave(repeat, dim=0).flatten())
        full.project.qkv.bias.copy_(torch.cat(repeated))
    x_BLD = torch.randn(2, 5, width)
    same(grouped(x_BLD, mask=causal())[0], full(x_BLD, mask=causal())[0])
    assert sum(p.numel() for p in grouped.parameters()) < sum(p.numel() for p in full.parameters())


@pytest.mark.parametrize(
    "biases", [Biases(True, True, True, False), Biases(True, False, True, True), Biases(False, False, True)]
)
@pytest.mark.parametrize("across", [False, True], ids=["self", "cross"])
def test_each_projection_has_its_own_bias_or_none(biases: Biases, across: bool) -> None:
    attention = MultiHeadAttention(8, 2, kv_heads=1, biases=biases).eval()
    attention = attention.across() if across else attention
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.fill_(1.0)
    zeros = torch.zeros(1, 3, 8)
    seen: dict[str, Tensor] = {}
    with watching(attention, {name: lambda x, name=name: seen.setdefault(name, x) for name in "qkv"}):
        y_BLD, _ = attention(zeros, context_BMD=zeros if across else None)
    for name, has in zip("qkv", biases[:3], strict=True):
        assert torch.all(seen[name] == float(has)), name
    # every value is b_v, W^O is all ones over 8 columns
    same(y_BLD, torch.full((1, 3, 8), 8.0 * biases.v + biases.out))


@pytest.mark.parametrize("names", [("heads",), ("heads", "weights")], ids=["fused", "watched"])
def test_a_row_that_sees_nothing_reads_zeros(names: tuple[str, ...]) -> None:
    attention = MultiHeadAttention(8, 2)
    allowed_LM = torch.tensor([[True, False, True], [False, False, False], [True, True, True]])
    x_BLD = torch.randn(2, 3, 8, requires_grad=True)
    seen = watch(attention, x_BLD, *names, mask=Mask(allowed=allowed_LM))
    assert torch.all(seen["heads"][:, :, 1] == 0)
    assert torch.all(seen["heads"][:, :, 2] != 0)
    same(seen["answer"][:, 1], attention.out.bias.expand(2, -1))
    seen["answer"].square().sum().backward()
    assert x_BLD.grad is not None
    assert x_BLD.grad.isfinite().all()


@pytest.mark.parametrize("context_width", [None, 6], ids=["self", "cross"])
def test_matrices_are_views_of_what_is_used(context_width: int | None) -> None:
    none = Biases(False, False, False, False)
    attention = MultiHeadAttention(8, 2, kv_heads=1, biases=none)
    context_BMD = None
    if context_width is not None:
        attention, context_BMD = attention.across(context_width), torch.randn(1, 4, context_width)
    asked = context_width or 8
    shapes = {name: tuple(matrix.shape) for name, matrix in attention.matrices().items()}
    assert shapes == {"q": (8, 8), "k": (4, asked), "v": (4, asked), "out": (8, 8)}
    with torch.no_grad():
        attention.matrices()["v"].zero_()
    assert torch.all(attention(torch.randn(1, 3, 8), context_BMD=context_BMD)[0] == 0)


@pytest.mark.parametrize("names", [(), ("weights",)], ids=["fused", "watched"])
def test_weights_are_dropped_in_training_alone(names: tuple[str, ...]) -> None:
    attention = MultiHeadAttention(8, 2, dropout=0.5)
    plain = MultiHeadAttention(8, 2)
    plain.load_state_dict(attention.state_dict())
    x_BLD = torch.randn(2, 6, 8)
    with watching(attention, dict.fromkeys(names, lambda x: x)):
        assert not torch.allclose(attention(x_BLD)[0], attention(x_BLD)[0])
        same(attention.eval()(x_BLD)[0], plain(x_BLD)[0])


def test_the_six_steps_pass_the_taps_in_their_order() -> None:
    attention = MultiHeadAttention(8, 2).eval()
    passed: list[str] = []
    names = list(named_taps(attention))
    with watching(attention, {name: lambda x, name=name: passed.append(name) or x for name in names}):
        attention(torch.randn(1, 3, 8), mask=causal())
    assert passed == ["q", "k", "v", "scores", "scaled", "masked", "weights", "heads", "output"]
    assert all(isinstance(tap, Tap) for tap in named_taps(attention).values())


def test_what_passes_the_taps_fits_together() -> None:
    attention = MultiHeadAttention(8, 2).eval()
    x_BLD = torch.randn(1, 4, 8)
    names = ("q", "k", "v", "scores", "scaled", "masked", "weights", "heads", "output")
    seen = watch(attention, x_BLD, *names, mask=causal())
    same(seen["scores"], seen["q"] @ seen["k"].mT)
    same(seen["scaled"], seen["scores"] / math.sqrt(4))
    later = torch.ones(4, 4, dtype=torch.bool).triu(1)
    assert torch.all(seen["masked"][..., later] == -torch.inf)
    assert torch.all(seen["masked"][..., ~later] == seen["scaled"][..., ~later])
    same(seen["weights"], seen["masked"].softmax(-1))
    same(seen["heads"], seen["weights"] @ seen["v"])
    same(seen["output"], attention.out(torch.cat(list(seen["heads"].unbind(1)), dim=-1)))


@pytest.mark.parametrize(("width", "heads"), [(10, 4), (8, 0), (8, -2)])
def test_width_must_divide_into_heads(width: int, heads: int) -> None:
    with pytest.raises(ShapeError, match=rf"width={width}, heads={heads}"):
        MultiHeadAttention(width, heads)


@pytest.mark.parametrize("kv_heads", [3, 0, -1])
def test_heads_must_divide_into_groups(kv_heads: int) -> None:
    with pytest.raises(ShapeError, match=rf"heads=4, kv_heads={kv_heads}"):
        MultiHeadAttention(8, 4, kv_heads=kv_heads)


def test_a_context_of_another_batch_is_refused() -> None:
    attention = MultiHeadAttention(8, 2).across()
    with pytest.raises(ShapeError, match="batch of 3 cannot read a context of 2 rows"):
        attention(torch.randn(3, 4, 8), context_BMD=torch.randn(2, 5, 8))


def test_cross_attention_without_a_context_is_refused() -> None:
    with pytest.raises(ShapeError, match="needs a context"):
        MultiHeadAttention(8, 2).across()(torch.randn(3, 4, 8))


def test_self_attention_takes_no_context() -> None:
    with pytest.raises(ShapeError, match=r"\.across\(\)"):
        MultiHeadAttention(8, 2).remember(torch.randn(1, 4, 8))
    with pytest.raises(ShapeError, match=r"\.across\(\)"):
        MultiHeadAttention(8, 2)(torch.randn(1, 3, 8), context_BMD=torch.randn(1, 4, 8))
