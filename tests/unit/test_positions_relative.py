"""Relative positions: Shaw, T5, ALiBi and Transformer-XL, each against a loop over pairs of positions."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.masks import EVERYTHING, Mask, causal
from clearhead.nn.positions import POSITIONS, Place, Positions
from clearhead.nn.positions_relative import AlibiBias, BucketBias, DistanceBias, alibi_slopes, bucket
from clearhead.tap import watching
from tests.parity.plain import dot, plain_read, same

HEADS, HEAD_WIDTH, LENGTH = 2, 4, 6
WIDTH = HEADS * HEAD_WIDTH
MASKS = {"everything": EVERYTHING, "causal": causal()}


def scheme(name: str, **changes: int) -> Positions:
    """A scheme with every parameter at random."""
    positions = POSITIONS[name](Place(WIDTH, HEADS, HEAD_WIDTH, **{"clip": 2, **changes})).for_layer()
    with torch.no_grad():
        for parameter in positions.parameters():
            parameter.normal_()
    return positions


def read(positions: Positions, mask: Mask, kv_heads: int = HEADS) -> dict[str, Tensor]:
    """What passes one attention of two rows: q, k, v and what each head reads."""
    attention = MultiHeadAttention(WIDTH, HEADS, kv_heads=kv_heads, positions=positions).eval()
    seen: dict[str, Tensor] = {}
    names = ("q", "k", "v", "heads")
    with torch.no_grad(), watching(attention, {n: lambda x, n=n: seen.setdefault(n, x) for n in names}):
        attention(torch.randn(2, LENGTH, WIDTH), mask=mask)
    return seen


def looks(mask: Mask, i: int, j: int) -> bool:
    return j <= i or not mask.causal


def between(x: int, low: int, high: int) -> int:
    return max(low, min(high, x))


@pytest.mark.parametrize("kv_heads", [2, 1])
@pytest.mark.parametrize("name", sorted(MASKS))
def test_shaw(name: str, kv_heads: int) -> None:
    """e_ij = q_iᵀ(k_j + a^K_ij)/√K, z_i = Σ_j w_ij (v_j + a^V_ij), a_ij a row per clipped distance i − j."""
    positions, mask, clip = scheme("shaw"), MASKS[name], 2
    seen = read(positions, mask, kv_heads)
    keys, values = positions.bias.table_RK.detach(), positions.value.table_RK.detach()

    def row(i: int, j: int) -> int:
        return between(i - j, -clip, clip) + clip

    for b in range(2):
        for h in range(HEADS):
            g = h // (HEADS // kv_heads)
            for i in range(LENGTH):
                seen_by_i = [j for j in range(LENGTH) if looks(mask, i, j)]
                k = torch.stack([seen["k"][b, g, j] + keys[row(i, j)] for j in seen_by_i])
                v = torch.stack([seen["v"][b, g, j] + values[row(i, j)] for j in seen_by_i])
                weights = (k @ seen["q"][b, h, i] / math.sqrt(HEAD_WIDTH)).softmax(-1)
                same(seen["heads"][b, h, i], weights @ v)


def test_shaw_clips_far_distances() -> None:
    bias = DistanceBias(HEAD_WIDTH, clip=2)
    q, k = torch.randn(1, 1, 1, HEAD_WIDTH), torch.randn(1, 1, 9, HEAD_WIDTH)
    terms = bias(q, k, torch.tensor([[4]]))[0, 0, 0]
    assert torch.all(terms[:3] == terms[0])
    assert torch.all(terms[6:] == terms[8])
    assert len(set(terms.tolist())) == 5


def bucket_of(distance: int, buckets: int, farthest: int, causal: bool) -> int:
    """Half of the buckets for a distance each, then by the logarithm up to `farthest` [raffel2020 §2.1], exactly.

    The far bucket of distance d is the largest n with (farthest / exact)^(n / far) ≤ d / exact, in whole numbers.
    """
    offset = 0
    if not causal:
        buckets //= 2
        offset = buckets if distance < 0 else 0
        distance = abs(distance)
    distance = max(distance, 0)
    exact = buckets // 2
    if distance < exact:
        return offset + distance
    far = buckets - exact
    reached = Fraction(distance, exact) ** far
    n = max(n for n in range(far + 1) if Fraction(farthest, exact) ** n <= reached)
    return offset + min(exact + n, buckets - 1)


@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (8, 20), (4, 16)])
@pytest.mark.parametrize("past_alone", [True, False])
def test_buckets_of_all_distances(buckets: int, farthest: int, past_alone: bool) -> None:
    distances = torch.arange(-200, 201)
    expected = [bucket_of(d, buckets, farthest, past_alone) for d in distances.tolist()]
    assert bucket(distances, buckets, farthest, causal=past_alone).tolist() == expected


@pytest.mark.parametrize("past_alone", [True, False])
@given(buckets=st.integers(1, 12), farthest=st.integers(1, 12))
def test_every_distance_has_a_bucket_or_the_buckets_are_refused(buckets: int, farthest: int, past_alone: bool) -> None:
    sides = 1 if past_alone else 2
    if buckets // sides // 2 < 1 or farthest <= buckets // sides // 2:
        with pytest.raises(ConfigError, match=f"buckets={buckets}, farthest={farthest}"):
            BucketBias(HEADS, buckets, farthest, causal=past_alone)
        return
    BucketBias(HEADS, buckets, farthest, causal=past_alone)
    found = bucket(torch.arange(-40, 40), buckets, farthest, causal=past_alone)
    assert 0 <= found.min() <= found.max() < buckets


@given(st.integers(0, 5000), st.integers(0, 5000), st.booleans())
def test_farther_is_never_a_nearer_bucket(a: int, b: int, past_alone: bool) -> None:
    near, far = sorted((a, b))
    first, second = bucket(torch.tensor([near, far]), 32, 128, causal=past_alone).tolist()
    assert 0 <= first <= second < 32


@pytest.mark.parametrize("past_alone", [True, False])
@pytest.mark.parametrize("name", sorted(MASKS))
def test_t5(name: str, past_alone: bool) -> None:
    """q_iᵀk_j/√K + b_h(bucket(i − j)): the term is not scaled."""
    mask, positions = MASKS[name], scheme("t5", buckets=8, farthest=5, causal=past_alone)
    assert isinstance(positions.bias, BucketBias)
    seen, table = read(positions, mask), positions.bias.table.weight.tolist()
    for b in range(2):
        expected = plain_read(
            seen["q"][b],
            seen["k"][b],
            seen["v"][b],
            lambda q, k, h, i, j: dot(q, k) / math.sqrt(len(q)) + table[bucket_of(i - j, 8, 5, past_alone)][h],
            lambda h, i, j: looks(mask, i, j),
        )
        same(seen["heads"][b], expected)


def slopes_by_paper(heads: int) -> list[float]:
    """A geometric sequence that starts at 2^(−8/n) with that ratio; the odd members of the next one fill up."""

    def sequence(n: int) -> list[float]:
        start = 2 ** (-8 / n)
        return [start ** (i + 1) for i in range(n)]

    power = 1
    while 2 * power <= heads:
        power *= 2
    return sequence(power) + sequence(2 * power)[::2][: heads - power]


@pytest.mark.parametrize("heads", range(1, 34))
def test_slopes_for_any_number_of_heads(heads: int) -> None:
    slopes = alibi_slopes(heads)
    assert slopes == pytest.approx(slopes_by_paper(heads))
    assert len(set(slopes)) == heads
    assert all(0 < slope < 1 for slope in slopes)


def test_slopes_of_eight_heads_are_those_of_the_paper() -> None:
    assert alibi_slopes(8) == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]


@pytest.mark.parametrize("name", sorted(MASKS))
def test_alibi(name: str) -> None:
    mask, positions = MASKS[name], scheme("alibi")
    seen, slopes = read(positions, mask), slopes_by_paper(HEADS)
    for b in range(2):
        expected = plain_read(
            seen["q"][b],
            seen["k"][b],
            seen["v"][b],
            lambda q, k, h, i, j: dot(q, k) / math.sqrt(len(q)) - slopes[h] * abs(i - j),
            lambda h, i, j: looks(mask, i, j),
        )
        same(seen["heads"][b], expected)
    assert not list(AlibiBias(4).parameters())


def distance_vectors(project: nn.Linear) -> dict[int, list[list[float]]]:
    """W_R R_d for each distance d, cut into heads; R holds sines, then cosines [dai2019, footnote of §3.3]."""
    vectors = {}
    for d in range(-LENGTH, LENGTH + 1):
        angles = [d / 10_000 ** (2 * n / WIDTH) for n in range(WIDTH // 2)]
        r = [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
        whole = [dot(row, r) for row in project.weight.tolist()]
        vectors[d] = [whole[h * HEAD_WIDTH : (h + 1) * HEAD_WIDTH] for h in range(HEADS)]
    return vectors


@pytest.mark.parametrize("kv_heads", [2, 1])
@pytest.mark.parametrize("name", sorted(MASKS))
def test_transformer_xl(name: str, kv_heads: int) -> None:
    """(q_iᵀk_j + q_iᵀ W R_(i−j) + uᵀk_j + vᵀ W R_(i−j)) / √K: terms (a) to (d)."""
    positions, mask = scheme("transformer_xl"), MASKS[name]
    seen, bias = read(positions, mask, kv_heads), positions.bias
    r, u, v = distance_vectors(bias.project), bias.content_HK.tolist(), bias.position_HK.tolist()
    for b in range(2):
        expected = plain_read(
            seen["q"][b],
            seen["k"][b],
            seen["v"][b],
            lambda q, k, h, i, j: (
                dot(q, k) + dot(q, r[i - j][h]) + dot(u[h], k) + dot(v[h], r[i - j][h])
            ) / math.sqrt(len(q)),
            lambda h, i, j: looks(mask, i, j),
        )  # fmt: skip
        same(seen["heads"][b], expected)


@pytest.mark.parametrize("name", ["shaw", "t5", "alibi", "transformer_xl"])
def test_a_query_further_on_sees_the_same_distances(name: str) -> None:
    """The last row of the whole, asked alone as one step does."""
    bias = scheme(name).bias
    assert bias is not None
    q, k = torch.randn(2, HEADS, LENGTH, HEAD_WIDTH), torch.randn(2, HEADS, LENGTH, HEAD_WIDTH)
    whole = bias(q, k, torch.arange(LENGTH)[None]).expand(2, HEADS, LENGTH, LENGTH)
    last = bias(q[:, :, -1:], k, torch.tensor([[LENGTH - 1]])).expand(2, HEADS, 1, LENGTH)
    same(last, whole[:, :, -1:])
    ragged = bias(q[:, :, :1], k, torch.tensor([[1], [3]])).expand(2, HEADS, 1, LENGTH)
    for b, at in enumerate((1, 3)):
        alone = bias(q[b : b + 1, :, :1], k[b : b + 1], torch.tensor([[at]])).expand(1, HEADS, 1, LENGTH)
        same(ragged[b : b + 1], alone)
