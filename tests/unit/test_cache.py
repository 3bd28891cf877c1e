"""Caches against lists of lists: any sequence of extensions, choices and joins; older values stay what they were."""

from dataclasses import dataclass
from itertools import count

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from clearhead.errors import ShapeError
from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.cache import LayerCache, State, Tree
from clearhead.nn.masks import Mask, causal
from clearhead.nn.rows import Rows
from tests.parity.plain import same
from tests.unit.small import small_model, tokens

GROUPS, WIDTH = 2, 3


@dataclass
class Model:
    """The naive cache: for each row the list of what was written, one number a position."""

    rows: list[list[float]]


def written(numbers: list[list[float]]) -> tuple[Tensor, Tensor]:
    """Keys (B, G, T, K) that all hold the number of their row and position, and other values."""
    k_BGTK = torch.tensor(numbers)[:, None, :, None].expand(-1, GROUPS, -1, WIDTH)
    return k_BGTK, -10 * k_BGTK


def check(cache: LayerCache, model: Model) -> None:
    """The cache holds what the model holds."""
    lengths = [len(row) for row in model.rows]
    assert cache.length == max(lengths)
    assert cache.keys_BGMK.shape == cache.values_BGMK.shape == (len(lengths), GROUPS, max(lengths), WIDTH)
    if cache.length_B is None:
        assert len(set(lengths)) == 1
    else:
        assert cache.length_B.tolist() == lengths
    for b, row in enumerate(model.rows):
        expected = torch.tensor(row)[None, :, None].expand(GROUPS, -1, WIDTH)
        assert torch.equal(cache.keys_BGMK[b, :, : len(row)], expected)
        assert torch.equal(cache.values_BGMK[b, :, : len(row)], -10 * expected)
    start = cache.positions(3, torch.device("cpu")).expand(len(lengths), -1)
    assert start.tolist() == [[n, n + 1, n + 2] for n in lengths]


def extended(data: st.DataObject, cache: LayerCache, model: Model, fresh: "count[int]") -> tuple[LayerCache, Model]:
    """One to three more positions, in each row as many as are drawn, or in all of them the same."""
    new = data.draw(st.integers(1, 3), label="new")
    rows = len(model.rows)
    counts = data.draw(st.none() | st.lists(st.integers(0, new), min_size=rows, max_size=rows), label="counts")
    numbers = [[float(next(fresh)) for _ in range(new)] for _ in range(rows)]
    cache = cache.extend(*written(numbers), None if counts is None else torch.tensor(counts))
    kept = [new] * rows if counts is None else counts
    return cache, Model([old + row[:n] for old, row, n in zip(model.rows, numbers, kept, strict=True)])


@given(st.data())
def test_any_sequence_of_changes(data: st.DataObject) -> None:
    """Every value that was ever made is looked at after every change."""
    fresh = count(1)
    rows = data.draw(st.integers(1, 3), label="rows")
    numbers = [[float(next(fresh)) for _ in range(2)] for _ in range(rows)]
    first = LayerCache(room=data.draw(st.sampled_from([0, 3, 16]), label="room")).extend(*written(numbers))
    values = [(first, Model(numbers))]
    for _ in range(data.draw(st.integers(1, 8), label="changes")):
        cache, model = data.draw(st.sampled_from(values), label="of")
        change = data.draw(st.sampled_from(["extend", "extend", "select", "join"]), label="change")
        if change == "extend":
            values.append(extended(data, cache, model, fresh))
        elif change == "select":
            chosen = data.draw(st.lists(st.integers(0, len(model.rows) - 1), min_size=1, max_size=4), label="rows")
            values.append((cache.select(torch.tensor(chosen)), Model([model.rows[row] for row in chosen])))
        else:
            other, of_other = data.draw(st.sampled_from(values), label="with")
            values.append((cache.join(other), Model(model.rows + of_other.rows)))
        for made, expected in values:
            check(made, expected)


