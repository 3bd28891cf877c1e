"""Masks: joined in any order they mean the same; dense or as a flag, they equal one question per pair of positions."""

from collections.abc import Callable
from functools import reduce

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from clearhead.errors import ShapeError
from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.masks import EVERYTHING, MASKS, Mask, causal, graph, padding, prefix, window
from clearhead.nn.rows import Rows
from tests.parity.plain import same

ROWS, LENGTH = 2, 5
Sees = Callable[[int, int, int], bool]  # (row of the batch, query, key)


COUNTS = st.lists(st.integers(1, LENGTH), min_size=ROWS, max_size=ROWS)
EDGES = st.lists(st.lists(st.booleans(), min_size=LENGTH, max_size=LENGTH), min_size=LENGTH, max_size=LENGTH)
# name -> a mask, and the same as a predicate written by hand
KINDS: dict[str, st.SearchStrategy[tuple[Mask, Sees]]] = {
    "everything": st.just((EVERYTHING, lambda b, i, j: True)),
    "causal": st.just((causal(), lambda b, i, j: j <= i)),
    "window": st.integers(1, LENGTH + 1).map(lambda n: (window(n), lambda b, i, j: abs(i - j) < n)),
    "prefix": COUNTS.map(lambda n: (prefix(torch.tensor(n)), lambda b, i, j: j <= i or j < n[b])),
    "padding": COUNTS.map(lambda n: (padding(Rows.of(torch.tensor(n), LENGTH, pack=False)), lambda b, i, j: j < n[b])),
    "graph": EDGES.map(lambda e: (graph(torch.tensor(e)), lambda b, i, j: e[i][j])),
}
ANY = st.one_of(*KINDS.values())


def dense(mask: Mask, queries: int = LENGTH) -> Tensor:
    return mask.dense(queries, LENGTH).expand(ROWS, 1, queries, LENGTH)[:, 0]


def by_hand(sees: Sees, queries: int = LENGTH) -> Tensor:
    """The last `queries` positions ask all."""
    first = LENGTH - queries
    return torch.tensor(
        [[[sees(b, first + i, j) for j in range(LENGTH)] for i in range(queries)] for b in range(ROWS)]
    )  # fmt: skip


@given(st.lists(ANY, min_size=1, max_size=4), st.integers(1, LENGTH))
def test_joined_masks_let_look_where_all_agree(parts: list[tuple[Mask, Sees]], queries: int) -> None:
    joined = reduce(Mask.__and__, (mask for mask, _ in parts))
    if joined.allowed is not None:
        queries = LENGTH  # a graph has as many rows as it has
    expected = by_hand(lambda b, i, j: all(sees(b, i, j) for _, sees in parts), queries)
    assert torch.equal(dense(joined, queries), expected)


@pytest.mark.parametrize("kind", sorted(KINDS))
@given(data=st.data())
def test_two_of_one_kind(kind: str, data: st.DataObject) -> None:
    (mask, sees), (other, other_sees) = data.draw(KINDS[kind]), data.draw(KINDS[kind])
    expected = by_hand(lambda b, i, j: sees(b, i, j) and other_sees(b, i, j))
    assert torch.equal(dense(mask & other), expected)


@given(ANY, ANY, ANY)
def test_order_and_grouping_do_not_matter(a: tuple[Mask, Sees], b: tuple[Mask, Sees], c: tuple[Mask, Sees]) -> None:
    (a_mask, _), (b_mask, _), (c_mask, _) = a, b, c
    assert torch.equal(dense(a_mask & b_mask), dense(b_mask & a_mask))
    assert torch.equal(dense((a_mask & b_mask) & c_mask), dense(a_mask & (b_mask & c_mask)))
    assert torch.equal(dense(a_mask & a_mask), dense(a_mask))
    assert torch.equal(dense(a_mask & EVERYTHING), dense(a_mask))


