"""Batches: every example once, within the budget, and nothing but seed, epoch and step decides which."""

from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.batch import (
    pad,
    padding_share,
    parallel_windows,
    random_windows,
    row_batches,
    sequential_windows,
    shard,
    split,
    token_batches,
)
from clearhead.errors import ConfigError

pair_lengths = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=120)
seeds = st.integers(0, 2**40)


def as_lists(plan: list[np.ndarray]) -> list[list[int]]:
    return [batch.tolist() for batch in plan]


@given(lengths=pair_lengths, tokens=st.integers(30, 200), seed=seeds, epoch=st.integers(0, 99), pool=st.integers(1, 5))
def test_each_pair_once_within_the_budget(
    lengths: list[tuple[int, int]], tokens: int, seed: int, epoch: int, pool: int
) -> None:
    plan = token_batches(lengths, tokens=tokens, seed=seed, epoch=epoch, pool=pool)
    assert sorted(chain.from_iterable(as_lists(plan))) == list(range(len(lengths)))
    for batch in plan:
        rows = [lengths[index] for index in batch]
        assert len(rows) * max(side for row in rows for side in row) <= tokens
        assert len(rows) >= 1


@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=60), tokens=st.integers(30, 200))
def test_one_side_is_two_equal_sides(lengths: list[int], tokens: int) -> None:
    one = token_batches(lengths, tokens=tokens, seed=1, epoch=2)
    two = token_batches([(length, length) for length in lengths], tokens=tokens, seed=1, epoch=2)
    assert as_lists(one) == as_lists(two)


@given(lengths=pair_lengths, seed=seeds, epoch=st.integers(0, 99))
def test_a_plan_depends_on_nothing_else(lengths: list[tuple[int, int]], seed: int, epoch: int) -> None:
    first = as_lists(token_batches(lengths, tokens=64, seed=seed, epoch=epoch))
    np.random.seed(1)
    assert as_lists(token_batches(np.array(lengths), tokens=64, seed=seed, epoch=epoch)) == first


def test_epochs_and_seeds_differ_in_order_and_in_company() -> None:
    lengths = np.random.default_rng(0).integers(5, 9, (500, 2))
    plans = [token_batches(lengths, tokens=80, seed=seed, epoch=epoch) for seed, epoch in [(0, 0), (0, 1), (1, 0)]]
    companies = [{frozenset(batch) for batch in as_lists(plan)} for plan in plans]
    assert len({tuple(chain.from_iterable(as_lists(plan))) for plan in plans}) == 3
    assert all(not first & second for first, second in pairwise([*companies, companies[0]]))


def test_batches_come_in_no_order_of_length() -> None:
    lengths = np.repeat(np.arange(1, 41), 20)
    firsts = [lengths[batch].max() for batch in token_batches(lengths, tokens=80, seed=0, epoch=0)]
    assert abs(np.corrcoef(firsts, np.arange(len(firsts)))[0, 1]) < 0.2


def test_batches_are_as_large_as_the_budget_allows() -> None:
    assert [len(batch) for batch in token_batches([7] * 100, tokens=70, seed=0, epoch=0)] == [10] * 10


def test_batches_of_like_length_have_little_padding() -> None:
    rng = np.random.default_rng(0)
    source = rng.gamma(4, 4, 20000).astype(int) + 2
    lengths = np.stack([source, np.maximum(2, source + rng.normal(0, 2, 20000).astype(int))], axis=1)
    assert padding_share(row_batches(len(lengths), rows=64, seed=0, epoch=0), lengths) > 0.4
    assert padding_share(token_batches(lengths, tokens=4096, seed=0, epoch=0), lengths) < 0.05


@given(lengths=pair_lengths)
def test_the_share_of_padding(lengths: list[tuple[int, int]]) -> None:
    plan = row_batches(len(lengths), rows=7, seed=0, epoch=0)
    padded = real = 0
    for batch in plan:
        for side in (0, 1):
            rows = [[1] * lengths[index][side] for index in batch]
            ids, _ = pad(rows, 0)
            padded += ids.size
            real += int(ids.sum())
    assert padding_share(plan, lengths) == pytest.approx(1 - real / padded if padded else 0)


def test_an_example_over_the_budget_is_named() -> None:
    with pytest.raises(ConfigError, match=r"example 2 has 90 tokens.*tokens=64"):
        token_batches([(3, 4), (5, 6), (7, 90)], tokens=64, seed=0, epoch=0)
    assert token_batches([], tokens=64, seed=0, epoch=0) == []


@given(count=st.integers(0, 50), rows=st.integers(1, 9), seed=seeds)
def test_each_row_once(count: int, rows: int, seed: int) -> None:
    plan = row_batches(count, rows=rows, seed=seed, epoch=3)
    assert sorted(chain.from_iterable(as_lists(plan))) == list(range(count))
    assert [len(batch) for batch in plan[:-1]] == [rows] * (len(plan) - 1)
    assert as_lists(plan) == as_lists(row_batches(count, rows=rows, seed=seed, epoch=3))