def numbered(start: float, rows: int = 2, new: int = 1) -> tuple[Tensor, Tensor]:
    return written([[float(start + 10 * row + at) for at in range(new)] for row in range(rows)])


def test_extending_writes_into_the_room_that_is_there() -> None:
    cache = LayerCache(room=8).extend(*numbered(1, new=2))
    places = cache.keys_BGMK.data_ptr(), cache.values_BGMK.data_ptr()
    assert cache.capacity == 8
    for step in range(6):
        cache = cache.extend(*numbered(100 + step))
        assert (cache.keys_BGMK.data_ptr(), cache.values_BGMK.data_ptr()) == places
    assert cache.length == cache.capacity == 8
    grown = cache.extend(*numbered(200))
    assert grown.keys_BGMK.data_ptr() != places[0]
    assert grown.capacity == 16


def test_rows_of_different_lengths_write_in_place_too() -> None:
    cache = LayerCache(room=8).extend(*numbered(1, new=3), torch.tensor([1, 3]))
    place = cache.keys_BGMK.data_ptr()
    longer = cache.extend(*numbered(50))
    assert longer.keys_BGMK.data_ptr() == place
    assert longer.length_B is not None
    assert longer.length_B.tolist() == [2, 4]
    assert longer.keys_BGMK[:, 0, :, 0].tolist()[0][:2] == [1.0, 50.0]


def test_a_fork_copies_and_both_branches_live() -> None:
    prompt = LayerCache(room=8).extend(*numbered(1, new=3))
    one = prompt.extend(*numbered(100))
    other = prompt.extend(*numbered(200))
    assert one.keys_BGMK.data_ptr() == prompt.keys_BGMK.data_ptr()
    assert other.keys_BGMK.data_ptr() != prompt.keys_BGMK.data_ptr()
    one, other = one.extend(*numbered(101)), other.extend(*numbered(201))
    assert prompt.keys_BGMK[0, 0, :, 0].tolist() == [1.0, 2.0, 3.0]
    assert one.keys_BGMK[0, 0, :, 0].tolist() == [1.0, 2.0, 3.0, 100.0, 101.0]
    assert other.keys_BGMK[0, 0, :, 0].tolist() == [1.0, 2.0, 3.0, 200.0, 201.0]


def test_growing_costs_a_copy_only_now_and_then() -> None:
    cache, copies = LayerCache().extend(*numbered(1)), 0
    for step in range(100):
        longer = cache.extend(*numbered(step))
        copies += longer.keys_BGMK.data_ptr() != cache.keys_BGMK.data_ptr()
        cache = longer
    assert cache.length == 101
    assert copies <= 7  # 1, 2, 4, … 128


def test_a_choice_keeps_its_room() -> None:
    cache = LayerCache(room=8).extend(*numbered(1, new=3)).select(torch.tensor([1, 1, 0]))
    assert cache.capacity == 8
    assert cache.extend(*numbered(50, rows=3)).keys_BGMK.data_ptr() == cache.keys_BGMK.data_ptr()


@pytest.mark.parametrize("counts", [None, torch.tensor([1, 3])], ids=["even", "ragged"])
def test_when_no_row_is_left_others_can_join(counts: Tensor | None) -> None:
    nobody = LayerCache().extend(*numbered(1, new=3), counts).select(torch.tensor([], dtype=torch.long))
    nothing = torch.empty(0, GROUPS, 1, WIDTH)
    assert nobody.extend(nothing, nothing).keys_BGMK.shape[0] == 0
    check(nobody.join(LayerCache().extend(*numbered(50))), Model([[50.0], [60.0]]))


def test_an_empty_cache_stays_empty_under_a_choice() -> None:
    empty = LayerCache(room=4)
    assert empty.select(torch.tensor([0, 0])).length == 0
    assert empty.positions(2, torch.device("cpu")).tolist() == [[0, 1]]


