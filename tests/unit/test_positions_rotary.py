"""Rotary positions: complex numbers turned, so that only the distance is left in the dot product."""

import cmath
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from clearhead.errors import ConfigError, ShapeError
from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.masks import causal
from clearhead.nn.positions import POSITIONS, Place
from clearhead.nn.positions_rotary import Rotation, Stretch
from clearhead.tap import watching
from tests.parity.plain import same

places = st.integers(0, 500)
forms = st.booleans()


def at(rotation: Rotation, x_K: Tensor, position: int) -> Tensor:
    return rotation(x_K.view(1, 1, 1, -1), torch.tensor([[position]])).flatten()


def by_complex_numbers(x_K: Tensor, position: float, base: float, interleaved: bool) -> Tensor:
    """Pair i is one complex number, times e^(i·position·θ_i) with θ_i = base^(−2i/K) [su2021 eq. 13]."""
    x, width = x_K.tolist(), len(x_K)
    turned = [0.0] * width
    for i in range(width // 2):
        first, second = (2 * i, 2 * i + 1) if interleaved else (i, i + width // 2)
        number = complex(x[first], x[second]) * cmath.exp(1j * position * base ** (-2 * i / width))
        turned[first], turned[second] = number.real, number.imag
    return torch.tensor(turned)


@given(places, forms, st.sampled_from([2, 4, 6]), st.sampled_from([10_000.0, 500.0]))
def test_pairs_are_turned_complex_numbers(position: int, interleaved: bool, width: int, base: float) -> None:
    rotation = Rotation(width, base, interleaved=interleaved)
    x_K = torch.randn(width)
    same(at(rotation, x_K, position), by_complex_numbers(x_K, position, base, interleaved), 5e-4)


@given(places, places, st.integers(0, 500), forms)
def test_the_score_depends_on_the_distance_alone(m: int, n: int, shift: int, interleaved: bool) -> None:
    rotation = Rotation(8, interleaved=interleaved)
    q_K, k_K = torch.randn(8), torch.randn(8)
    here = at(rotation, q_K, m) @ at(rotation, k_K, n)
    there = at(rotation, q_K, m + shift) @ at(rotation, k_K, n + shift)
    same(here, there, 2e-3)


@given(places, forms)
def test_lengths_stay_and_position_zero_moves_nothing(position: int, interleaved: bool) -> None:
    rotation, x_K = Rotation(8, interleaved=interleaved), torch.randn(8)
    same(at(rotation, x_K, position).norm(), x_K.norm(), 1e-4)
    assert torch.equal(at(rotation, x_K, 0), x_K)


@given(places)
def test_one_form_is_a_permutation_of_the_other(position: int) -> None:
    x_K, order = torch.randn(8), [0, 2, 4, 6, 1, 3, 5, 7]
    halves, turns = Rotation(8), Rotation(8, interleaved=True)
    assert torch.equal(at(halves, x_K[order], position), at(turns, x_K, position)[order])


def test_each_row_has_positions_of_its_own() -> None:
    rotation = Rotation(4)
    x_BHLK, position_BL = torch.randn(2, 3, 2, 4), torch.tensor([[0, 1], [9, 4]])
    turned = rotation(x_BHLK, position_BL)
    for b in range(2):
        for i in range(2):
            for h in range(3):
                same(turned[b, h, i], at(rotation, x_BHLK[b, h, i], int(position_BL[b, i])))


@pytest.mark.parametrize("name", ["rotary", "rotary_interleaved"])
@pytest.mark.parametrize("kv_heads", [4, 1])
def test_attention_turns_queries_and_keys_and_not_values(name: str, kv_heads: int) -> None:
    place = Place(16, 4, 4)
    attention = MultiHeadAttention(16, 4, kv_heads=kv_heads, positions=POSITIONS[name](place).for_layer()).eval()
    still = MultiHeadAttention(16, 4, kv_heads=kv_heads).eval()
    still.load_state_dict(attention.state_dict())
    x_BLD, seen = torch.randn(2, 5, 16), {}
    for which, module in (("turned", attention), ("still", still)):
        names = {n: lambda x, key=(which, n): seen.setdefault(key, x) for n in ("q", "k", "v")}
        with watching(module, names):
            module(x_BLD, mask=causal())
    interleaved = name == "rotary_interleaved"
    for n in ("q", "k"):
        heads = seen["still", n]
        for h in range(heads.shape[1]):
            for i in range(5):
                expected = by_complex_numbers(heads[1, h, i].detach(), i, 10_000.0, interleaved)
                same(seen["turned", n][1, h, i], expected)
    assert torch.equal(seen["turned", "v"], seen["still", "v"])


def test_an_odd_head_is_refused() -> None:
    with pytest.raises(ShapeError, match="head_width=3"):
        POSITIONS["rotary"](Place(12, 4, 3))


def stretched_by_hand(frequency: float, factor: float, length: int, low: float, high: float) -> float:
    """Llama 3's three cases, by wavelengths."""
    wavelength = 2 * math.pi / frequency
    if wavelength < length / high:
        return frequency
    if wavelength > length / low:
        return frequency / factor
    share = (length / wavelength - low) / (high - low)
    return (1 - share) * frequency / factor + share * frequency


@given(st.floats(1, 32), st.integers(8, 512), st.floats(0.5, 2), st.floats(3, 8), st.sampled_from([50.0, 10_000.0]))
def test_only_slow_pairs_are_stretched(factor: float, length: int, low: float, high: float, base: float) -> None:
    frequency_K = torch.tensor([base ** (-i / 8) for i in range(8)], dtype=torch.float64)
    by_hand = [stretched_by_hand(f, factor, length, low, high) for f in frequency_K.tolist()]
    assert Stretch(factor, length, low, high)(frequency_K).tolist() == pytest.approx(by_hand)


@given(places, forms, st.sampled_from([2, 5]))
def test_all_pairs_stretched_are_positions_between(position: int, interleaved: bool, factor: int) -> None:
    slow, x_K = Rotation(8, interleaved=interleaved, stretch=Stretch(factor)), torch.randn(8)
    same(at(slow, x_K, position), by_complex_numbers(x_K, position / factor, 10_000.0, interleaved), 5e-4)


@pytest.mark.parametrize(("factor", "low", "high"), [(0.0, 1.0, 4.0), (-1.0, 1.0, 4.0), (2.0, 4.0, 4.0)])
def test_a_stretch_that_cannot_be(factor: float, low: float, high: float) -> None:
    with pytest.raises(ConfigError, match="low < high"):
        Stretch(factor, 16, low, high)
