"""Sinusoidal and learned positions against their closed forms."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from clearhead.errors import ShapeError
from clearhead.nn.positions import POSITIONS, Place
from clearhead.nn.positions_absolute import LearnedEmbedding, SinusoidalEmbedding, sinusoid
from tests.parity.plain import same

places = st.integers(-300, 3000)
widths = st.sampled_from([2, 4, 6, 16])


def encoding(position: int, width: int, base: float = 10_000.0) -> list[float]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i + 1) = cos(pos / 10000^(2i/d)), in double precision."""
    columns = []
    for column in range(width):
        angle = position / base ** ((column - column % 2) / width)
        columns.append(math.cos(angle) if column % 2 else math.sin(angle))
    return columns


@given(places, widths, st.sampled_from([10_000.0, 100.0]))
def test_the_closed_form(position: int, width: int, base: float) -> None:
    found = sinusoid(torch.tensor([position]), width, base)
    same(found[0], torch.tensor(encoding(position, width, base)), 5e-4)  # an angle of 3000 in float32


def test_four_columns_by_hand() -> None:
    """10000^(0/4) = 1 and 10000^(2/4) = 100."""
    rows = [[math.sin(p), math.cos(p), math.sin(p / 100), math.cos(p / 100)] for p in range(4)]
    same(sinusoid(torch.arange(4), 4), torch.tensor(rows), 1e-6)


@given(widths)
def test_the_halves_are_a_permutation_of_the_columns(width: int) -> None:
    position_L = torch.arange(20)
    turns, halves = sinusoid(position_L, width), sinusoid(position_L, width, halves=True)
    order = [*range(0, width, 2), *range(1, width, 2)]
    assert torch.equal(halves, turns[:, order])


@given(st.integers(-50, 50), widths)
def test_a_shift_is_one_linear_map_for_all_positions(shift: int, width: int) -> None:
    """PE(pos + k) = PE(pos) M_k, with M_k a turn of each pair of columns [vaswani2017 §3.5]."""
    turn = torch.zeros(width, width)
    for pair in range(0, width, 2):
        angle = shift / 10_000 ** (pair / width)
        turn[pair, pair] = turn[pair + 1, pair + 1] = math.cos(angle)
        turn[pair + 1, pair], turn[pair, pair + 1] = math.sin(angle), -math.sin(angle)
    position_L = torch.arange(60)
    same(sinusoid(position_L + shift, width), sinusoid(position_L, width) @ turn, 1e-4)


@given(places, places, widths)
def test_the_dot_product_depends_on_the_distance_alone(a: int, b: int, width: int) -> None:
    one, other = sinusoid(torch.tensor([a, b]), width)
    distance = sum(math.cos((a - b) / 10_000 ** (pair / width)) for pair in range(0, width, 2))
    assert float(one @ other) == pytest.approx(distance, abs=2e-3)


@pytest.mark.parametrize("halves", [False, True])
def test_the_embedding_adds_it_at_any_position(halves: bool) -> None:
    embed = SinusoidalEmbedding(8, halves=halves)
    position_BL = torch.tensor([[0, 1, 2], [5000, 7, 7]])
    x_BLD = torch.randn(2, 3, 8)
    same(embed(x_BLD, position_BL), x_BLD + sinusoid(position_BL, 8, halves=halves))
    assert not list(embed.parameters())
    assert embed(x_BLD.bfloat16(), position_BL).dtype == torch.bfloat16


def test_learned_positions_are_rows_of_a_table() -> None:
    embed = LearnedEmbedding(5, 4)
    position_BL = torch.tensor([[4, 0, 2], [1, 1, 3]])
    x_BLD = torch.randn(2, 3, 4)
    expected = [[embed.table.weight[p] for p in row] for row in position_BL.tolist()]
    same(embed(x_BLD, position_BL), x_BLD + torch.stack([torch.stack(row) for row in expected]))


@pytest.mark.parametrize("position_BL", [torch.arange(6)[None], torch.tensor([[0, 1], [2, 5]])], ids=["long", "late"])
def test_beyond_the_table_is_refused(position_BL: Tensor) -> None:
    with pytest.raises(ShapeError, match="6 positions are more than the 5"):
        LearnedEmbedding(5, 4)(torch.randn(*position_BL.shape, 4), position_BL)


@pytest.mark.parametrize("name", ["sinusoidal", "sinusoidal_halves"])
def test_an_odd_width_is_refused(name: str) -> None:
    with pytest.raises(ShapeError, match="width=7"):
        POSITIONS[name](Place(7, 1, 7))
    with pytest.raises(ShapeError, match="width=7"):
        sinusoid(torch.arange(3), 7)