def test_of_holds_what_it_was_given() -> None:
    k_BGMK, v_BGMK = numbered(1, new=3)
    cache = LayerCache.of(k_BGMK, v_BGMK, torch.tensor([2, 3]))
    check(cache, Model([[1.0, 2.0], [11.0, 12.0, 13.0]]))
    check(cache.select(torch.tensor([0])), Model([[1.0, 2.0]]))


def test_an_empty_cache_has_no_keys_and_no_rows() -> None:
    filled = LayerCache().extend(*numbered(1))
    for ask in (
        lambda: LayerCache().keys_BGMK,
        lambda: LayerCache().values_BGMK,
        lambda: LayerCache().capacity,
        lambda: LayerCache().join(filled),
        lambda: filled.join(LayerCache()),
    ):
        with pytest.raises(ShapeError, match=r"nothing was written|is empty"):
            ask()


def test_another_number_of_rows_is_refused() -> None:
    with pytest.raises(ShapeError, match="2 rows cannot take 3"):
        LayerCache().extend(*numbered(1)).extend(*numbered(1, rows=3))


def test_a_state_changes_all_its_caches() -> None:
    own = tuple(LayerCache().extend(*numbered(start)) for start in (1, 2))
    cross = tuple(LayerCache.of(*numbered(start, new=3)) for start in (3, 4))
    state = State(own, cross)
    chosen = state.select(torch.tensor([1, 0, 1]))
    joined = chosen.join(state)
    assert state.positions(2, torch.device("cpu")).tolist() == [[1, 2]]
    assert len(chosen.own) == len(chosen.cross) == 2
    check(chosen.own[1], Model([[12.0], [2.0], [12.0]]))
    check(joined.own[0], Model([[11.0], [1.0], [11.0], [1.0], [11.0]]))
    check(
        joined.cross[1],
        Model([[14.0, 15.0, 16.0], [4.0, 5.0, 6.0], [14.0, 15.0, 16.0], [4.0, 5.0, 6.0], [14.0, 15.0, 16.0]]),
    )


def test_states_of_different_models_do_not_join() -> None:
    one, two = (State(tuple(LayerCache().extend(*numbered(1)) for _ in range(layers))) for layers in (1, 2))
    with pytest.raises(ValueError, match="argument"):
        one.join(two)


@pytest.mark.parametrize("room", [0, 12])
@torch.no_grad()
def test_attention_over_ragged_rows_reads_no_spare_room(room: int) -> None:
    """Rows of different lengths, each as if it were alone; memory that was never written holds NaN in these tests."""
    attention = MultiHeadAttention(8, 2).eval()
    lengths, longest, new = [2, 5, 1], 5, 3
    x_BLD, new_BTD = torch.randn(3, longest, 8), torch.randn(3, new, 8)
    count_B = torch.tensor(lengths)
    _, cache = attention(
        x_BLD, mask=causal() & Mask(queries=Rows.of(count_B, longest, pack=False)), cache=LayerCache(room=room)
    )  # fmt: skip
    for at in range(new):
        y_BTD, cache = attention(new_BTD[:, at : at + 1], mask=causal(), cache=cache)
        for b, length in enumerate(lengths):
            alone_BLD = torch.cat([x_BLD[b : b + 1, :length], new_BTD[b : b + 1, : at + 1]], dim=1)
            same(y_BTD[b, 0], attention(alone_BLD, mask=causal())[0][0, -1])


@given(st.data())
def test_rewinding_forgets_the_end_and_writes_over_it(data: st.DataObject) -> None:
    """Whatever was read too far is replaced, in the same storage; what was kept before it stays valid."""
    fresh = count(1)
    numbers = [[float(next(fresh)) for _ in range(2)] for _ in range(2)]
    kept = LayerCache(room=16).extend(*written(numbers))
    cache, model = kept, Model(numbers)
    for _ in range(4):
        cache, model = extended(data, cache, model, fresh)
        lengths = [data.draw(st.integers(2, len(row)), label="length") for row in model.rows]
        place = cache.keys_BGMK.data_ptr()
        cache = cache.rewind(torch.tensor(lengths))
        model = Model([row[:length] for row, length in zip(model.rows, lengths, strict=True)])
        check(cache, model)
        assert cache.keys_BGMK.data_ptr() == place
        check(kept, Model(numbers))


