import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.train.schedule import SCHEDULES, Timing, constant, cosine, inverse_root, linear, noam

steps_and_warmups = st.tuples(st.integers(1, 500), st.integers(1, 500)).map(lambda pair: (max(pair), min(pair)))


@pytest.mark.parametrize("step", [1, 17, 4000, 4001, 100_000])
def test_noam_is_the_formula_of_the_paper(step: int) -> None:
    expected = 1 / math.sqrt(512) * min(1 / math.sqrt(step), step / math.sqrt(4000) ** 3)
    assert noam(step, Timing(steps=100_000, warmup=4000, width=512)) == pytest.approx(expected, rel=1e-12)


def test_noam_is_inverse_root_up_to_its_scale() -> None:
    timing = Timing(steps=100, warmup=10, width=64)
    for step in range(1, 101):
        assert noam(step, timing) == pytest.approx(inverse_root(step, timing) / math.sqrt(64 * 10), rel=1e-12)


def test_cosine_is_nanogpts() -> None:
    def nanogpt(iteration: int, warmup: int, end: int, peak: float, least: float) -> float:
        ratio = (iteration - warmup) / (end - warmup)
        return least + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (peak - least)

    timing = Timing(steps=2000, warmup=100, floor=0.1)
    for step in range(100, 2001, 50):
        assert 1e-3 * cosine(step, timing) == pytest.approx(nanogpt(step, 100, 2000, 1e-3, 1e-4), rel=1e-12)


def test_linear_and_constant_by_hand() -> None:
    timing = Timing(steps=10, warmup=2, floor=0.2)
    assert [constant(step, timing) for step in (1, 2, 3, 10)] == [0.5, 1, 1, 1]
    assert [linear(step, timing) for step in (1, 2, 6, 10)] == pytest.approx([0.5, 1, 0.6, 0.2])


@pytest.mark.parametrize("name", sorted(set(SCHEDULES) - {"noam"}))
@given(sizes=steps_and_warmups)
def test_rises_linearly_to_one_and_never_again(name: str, sizes: tuple[int, int]) -> None:
    steps, warmup = sizes
    timing = Timing(steps=steps, warmup=warmup)
    factors = [SCHEDULES[name](step, timing) for step in range(1, steps + 1)]
    assert factors[:warmup] == pytest.approx([step / warmup for step in range(1, warmup + 1)])
    assert all(later <= earlier for earlier, later in zip(factors[warmup - 1 :], factors[warmup:], strict=False))


@pytest.mark.parametrize("name", sorted(SCHEDULES))
@pytest.mark.parametrize("warmup", [0, 1, 7])
def test_stays_finite_and_not_negative_at_the_edges(name: str, warmup: int) -> None:
    timing = Timing(steps=7, warmup=warmup, width=16)
    assert all(0 <= SCHEDULES[name](step, timing) < math.inf for step in (1, 6, 7, 8, 1000))


@pytest.mark.parametrize("name", ["cosine", "linear"])
def test_ends_at_the_floor_and_stays_there(name: str) -> None:
    timing = Timing(steps=20, warmup=5, floor=0.25)
    assert [SCHEDULES[name](step, timing) for step in (20, 30)] == pytest.approx([0.25, 0.25])
