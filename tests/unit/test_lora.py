import copy

import pytest
import torch
from torch import nn

from clearhead.errors import ConfigError
from clearhead.nn.weights import distinct
from clearhead.train.loop import train
from clearhead.train.lora import AdaptedLinear, add_lora, merge_lora, merged
from clearhead.train.optim import thaw
from tests.unit.tiny_training import TinyModel, same_bits, snapshot, tiny_job, tiny_training

TOKENS = torch.arange(10).view(2, 5)


def perturb(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, AdaptedLinear):
            nn.init.normal_(module.lora_up)


def test_a_new_adapter_changes_nothing() -> None:
    model = TinyModel()
    before = model(TOKENS)[0]
    assert add_lora(model, rank=2, alpha=8, patterns=["blocks.*"]) == ["blocks.0.0", "blocks.1.0"]
    assert torch.equal(model(TOKENS)[0], before)


def test_it_adds_the_scaled_product_of_two_thin_matrices() -> None:
    linear = nn.Linear(5, 3)
    adapted = AdaptedLinear(linear, rank=2, alpha=8)
    perturb(adapted)
    x = torch.randn(4, 5)
    expected = x @ (linear.weight + 4 * adapted.lora_up @ adapted.lora_down).T + linear.bias
    torch.testing.assert_close(adapted(x), expected)
    torch.testing.assert_close(nn.functional.linear(x, adapted.weight, adapted.bias), expected)


def test_merging_keeps_the_function_and_restores_the_names() -> None:
    model = TinyModel()
    names = [*model.state_dict()]
    add_lora(model, rank=3, alpha=3, patterns=["blocks.*", "row"])
    perturb(model)
    before = model(TOKENS)
    state = merged(distinct(model))
    merge_lora(model)
    for ours, theirs in zip(model(TOKENS), before, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert [*model.state_dict()] == names
    assert same_bits(state, distinct(model))
    assert not any(isinstance(module, AdaptedLinear) for module in model.modules())


def test_only_the_adapters_learn_and_what_is_thawed() -> None:
    model = TinyModel()
    add_lora(model, rank=2, alpha=2, patterns=["blocks.0.*"])
    thaw(model, ["row.*"])
    before = snapshot(model)
    train(model, tiny_job(), tiny_training())
    changed = {name for name, tensor in snapshot(model).items() if not torch.equal(tensor, before[name])}
    assert changed == {"blocks.0.0.lora_down", "blocks.0.0.lora_up", "row.weight", "row.bias"}


def test_a_shared_layer_gets_one_adapter() -> None:
    shared = nn.Linear(4, 4)
    model = nn.Sequential(shared, nn.Tanh(), nn.Sequential(shared))
    add_lora(model, rank=1, alpha=1, patterns=["*"])
    assert model[0] is model[2][0]
    perturb(model)
    before = model(torch.ones(1, 4))
    merge_lora(model)
    assert model[0] is model[2][0] is shared
    torch.testing.assert_close(model(torch.ones(1, 4)), before)


def test_a_copy_has_its_own_adapters() -> None:
    model = TinyModel()
    add_lora(model, rank=2, alpha=2, patterns=["row"])
    twin = copy.deepcopy(model)
    perturb(twin)
    assert not torch.equal(model(TOKENS)[1], twin(TOKENS)[1])


@pytest.mark.parametrize(
    ("patterns", "rank", "problem"),
    [(["out"], 2, "'out' shares its weight"), (["nothing.*"], 2, "no linear layer matches"), (["row"], 0, "rank=0")],
)
def test_what_cannot_be_adapted_is_refused_and_left_alone(patterns: list[str], rank: int, problem: str) -> None:
    model = TinyModel()
    names = [*model.state_dict()]
    with pytest.raises(ConfigError, match=problem):
        add_lora(model, rank=rank, alpha=1, patterns=patterns)
    assert [*model.state_dict()] == names
    assert all(parameter.requires_grad for parameter in model.parameters())
