import pytest
import torch
from torch import Tensor

from clearhead.errors import ConfigError
from clearhead.train.loss import IGNORE, cross_entropy


def kl_by_hand(logits_NV: Tensor, target_N: Tensor, smoothing: float) -> Tensor:
    total = torch.tensor(0.0, dtype=torch.float64)
    classes = logits_NV.shape[1]
    for logits_V, target in zip(logits_NV.double(), target_N.tolist(), strict=True):
        if target == IGNORE:
            continue
        p_V = logits_V.exp() / logits_V.exp().sum()
        for word in range(classes):
            q = smoothing / classes + (1 - smoothing) * (word == target)
            if q:
                total = total + q * torch.log(torch.tensor(q, dtype=torch.float64) / p_V[word])
    return total


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_is_the_kl_divergence_from_the_smoothed_target(smoothing: float) -> None:
    logits_NV, target_N = torch.randn(7, 5), torch.tensor([0, 4, IGNORE, 2, 2, IGNORE, 1])
    total, count = cross_entropy(logits_NV, target_N, smoothing=smoothing)
    assert int(count) == 5
    torch.testing.assert_close(total.double(), kl_by_hand(logits_NV, target_N, smoothing), rtol=1e-5, atol=1e-6)


def test_gradient_at_the_logits_is_prediction_less_target() -> None:
    logits_NV = torch.randn(4, 6, requires_grad=True)
    target_N = torch.tensor([1, IGNORE, 5, 0])
    cross_entropy(logits_NV, target_N)[0].backward()
    expected = logits_NV.detach().softmax(-1) - torch.nn.functional.one_hot(target_N.clamp(min=0), 6)
    expected[1] = 0
    assert logits_NV.grad is not None
    torch.testing.assert_close(logits_NV.grad, expected)


def test_the_best_prediction_under_smoothing_costs_nothing() -> None:
    best_V = torch.tensor([0.1 / 4, 0.1 / 4, 0.9 + 0.1 / 4, 0.1 / 4]).log()
    total, _ = cross_entropy(best_V[None], torch.tensor([2]), smoothing=0.1)
    assert float(total) == pytest.approx(0, abs=1e-6)


def test_no_real_target_is_zero_of_zero() -> None:
    total, count = cross_entropy(torch.randn(2, 3), torch.full((2,), IGNORE), smoothing=0.1)
    assert (float(total), int(count)) == (0, 0)


def test_a_smoothing_of_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="smoothing=1"):
        cross_entropy(torch.randn(2, 3), torch.zeros(2, dtype=torch.long), smoothing=1.0)
