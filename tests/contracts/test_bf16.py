"""Training under bf16 autocast: every model learns from nearly the gradient that float32 gives."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearhead.nn.cross_entropy import linear_cross_entropy
from clearhead.tasks.language_model import LanguageModel
from clearhead.tasks.masked_model import MaskedModel
from clearhead.tasks.text_classifier import TextClassifier
from clearhead.tasks.translator import Translator
from clearhead.train import loop, step
from tests.contracts.covering import Setting, each, label
from tests.contracts.family import FACTORS, build, tokens, total
from tests.unit.tiny_tasks import ENCODER, PAIR, WRITER, copy_pairs, tiny_recipe


@pytest.fixture(autouse=True)
def _plain_products() -> Iterator[None]:
    """Without oneDNN, whose bf16 instructions a virtual machine may promise and not have; slower, equally coarse."""
    with torch.backends.mkldnn.flags(enabled=False):
        yield


pytestmark = [
    pytest.mark.filterwarnings("ignore:TF32 acceleration"),  # torch's own, about switching oneDNN off
    pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight"),  # and about RMSNorm's speed
]


def likeness(a: list[Tensor], b: list[Tensor]) -> float:
    """The cosine of the angle between two gradients, or two sets of weights."""
    a_N, b_N = (torch.cat([x.detach().flatten() for x in one]).double() for one in (a, b))
    return float(a_N @ b_N / (a_N.norm() * b_N.norm()))


def gradients(model: nn.Module, value: Tensor) -> list[Tensor]:
    return [*torch.autograd.grad(value, list(model.parameters()), allow_unused=True, materialize_grads=True)]


@pytest.mark.parametrize("setting", each(FACTORS, per="mode"), ids=label)
def test_the_gradient_is_nearly_that_of_float32(setting: Setting) -> None:
    model = build(setting).train()
    exact = gradients(model, total(model, tokens()))
    with torch.autocast("cpu", torch.bfloat16):
        value = total(model, tokens())
    coarse = gradients(model, value)
    assert all(grad.dtype == torch.float32 for grad in coarse)
    assert likeness(exact, coarse) > 0.995


@pytest.mark.parametrize("positions", [20, 200])  # all logits at once, and some rows at a time
def test_the_loss_of_many_words(positions: int) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden_ND = torch.randn(positions, 16, generator=generator, requires_grad=True)
    output = nn.Linear(16, 8000)
    target_N = torch.randint(8000, (positions,), generator=generator)

    def loss() -> Tensor:
        return linear_cross_entropy(hidden_ND, output.weight, output.bias, target_N, smoothing=0.1)

    exact = loss()
    with torch.autocast("cpu", torch.bfloat16):
        coarse = loss()
    assert coarse.dtype == torch.float32
    assert coarse.item() == pytest.approx(exact.item(), rel=1e-3)
    wanted, found = ([*torch.autograd.grad(one, [hidden_ND, output.weight, output.bias])] for one in (exact, coarse))
    for one, other in zip(wanted, found, strict=True):
        assert likeness([one], [other]) > 0.9999


TASKS: dict[str, tuple[Any, dict[str, Any], list[Any]]] = {
    "translation": (Translator, PAIR, copy_pairs(20)),
    "language_model": (LanguageModel, WRITER, ["a b c d e f " * 20]),
    "masked_model": (MaskedModel, ENCODER, ["a b c d e f"] * 8),
    "text_classification": (TextClassifier, ENCODER, [("a b c", "one"), ("d e f", "two")] * 4),
}


@pytest.mark.parametrize("task", TASKS)
def test_a_task_trains(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    monkeypatch.setattr(step, "can_bf16", lambda device: tried.append(device) or True)
    monkeypatch.setattr(loop, "measure_peak", lambda device, dtype: 1e9)  # without oneDNN a matter of seconds
    kind, model, data = TASKS[task]
    made = {}
    for precision in ("float32", "bf16"):
        recipe = tiny_recipe(task, {**model, "dropout": 0.1}, train={"precision": precision})
        made[precision] = list(kind.fit(data, recipe=recipe).parts.model.parameters())
    assert len(tried) == 1
    moved = [not torch.equal(a, b) for a, b in zip(*made.values(), strict=True)]
    assert any(moved)
    assert likeness(*made.values()) > 0.99
