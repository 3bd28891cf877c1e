"""The best few of many, against a whole sort."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from clearhead.generate.best import CHUNK, best

# Fewer chunks than are looked at, more, none, and an end that fills no chunk.
sizes = st.sampled_from([1, 5, CHUNK, 4 * CHUNK, 40 * CHUNK, 9 * CHUNK + 3, 30 * CHUNK + 127])


@given(sizes, st.integers(1, 12), st.integers(0, 99), st.booleans())
def test_the_best_are_those_of_a_sort(size: int, count: int, seed: int, few: bool) -> None:
    chance = torch.Generator().manual_seed(seed)
    score_NV = torch.randn(2, 3, size, generator=chance)
    if few:  # of most nothing is left
        score_NV = torch.where(torch.rand(size, generator=chance) < 0.01, score_NV, -torch.inf)
    value, place = best(score_NV, count)
    expected = score_NV.sort(descending=True).values[..., : min(count, size)]
    assert torch.equal(value, expected)
    assert torch.equal(score_NV.gather(-1, place), value)
    assert all(len(set(row)) == min(count, size) for row in place.flatten(0, 1).tolist())


def test_the_best_at_the_very_end() -> None:
    score_NV = torch.zeros(1, 50 * CHUNK + 7)
    score_NV[0, -1], score_NV[0, 0] = 2.0, 1.0
    assert best(score_NV, 2).place_NK.tolist() == [[50 * CHUNK + 6, 0]]
