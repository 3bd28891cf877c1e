"""Scores against plain loops, and the temperature of the softmax at its two ends."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.scores import SCORES, Additive, Score
from clearhead.tap import watching
from tests.parity.plain import PLAIN_SCORES, same

HEADS, WIDTH = 2, 4


def shaken(name: str, temperature: float = 1.0) -> Score:
    score = SCORES[name](HEADS, WIDTH, temperature)
    assert isinstance(score, nn.Module)
    with torch.no_grad():
        for parameter in score.parameters():
            parameter.normal_()
    return score


@pytest.mark.parametrize("name", sorted(SCORES))
def test_each_score_is_its_formula(name: str) -> None:
    score = shaken(name)
    q_BHLK, k_BHMK = torch.randn(2, HEADS, 3, WIDTH), torch.randn(2, HEADS, 5, WIDTH)
    s_BHLM = score.raw(q_BHLK, k_BHMK) * score.scale
    assert s_BHLM.shape == (2, HEADS, 3, 5)
    plain = PLAIN_SCORES[name](score)  # type: ignore[arg-type]
    for b, h, i, j in torch.cartesian_prod(*map(torch.arange, s_BHLM.shape)).tolist():
        expected = plain(q_BHLK[b, h, i].tolist(), k_BHMK[b, h, j].tolist(), h, i, j)
        assert s_BHLM[b, h, i, j].item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", sorted(name for name in SCORES if SCORES[name](1, 2, 1.0).fused))
def test_prepared_pairs_have_the_score_as_dot_product(name: str) -> None:
    score = shaken(name)
    q_BHLK, k_BHMK = torch.randn(2, HEADS, 3, WIDTH), torch.randn(2, HEADS, 5, WIDTH)
    ready_q, ready_k = score.prepare(q_BHLK, k_BHMK)
    same(ready_q @ ready_k.mT, score.raw(q_BHLK, k_BHMK))


def test_luongs_concat_is_the_additive_score() -> None:
    """vᵀ tanh(W [q; k]), with W the two matrices stacked."""
    score = Additive(1, WIDTH, 1.0)
    q, k = torch.randn(WIDTH), torch.randn(WIDTH)
    stacked = torch.cat([score.query_HKK[0], score.key_HKK[0]])
    concat = score.vector_HK[0] @ torch.tanh(torch.cat([q, k]) @ stacked)
    same(score.raw(q.view(1, 1, 1, -1), k.view(1, 1, 1, -1)).squeeze(), concat)


def test_the_general_score_starts_as_the_scaled_dot_product() -> None:
    q_BHLK, k_BHMK = torch.randn(1, HEADS, 3, WIDTH), torch.randn(1, HEADS, 5, WIDTH)
    general, scaled = SCORES["general"](HEADS, WIDTH, 1.0), SCORES["scaled_dot"](HEADS, WIDTH, 1.0)
    same(general.raw(q_BHLK, k_BHMK) * general.scale, scaled.raw(q_BHLK, k_BHMK) * scaled.scale)


def test_the_scale_keeps_the_variance_of_random_scores_at_one() -> None:
    """What the division by √K is for [vaswani2017 §3.2.1]; without it the variance is K."""
    q, k = torch.randn(1, 1, 200, 64), torch.randn(1, 1, 200, 64)
    for name, variance in (("scaled_dot", 1.0), ("cosine", 1.0), ("dot", 64.0)):
        score = SCORES[name](1, 64, 1.0)
        assert (score.raw(q, k) * score.scale).var().item() == pytest.approx(variance, rel=0.1), name


def weights_at(name: str, temperature: float) -> tuple[Tensor, Tensor]:
    """The weights of one attention at that temperature, and its scores before any scale."""
    torch.manual_seed(3)
    attention = MultiHeadAttention(8, HEADS, score=shaken(name, temperature)).eval()
    seen: dict[str, Tensor] = {}

    def keep(what: str) -> Callable[[Tensor], Tensor]:
        return lambda x: seen.setdefault(what, x)

    with torch.no_grad(), watching(attention, {what: keep(what) for what in ("scores", "weights")}):
        attention(torch.randn(2, 5, 8))
    return seen["weights"], seen["scores"]


@pytest.mark.parametrize("name", sorted(SCORES))
def test_towards_zero_the_softmax_is_the_arg_max(name: str) -> None:
    weights_BHLM, scores_BHLM = weights_at(name, 1e-6)
    best_BHLM = nn.functional.one_hot(scores_BHLM.argmax(-1), 5).float()
    same(weights_BHLM, best_BHLM)


@pytest.mark.parametrize("name", sorted(SCORES))
def test_towards_infinity_the_softmax_is_the_mean(name: str) -> None:
    weights_BHLM, _ = weights_at(name, 1e7)
    same(weights_BHLM, torch.full_like(weights_BHLM, 1 / 5))


@given(st.lists(st.floats(0.05, 20), min_size=2, max_size=2, unique=True).map(sorted), st.sampled_from(sorted(SCORES)))
def test_warmer_is_more_even(temperatures: list[float], name: str) -> None:
    entropies = [torch.special.entr(weights_at(name, t)[0]).sum(-1) for t in temperatures]
    assert torch.all(entropies[0] <= entropies[1] + 1e-5)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
@pytest.mark.parametrize("name", sorted(SCORES))
def test_a_temperature_must_be_above_zero(name: str, temperature: float) -> None:
    with pytest.raises(ConfigError, match=f"temperature={temperature}"):
        SCORES[name](1, 4, temperature)