@given(st.lists(ANY, min_size=1, max_size=3))
def test_the_flag_and_its_remainder_say_what_the_dense_mask_says(parts: list[tuple[Mask, Sees]]) -> None:
    mask = reduce(Mask.__and__, (mask for mask, _ in parts))
    flag, allowed = mask.resolve(torch.arange(LENGTH)[None], LENGTH, aligned=True)
    whole = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    whole = whole.tril() if flag else whole
    whole = whole if allowed is None else whole & allowed
    assert torch.equal(whole.expand(ROWS, 1, LENGTH, LENGTH)[:, 0], dense(mask))


def test_nothing_is_built_where_a_flag_says_all() -> None:
    position_BL = torch.arange(LENGTH)[None]
    full = Rows.of(torch.tensor([LENGTH, LENGTH]), LENGTH, pack=False)
    assert EVERYTHING.resolve(position_BL, LENGTH, aligned=True) == (False, None)
    assert causal().resolve(position_BL, LENGTH, aligned=True) == (True, None)
    assert (causal() & padding(full)).resolve(position_BL, LENGTH, aligned=True) == (True, None)


def test_rows_that_stand_at_different_places() -> None:
    """One new token in each row, at position 1 of the first and 3 of the second: the flag cannot say it."""
    flag, allowed = causal().resolve(torch.tensor([[1], [3]]), 4, aligned=False)
    assert not flag
    assert allowed is not None
    assert allowed[:, 0, 0].int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]


@pytest.mark.parametrize("name", sorted(MASKS))
@pytest.mark.parametrize("size", [1, 2, 5])
def test_every_kind_can_be_built_at_any_size(name: str, size: int) -> None:
    allowed = MASKS[name](size).dense(size, size)
    assert allowed.dtype == torch.bool
    assert allowed.expand(1, 1, size, size).any(-1).all()  # none of them blinds a position


@pytest.mark.parametrize("size", [0, -3])
def test_a_window_holds_at_least_its_position(size: int) -> None:
    with pytest.raises(ShapeError, match=f"size={size}"):
        window(size)


def test_causal_attention_is_a_loop_over_prefixes() -> None:
    attention = MultiHeadAttention(8, 2).eval()
    x_BLD = torch.randn(2, 6, 8)
    loop = [attention(x_BLD[:, : i + 1])[0][:, -1] for i in range(6)]
    same(attention(x_BLD, mask=causal())[0], torch.stack(loop, dim=1))


def test_a_window_is_a_loop_over_pieces() -> None:
    attention = MultiHeadAttention(8, 2).eval()
    x_BLD = torch.randn(2, 6, 8)
    loop = [attention(x_BLD[:, max(0, i - 2) : i + 1])[0][:, -1] for i in range(6)]
    same(attention(x_BLD, mask=causal() & window(3))[0], torch.stack(loop, dim=1))


def test_padding_is_as_if_it_were_not_there() -> None:
    attention = MultiHeadAttention(8, 2).eval()
    x_BLD, count_B = torch.randn(3, 6, 8), torch.tensor([6, 1, 4])
    y_BLD, _ = attention(x_BLD, mask=padding(Rows.of(count_B, 6, pack=False)))
    for x_LD, y_LD, count in zip(x_BLD, y_BLD, count_B.tolist(), strict=True):
        same(y_LD[:count], attention(x_LD[None, :count])[0][0])
    other_BLD = torch.where(torch.arange(6)[:, None] < count_B[:, None, None], x_BLD, torch.randn(3, 6, 8))
    again_BLD, _ = attention(other_BLD, mask=padding(Rows.of(count_B, 6, pack=False)))
    for y_LD, again_LD, count in zip(y_BLD, again_BLD, count_B.tolist(), strict=True):
        assert torch.equal(y_LD[:count], again_LD[:count])


def test_a_future_token_changes_no_earlier_output() -> None:
    attention = MultiHeadAttention(8, 2).eval()
    x_BLD = torch.randn(1, 6, 8)
    changed_BLD = x_BLD.clone()
    changed_BLD[:, 3] += 1
    before, after = attention(x_BLD, mask=causal())[0], attention(changed_BLD, mask=causal())[0]
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.isclose(before[:, 3:], after[:, 3:]).all(-1).any()
