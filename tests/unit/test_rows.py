"""Padded and packed: the same tokens, each at its place, and the same gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from clearhead.errors import ShapeError
from clearhead.nn.rows import Rows

LONGEST = 5
COUNTS = st.lists(st.integers(0, LONGEST), min_size=1, max_size=5).filter(any)


def real_places(counts: list[int]) -> list[tuple[int, int]]:
    return [(row, place) for row, count in enumerate(counts) for place in range(count)]


@given(counts=COUNTS)
def test_packing_lays_the_real_tokens_end_to_end(counts: list[int]) -> None:
    rows = Rows.of(torch.tensor(counts), LONGEST, pack=True)
    x_BLW, token_BL = torch.randn(len(counts), LONGEST, 3), torch.randint(100, (len(counts), LONGEST))
    packed, tokens = rows.pack(x_BLW), rows.pack(token_BL)
    if rows.full:
        assert packed is x_BLW
        return
    for n, (row, place) in enumerate(real_places(counts)):
        assert torch.equal(packed[0, n], x_BLW[row, place])
        assert tokens[0, n] == token_BL[row, place]
        assert rows.positions(x_BLW.device)[0, n] == place
    assert packed.shape == (1, sum(counts), 3)
    assert tokens.shape == (1, sum(counts))


@given(counts=COUNTS)
def test_unpacking_puts_every_token_back_and_padding_is_finite(counts: list[int]) -> None:
    rows = Rows.of(torch.tensor(counts), LONGEST, pack=True)
    x_BLW = torch.randn(len(counts), LONGEST, 3)
    back_BLW = rows.unpack(rows.pack(x_BLW))
    assert back_BLW.shape == x_BLW.shape
    assert back_BLW.isfinite().all()
    assert torch.equal(back_BLW[rows.allowed_BM], x_BLW[rows.allowed_BM])
    assert [(b, m) for b, m in rows.allowed_BM.nonzero().tolist()] == real_places(counts)


@given(counts=COUNTS)
def test_gradients_reach_the_real_positions_and_no_others(counts: list[int]) -> None:
    rows = Rows.of(torch.tensor(counts), LONGEST, pack=True)
    real_BL1 = rows.allowed_BM[..., None]
    x_BLW = torch.randn(len(counts), LONGEST, 2, requires_grad=True)
    upstream_BLW = torch.randn(x_BLW.shape)
    # Upstream, padding has a gradient too: it must go nowhere.
    y_BLW = rows.unpack(rows.pack(x_BLW) * 3.0)
    (gradient_BLW,) = torch.autograd.grad(y_BLW, x_BLW, upstream_BLW)
    assert torch.equal(gradient_BLW, 3.0 * upstream_BLW * real_BL1 if not rows.full else 3.0 * upstream_BLW)


def test_rows_that_are_not_packed_change_nothing() -> None:
    x_BLW = torch.randn(2, LONGEST, 3)
    for rows in (Rows.of(torch.tensor([2, 5]), LONGEST, pack=False), Rows.of(None, LONGEST), Rows(LONGEST)):
        assert rows.pack(x_BLW) is x_BLW
        assert rows.unpack(x_BLW) is x_BLW


def test_full_says_whether_there_is_padding() -> None:
    assert Rows.of(torch.tensor([5, 5]), LONGEST).full
    assert not Rows.of(torch.tensor([5, 4]), LONGEST).full
    assert Rows(LONGEST).allowed_BM.all()


def test_the_last_real_position_of_each_row() -> None:
    x_BLW = torch.randn(2, LONGEST, 3)
    last = Rows.of(torch.tensor([2, 5]), LONGEST).last(x_BLW)
    assert torch.equal(last, torch.stack([x_BLW[0, 1:2], x_BLW[1, 4:5]]))
    assert torch.equal(Rows(LONGEST).last(x_BLW), x_BLW[:, 4:5])


@pytest.mark.parametrize("counts", [[6, 2], [-1, 2]])
def test_impossible_counts_are_refused(counts: list[int]) -> None:
    with pytest.raises(ShapeError, match="real positions"):
        Rows.of(torch.tensor(counts), LONGEST, pack=True)


def test_another_number_of_rows_is_refused() -> None:
    with pytest.raises(ShapeError, match="3 rows"):
        Rows.of(torch.tensor([1, 2]), LONGEST, batch=3)


# PyTorch's own compiler instantiates the function that it warns against instantiating.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_used_inside_of_what_is_compiled() -> None:
    def through(x_BLW: Tensor, rows: Rows) -> Tensor:
        return rows.unpack(rows.pack(x_BLW).relu())

    torch._dynamo.reset()
    compiled = torch.compile(through, backend="aot_eager", fullgraph=True)
    x_BLW = torch.randn(3, LONGEST, 2, requires_grad=True)
    for counts in ([3, 2, 5], [1, 4, 0], [5, 5, 5]):
        rows = Rows.of(torch.tensor(counts), LONGEST, pack=True)
        ours, theirs = through(x_BLW, rows), compiled(x_BLW, rows)
        assert torch.equal(ours, theirs)
        assert torch.equal(*(torch.autograd.grad(y.sum(), x_BLW)[0] for y in (ours, theirs)))
