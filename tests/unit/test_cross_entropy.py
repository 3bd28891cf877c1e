"""The loss without the logits: equal to PyTorch's, with its gradients, and never larger than a chunk."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from clearhead.nn import cross_entropy
from clearhead.nn.cross_entropy import linear_cross_entropy

IGNORE = -100


@pytest.fixture(autouse=True, scope="module")
def _small_chunks() -> Iterator[None]:
    """Chunks of 32 logits, so that tiny cases have many."""
    before, cross_entropy._LOGITS_AT_ONCE = cross_entropy._LOGITS_AT_ONCE, 32
    yield
    cross_entropy._LOGITS_AT_ONCE = before


def case(positions: int, words: int, biased: bool, ignored: float = 0.0) -> tuple[list[Tensor], Tensor | None, Tensor]:
    hidden, weight = torch.randn(positions, 3, requires_grad=True), torch.randn(words, 3, requires_grad=True)
    bias = torch.randn(words, requires_grad=True) if biased else None
    target = torch.randint(words, (positions,))
    target[torch.rand(positions) < ignored] = IGNORE
    return [hidden, weight] if bias is None else [hidden, weight, bias], bias, target


@given(
    positions=st.integers(1, 20),
    words=st.integers(2, 40),
    biased=st.booleans(),
    smoothing=st.sampled_from([0.0, 0.1, 1.0]),
    ignored=st.sampled_from([0.0, 0.4, 1.0]),
)
def test_equals_pytorch_with_its_gradients(
    positions: int, words: int, biased: bool, smoothing: float, ignored: float
) -> None:
    inputs, bias, target = case(positions, words, biased, ignored)
    ours = linear_cross_entropy(inputs[0], inputs[1], bias, target, smoothing=smoothing, ignore=IGNORE)
    logits = F.linear(inputs[0], inputs[1], bias)
    theirs = F.cross_entropy(logits, target, label_smoothing=smoothing, ignore_index=IGNORE, reduction="sum")
    torch.testing.assert_close(ours, theirs)
    # The loss is rarely the end: it is divided by a count and added to others.
    for mine, oracle in zip(
        torch.autograd.grad(ours * 0.3, inputs), torch.autograd.grad(theirs * 0.3, inputs), strict=True
    ):
        torch.testing.assert_close(mine, oracle)


def test_differs_from_the_divergence_by_the_entropy_of_the_smoothed_target() -> None:
    (hidden, weight), _, target = case(9, 11, biased=False)
    smoothing, words = 0.2, 11
    smoothed = F.one_hot(target, words) * (1 - smoothing) + smoothing / words
    divergence = F.kl_div(F.linear(hidden, weight).log_softmax(-1), smoothed, reduction="sum")
    entropy = -(smoothed * smoothed.log()).sum()
    loss = linear_cross_entropy(hidden, weight, None, target, smoothing=smoothing)
    torch.testing.assert_close(loss, divergence + entropy)


def test_only_what_learns_gets_a_gradient() -> None:
    (hidden, weight, bias), _, target = case(9, 11, biased=True)
    whole = torch.autograd.grad(linear_cross_entropy(hidden, weight, bias, target), (hidden, weight, bias))
    alone = torch.autograd.grad(linear_cross_entropy(hidden, weight.detach(), bias.detach(), target), hidden)
    torch.testing.assert_close(alone[0], whole[0])
    frozen = torch.autograd.grad(linear_cross_entropy(hidden.detach(), weight, bias.detach(), target), weight)
    torch.testing.assert_close(frozen[0], whole[1])


def test_two_backward_passes_add_up() -> None:
    (hidden, weight), _, target = case(9, 11, biased=False)
    loss = linear_cross_entropy(hidden, weight, None, target)
    loss.backward(retain_graph=True)
    assert hidden.grad is not None
    once = hidden.grad.clone()
    loss.backward()
    torch.testing.assert_close(hidden.grad, 2 * once)


def test_confident_and_wrong_is_finite() -> None:
    hidden, weight = torch.tensor([[200.0]] * 20, requires_grad=True), torch.tensor([[1.0], [-1.0], [0.0]])
    loss = linear_cross_entropy(hidden, weight, None, torch.ones(20, dtype=torch.long))
    assert loss.item() == pytest.approx(20 * 400.0)


class Largest(TorchDispatchMode):
    """The most elements that any operation gave, and how many operations were matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.elements, self.products = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.products += "mm" in func.__name__
        if isinstance(result, Tensor):
            self.elements = max(self.elements, result.numel())
        return result


def test_never_holds_all_logits() -> None:
    (hidden, weight), _, target = case(64, 8, biased=False)
    with Largest() as largest:
        linear_cross_entropy(hidden, weight, None, target).backward()
    assert largest.elements < target.numel() * weight.shape[0]
    assert largest.elements <= max(32, hidden.numel(), weight.numel())


def test_without_gradients_it_makes_none() -> None:
    (hidden, weight), _, target = case(64, 8, biased=False)
    with Largest() as learning:
        whole = linear_cross_entropy(hidden, weight, None, target)
    with torch.no_grad(), Largest() as reading:
        assert torch.equal(linear_cross_entropy(hidden, weight, None, target), whole)
    assert reading.products * 3 == learning.products == 3 * math.ceil(64 * 8 / 32)


def test_a_target_outside_of_the_vocabulary_is_refused() -> None:
    (hidden, weight), _, target = case(9, 11, biased=False)
    target[4] = 11
    with pytest.raises((IndexError, RuntimeError), match="bounds"):
        linear_cross_entropy(hidden, weight, None, target)


def test_compiled_without_breaks() -> None:
    (hidden, weight, bias), _, target = case(9, 11, biased=True, ignored=0.4)
    torch._dynamo.reset()
    compiled = torch.compile(linear_cross_entropy, backend="aot_eager", fullgraph=True)
    ours, theirs = (f(hidden, weight, bias, target, smoothing=0.1) for f in (linear_cross_entropy, compiled))
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(torch.autograd.grad(ours, hidden), torch.autograd.grad(theirs, hidden), strict=True):
        torch.testing.assert_close(a, b)
