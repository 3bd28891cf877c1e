import pytest
import torch
from torch import nn

from clearhead.errors import CheckpointError, ConfigError
from clearhead.train.optim import (
    build_optimizer,
    decays,
    freeze,
    load_optimizer_state,
    optimizer_state,
    set_learning_rate,
    thaw,
)
from clearhead.train.settings import Training
from tests.unit.tiny_training import TinyModel, tiny_training


def test_matrices_decay_and_vectors_do_not() -> None:
    model = TinyModel()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decaying, plain = build_optimizer(model, tiny_training(weight_decay=0.1)).param_groups
    assert {names[id(p)] for p in decaying["params"]} == {
        "embed.weight",
        "blocks.0.0.weight",
        "blocks.1.0.weight",
        "row.weight",
    }
    assert all(p.ndim == 1 for p in plain["params"])
    assert (decaying["weight_decay"], plain["weight_decay"]) == (0.1, 0)
    assert len(decaying["params"]) + len(plain["params"]) == len(names)


def test_a_table_of_biases_does_not_decay() -> None:
    assert not decays("attention.bias", torch.zeros(4, 4))
    assert decays("attention.weight", torch.zeros(4, 4))


def test_without_decay_it_is_adam() -> None:
    ours, theirs = nn.Linear(3, 2), nn.Linear(3, 2)
    theirs.load_state_dict(ours.state_dict())
    training = Training(steps=5, learning_rate=0.1, betas=(0.9, 0.95), eps=1e-8)
    first = build_optimizer(ours, training)
    second = torch.optim.Adam(theirs.parameters(), lr=0.1, betas=(0.9, 0.95), eps=1e-8)
    for _ in range(5):
        x = torch.randn(4, 3)
        for model, optimizer in ((ours, first), (theirs, second)):
            optimizer.zero_grad()
            model(x).pow(2).sum().backward()
            optimizer.step()
    torch.testing.assert_close(ours.weight, theirs.weight)


def test_the_learning_rate_is_set_in_every_group() -> None:
    optimizer = build_optimizer(TinyModel(), tiny_training())
    set_learning_rate(optimizer, 0.5)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.5]


def test_state_goes_round_through_named_tensors() -> None:
    model = TinyModel()
    optimizer = build_optimizer(model, tiny_training())
    model(torch.zeros(1, 2, dtype=torch.long))[0].sum().backward()
    optimizer.step()
    state = {name: tensor.clone() for name, tensor in optimizer_state(optimizer, model).items()}
    again = build_optimizer(model, tiny_training())
    load_optimizer_state(again, model, state)
    assert "embed.weight.exp_avg" in state
    assert "row.weight.exp_avg" not in state  # it had no gradient
    assert optimizer_state(again, model).keys() == state.keys()
    with pytest.raises(CheckpointError, match=r"no 'embed\.weight'"):
        load_optimizer_state(again, nn.Linear(2, 2), state)


def test_state_goes_to_the_device_of_its_parameter() -> None:
    """As `Optimizer.load_state_dict` has it for fused AdamW; "meta" stands for a device that is not the CPU."""

    class Scaled(nn.Linear):
        def __init__(self, device: str) -> None:
            super().__init__(2, 2, device=device)
            self.gain = nn.Parameter(torch.ones((), device=device))

    here, there = Scaled("cpu"), Scaled("meta")
    optimizer = build_optimizer(here, tiny_training())
    (here(torch.ones(1, 2)) * here.gain).sum().backward()
    optimizer.step()
    again = torch.optim.AdamW(there.parameters())
    load_optimizer_state(again, there, optimizer_state(optimizer, here))
    state = optimizer_state(again, there)
    assert {name for name, value in state.items() if value.ndim == 0} > {"weight.step", "gain.exp_avg"}
    assert {value.device.type for value in state.values()} == {"meta"}


def test_frozen_parameters_are_left_out_until_thawed() -> None:
    model = TinyModel()
    freeze(model, ["blocks.*", "embed.weight"])
    learning = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert learning == {"norm.weight", "norm.bias", "row.weight", "row.bias", "out.bias"}
    optimizer = build_optimizer(model, tiny_training())
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 5
    thaw(model, ["blocks.1.*"])
    assert model.blocks[1][0].weight.requires_grad
    assert not model.blocks[0][0].weight.requires_grad


def test_a_pattern_that_matches_nothing_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"'encodr\.\*'"):
        freeze(TinyModel(), ["encodr.*"])


def test_nothing_left_to_train_is_an_error() -> None:
    model = TinyModel()
    freeze(model, ["*"])
    with pytest.raises(ConfigError, match="nothing is left to train"):
        build_optimizer(model, tiny_training(freeze=("*",)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"learning_rate": -1.0},
        {"warmup": -1},
        {"schedule": "nom"},
        {"schedule": "noam"},
        {"precision": "fp16"},
        {"better": "more"},
        {"patience": 3},
        {"betas": (0.9, 1.0)},
        {"ema": 1.0},
        {"progress": "loud"},
        {"keep": 0},
    ],
    ids=str,
)
def test_a_setting_that_cannot_be_is_named_with_its_value(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"training setting \w+ .+=") as caught:
        tiny_training(**wrong)
    assert str(caught.value).count("\n") == 0
