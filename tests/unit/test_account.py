"""Accounts: parameters against their sum, operations against PyTorch's own counter."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from clearhead.models.presets import build
from clearhead.nn.account import parameters_table
from clearhead.nn.attention import MultiHeadAttention
from clearhead.tap import named_taps, watching
from tests.unit.small import MODES, read, small_model, tokens

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "gated": {"feedforward": "swiglu"},
    "grouped": {"kv_heads": 2},
    "multi-query": {"kv_heads": 1},
    "own head width": {"head_width": 6},
    "memory": {"persistent": 3, "feedforward": "none"},
    "dense": {"combination": "dense"},
}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("mode", sorted(MODES))
def test_every_parameter_is_counted_once(mode: str, tied: bool) -> None:
    model = small_model(mode, tied=tied)
    expected = sum({id(p): p.numel() for p in model.parameters()}.values())
    parts = {name for name, _ in model.named_modules()}
    for depth in (1, 2, 3, 9):
        table = model.parameters_table(depth)
        assert table.total == expected
        assert all(name.count(".") < depth for name, _ in table.rows)
        assert {name for name, _ in table.rows} <= parts
        assert len({name for name, _ in table.rows}) == len(table.rows)


def test_rows_are_the_parts_and_their_parameters() -> None:
    model = small_model("decoder_only")
    rows = dict(model.parameters_table(depth=2).rows)
    for name, parameters in rows.items():
        assert parameters == sum(p.numel() for p in model.get_submodule(name).parameters()), name
    assert rows["embed.tokens"] == 13 * 16
    assert "output.linear" not in rows  # tied: counted where it stands first


def test_the_table_in_print() -> None:
    text = str(parameters_table(nn.Sequential(nn.Linear(100, 20), nn.LayerNorm(20)), depth=1))
    assert [line.split() for line in text.splitlines()] == [["0", "2,020"], ["1", "40"], ["total", "2,060"]]
    assert len({len(line) for line in text.splitlines()}) == 1


def test_a_parameter_at_the_root_has_its_own_name() -> None:
    module = nn.Module()
    module.gain = nn.Parameter(torch.zeros(3))
    assert parameters_table(module).rows == (("gain", 3),)


def test_the_sizes_of_the_papers() -> None:
    """65 million for the base model and 213 for the big one [vaswani2017 table 3]; 124 for GPT-2, 110 for BERT."""
    names = ("transformer-base", "transformer-big", "gpt2", "bert-base")
    with torch.device("meta"):
        millions = {name: parameters_table(build(name)).total / 1e6 for name in names}
    assert millions["transformer-base"] == pytest.approx(65, rel=0.04)
    assert millions["transformer-big"] == pytest.approx(213, rel=0.04)
    assert millions["gpt2"] == pytest.approx(124.4, abs=0.1)
    assert millions["bert-base"] == pytest.approx(110, rel=0.01)


@pytest.mark.parametrize("variant", sorted(VARIANTS))
@pytest.mark.parametrize("mode", sorted(MODES))
def test_operations_are_those_that_pytorch_counts(mode: str, variant: str) -> None:
    """On the explicit path, of which the counter sees every product."""
    model = small_model(mode, **VARIANTS[variant])
    batch, length = 2, 5
    weights = [name for name in named_taps(model) if name.endswith(".weights")]
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter, watching(model, dict.fromkeys(weights, lambda w: w)):
        read(model, tokens(batch, length))
    counted = counter.get_total_flops()
    if variant == "dense":  # its mixtures are outside the account, and small
        assert counted == pytest.approx(model.flops(batch, length), rel=0.05)
    else:
        assert counted == model.flops(batch, length)


def test_operations_of_cross_attention_with_another_width() -> None:
    attention = MultiHeadAttention(8, 2, kv_heads=1).across(6).eval()
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter, watching(attention, {"weights": lambda w: w}):
        attention(torch.randn(3, 4, 8), context_BMD=torch.randn(3, 7, 6))
    assert counter.get_total_flops() == attention.flops(3, 4, 7)


def test_twice_the_rows_are_twice_the_operations_and_attention_is_quadratic() -> None:
    model = small_model("decoder_only")
    assert model.flops(6, 5) == 3 * model.flops(2, 5)
    attention = MultiHeadAttention(8, 2)
    linear = attention.flops(1, 1, 0)
    assert attention.flops(1, 20, 20) - 20 * linear == 4 * (attention.flops(1, 10, 10) - 10 * linear)