@given(st.data())
def test_a_tree_sees_each_branch_on_its_own_path(data: st.DataObject) -> None:
    """The flags against paths that are kept as lists of slots, for trunks of one length and of several."""
    even = data.draw(st.booleans(), label="even")
    trunks = [3, 3] if even else [data.draw(st.integers(1, 4), label="trunk") for _ in range(2)]
    tree = Tree(3 if even else torch.tensor(trunks), torch.ones(2, 1, 0, dtype=torch.bool))
    paths: list[list[list[int]]] = [[list(range(trunk))] for trunk in trunks]
    used = list(trunks)
    for depth in range(3):
        if data.draw(st.booleans(), label="select"):
            rows = data.draw(st.lists(st.integers(0, len(used) - 1), min_size=1, max_size=2), label="rows")
            tree = tree.select(torch.tensor(rows))
            paths, used, trunks = ([x[row] for row in rows] for x in (paths, used, trunks))
        width = data.draw(st.integers(1, 3), label="width")
        parents = [[data.draw(st.integers(0, len(row) - 1)) for _ in range(width)] for row in paths]
        tree = tree.descend(torch.tensor(parents))
        paths = [
            [[*row[parent], first + branch] for branch, parent in enumerate(chosen)]
            for row, chosen, first in zip(paths, parents, used, strict=True)
        ]
        position_BT = tree.positions(width, torch.device("cpu"))
        assert position_BT.expand(len(used), -1).tolist() == [[trunk + depth] * width for trunk in trunks]
        allowed = tree.mask(position_BT).allowed
        assert allowed is not None
        assert [[row.nonzero()[:, 0].tolist() for row in rows] for rows in allowed[:, 0]] == paths
        tree, used = tree.grown(width), [first + width for first in used]


def test_a_state_with_branches_keeps_them_under_a_choice_and_joins_no_other() -> None:
    own = tuple(LayerCache(room=8).extend(*numbered(start, new=2), torch.tensor([2, 1])) for start in (1, 2))
    state = State(own).branch(torch.tensor([[0, 0, 0], [0, 0, 0]]))
    assert state.positions(3, torch.device("cpu")).tolist() == [[2, 2, 2], [1, 1, 1]]
    assert state.select(torch.tensor([1])).positions(3, torch.device("cpu")).tolist() == [[1, 1, 1]]
    with pytest.raises(ShapeError, match="cannot be joined"):
        state.join(State(own))
    rewound = state.rewind(torch.tensor([1, 1]))
    assert rewound.tree is None
    assert rewound.positions(1, torch.device("cpu")).tolist() == [[1], [1]]


@pytest.mark.parametrize("kv_heads", [1, 4])
@torch.inference_mode()
def test_the_memory_of_4096_tokens_is_that_of_the_formula(kv_heads: int) -> None:
    length, layers, head_width, rows = 4096, 2, 4, 2
    model = small_model("decoder_only", positions="rotary", kv_heads=kv_heads)
    state = model.start(room=length)
    for token_BT in tokens(rows, length).split(512, dim=1):
        _, state = model.step(token_BT, state, last=True)
    kept = {
        x.untyped_storage().data_ptr(): x.untyped_storage().nbytes()
        for cache in state.own
        for x in (cache.keys_BGMK, cache.values_BGMK)
    }
    formula = rows * layers * 2 * kv_heads * head_width * length * 4
    assert formula <= sum(kept.values()) <= 1.05 * formula
