"""The toy tasks, each against its own definition."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.tasks import FIRST, TASKS, examples
from clearhead.errors import ConfigError

names = st.sampled_from(sorted(TASKS))
seeds = st.integers(0, 2**32)


@given(names, st.integers(1, 6), st.integers(12, 20), seeds)
def test_tokens_are_symbols_only(name: str, length: int, symbols: int, seed: int) -> None:
    for example in examples(name, 20, length=length, symbols=symbols, seed=seed):
        assert all(FIRST <= token < FIRST + symbols for token in example.source + example.target)


@given(names, st.integers(0, 5), st.integers(0, 5), seeds)
def test_seed_decides_and_prefixes_agree(name: str, few: int, more: int, seed: int) -> None:
    long = examples(name, few + more, length=4, symbols=8, seed=seed)
    assert len(long) == few + more
    assert long[:few] == examples(name, few, length=4, symbols=8, seed=seed)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_seeds_differ(name: str) -> None:
    assert examples(name, 20, length=5, symbols=16, seed=0) != examples(name, 20, length=5, symbols=16, seed=1)


@given(st.integers(1, 9), st.integers(1, 9), seeds)
def test_copy_reverse_sort(length: int, symbols: int, seed: int) -> None:
    copied, reversed_, sorted_ = (
        examples(name, 10, length=length, symbols=symbols, seed=seed) for name in ("copy", "reverse", "sort")
    )
    for example in (*copied, *reversed_, *sorted_):
        assert len(example.source) == length
    assert all(target == source for source, target in copied)
    assert all(target[i] == source[-1 - i] for source, target in reversed_ for i in range(length))
    for source, target in sorted_:
        assert all(a <= b for a, b in pairwise(target))
        assert all(target.count(token) == source.count(token) for token in source)


@given(st.integers(1, 6), st.integers(12, 17), seeds)
def test_recall_answers_the_value_beside_the_key(length: int, symbols: int, seed: int) -> None:
    for source, target in examples("recall", 10, length=length, symbols=symbols, seed=seed):
        keys, values, asked = source[:-1:2], source[1::2], source[-1]
        assert len(keys) == len(values) == length
        assert len(set(keys)) == length
        assert max(keys) < FIRST + symbols // 2 <= min(values)
        assert target == [dict(zip(keys, values, strict=True))[asked]]


def test_every_pair_is_asked_for() -> None:
    asked = {source[:-1:2].index(source[-1]) for source, _ in examples("recall", 200, length=5, symbols=10, seed=3)}
    assert asked == set(range(5))


def test_a_copy_is_not_the_same_list() -> None:
    (example,) = examples("copy", 1, length=3, symbols=5, seed=0)
    example.target.append(0)
    assert len(example.source) == 3


@pytest.mark.parametrize(
    ("name", "length", "symbols", "named"),
    [("copie", 3, 5, "copie"), ("copy", 0, 5, "length=0"), ("sort", 3, 0, "symbols=0"), ("recall", 4, 7, "8 symbols")],
)
def test_refusals_name_the_value(name: str, length: int, symbols: int, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        examples(name, 1, length=length, symbols=symbols, seed=0)


def test_refuses_a_negative_count() -> None:
    with pytest.raises(ConfigError, match="count=-1"):
        examples("copy", -1, length=1, symbols=1, seed=0)