@given(size=st.integers(2, 60), data=st.data(), seed=seeds, step=st.integers(0, 2**40))
def test_random_windows(size: int, data: st.DataObject, seed: int, step: int) -> None:
    length = data.draw(st.integers(2, size))
    spans = random_windows(size, length=length, rows=8, seed=seed, step=step)
    assert spans.shape == (8, 2)
    assert (spans[:, 1] - spans[:, 0] == length).all()
    assert spans.min() >= 0
    assert spans.max() <= size
    assert (spans == random_windows(size, length=length, rows=8, seed=seed, step=step)).all()


def test_random_windows_reach_both_ends_and_change_with_the_step() -> None:
    steps = [random_windows(6, length=4, rows=50, seed=0, step=step) for step in range(2)]
    assert {int(start) for start in steps[0][:, 0]} == {0, 1, 2}
    assert (steps[0] != steps[1]).any()


@given(size=st.integers(2, 200), length=st.integers(2, 40))
def test_sequential_windows_predict_every_token_but_the_first_once(size: int, length: int) -> None:
    spans = sequential_windows(size, length=length)
    assert list(chain.from_iterable(range(start + 1, stop) for start, stop in spans)) == list(range(1, size))
    assert all(stop - start == length for start, stop in spans[:-1])
    assert all(stop - start <= length for start, stop in spans)


@given(share=st.integers(2, 40), rows=st.integers(1, 5), data=st.data())
def test_parallel_windows_go_on_where_they_ended(share: int, rows: int, data: st.DataObject) -> None:
    length = data.draw(st.integers(2, share))
    size = share * rows + data.draw(st.integers(0, rows - 1))
    steps = (size // rows - 1) // (length - 1)
    walk = [parallel_windows(size, length=length, rows=rows, step=step) for step in range(steps + 1)]
    assert (walk[0] == walk[-1]).all(), "then all over again"
    for before, after in pairwise(walk[:-1]):
        assert (after[:, 0] == before[:, 1] - 1).all()
    read = [place for row in range(rows) for spans in walk[:-1] for place in range(spans[row, 0] + 1, spans[row, 1])]
    assert len(read) == len(set(read))
    assert max(read) < size


@pytest.mark.parametrize("length", [1, 11])
def test_windows_that_do_not_fit(length: int) -> None:
    with pytest.raises(ConfigError, match=rf"length={length}, tokens there: 10"):
        random_windows(10, length=length, rows=2, seed=0, step=0)
    with pytest.raises(ConfigError, match="tokens there: 5"):
        parallel_windows(10, length=length, rows=2, step=0)
    for size in (0, 1):
        with pytest.raises(ConfigError, match=f"tokens there: {size}"):
            sequential_windows(size, length=length)
    with pytest.raises(ConfigError, match="length=1"):
        sequential_windows(10, length=1)


@given(lengths=pair_lengths, parts=st.integers(1, 8), weighted=st.booleans())
def test_parts_make_up_the_batch_and_weigh_the_same(lengths: list[tuple[int, int]], parts: int, weighted: bool) -> None:
    batch = np.random.default_rng(0).permutation(len(lengths))
    weights = [sum(lengths[index]) if weighted else 1 for index in range(len(lengths))]
    found = split(batch, parts, lengths if weighted else None)
    assert len(found) == parts
    assert list(chain.from_iterable(as_lists(found))) == batch.tolist()
    shares = [sum(weights[index] for index in part) for part in as_lists(found)]
    assert all(abs(share - sum(weights) / parts) <= max(weights) for share in shares)
    assert as_lists([shard(batch, rank, parts, lengths if weighted else None) for rank in range(parts)]) == as_lists(
        found
    )


def test_more_parts_than_examples_and_parts_that_cannot_be() -> None:
    assert sorted(len(part) for part in split(np.array([4, 2]), 5)) == [0, 0, 0, 1, 1]
    with pytest.raises(ConfigError, match="parts=0"):
        split(np.array([1]), 0)
    for rank in (-1, 2):
        with pytest.raises(ConfigError, match=f"rank={rank}, world=2"):
            shard(np.array([1]), rank, 2)
    with pytest.raises(ConfigError, match="rows=0"):
        row_batches(3, rows=0, seed=0, epoch=0)


@given(rows=st.lists(st.lists(st.integers(0, 99), max_size=6), max_size=6))
def test_padding_keeps_the_ids_and_fills_the_rest(rows: list[list[int]]) -> None:
    ids, counts = pad(rows, -1)
    longest = max(map(len, rows), default=0)
    assert ids.dtype == counts.dtype == np.int64
    assert ids.shape == (len(rows), longest)
    assert ids.tolist() == [row + [-1] * (longest - len(row)) for row in rows]
    assert counts.tolist() == [len(row) for row in rows]
