"""Where dropout stands: embeddings, attention weights, hidden layers and every branch; in training alone [B6]."""

from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.nn.dropout import Dropout
from clearhead.tap import named_taps, watching
from tests.parity.plain import same
from tests.unit.small import MODES, read, small_model, tokens

# setting -> (the tap just after which it acts, the part that it belongs to)
PLACES = {
    "dropout": ("embed", "add_attention", "add_cross", "add_feedforward", "source_embed", "target_embed"),
    "attention_dropout": ("attention", "cross"),
    "hidden_dropout": ("feedforward",),
}


def rates(model: Any) -> dict[str, float]:
    """The rate of every dropout by the name of the part that holds it."""
    return {
        name.removesuffix(".dropout"): module.p
        for name, module in model.named_modules()
        if isinstance(module, Dropout)
    }  # fmt: skip


@pytest.mark.parametrize("setting", sorted(PLACES))
@pytest.mark.parametrize("mode", sorted(MODES))
def test_each_setting_reaches_its_places_and_no_others(mode: str, setting: str) -> None:
    found = rates(small_model(mode, **{setting: 0.25}))
    dropping = {name.rpartition(".")[2] for name, rate in found.items() if rate == 0.25}
    expected = {name.rpartition(".")[2] for name in found} & set(PLACES[setting])
    assert expected
    assert dropping == expected
    assert set(found.values()) == {0.0, 0.25}


@pytest.mark.parametrize("watched", [False, True], ids=["fused", "watched"])
@pytest.mark.parametrize("setting", sorted(PLACES))
@pytest.mark.parametrize("mode", sorted(MODES))
def test_training_drops_and_evaluation_does_not(mode: str, setting: str, watched: bool) -> None:
    model, token_BL = small_model(mode, init="xavier", **{setting: 0.5}), tokens(4, 8)
    weights = [name for name in named_taps(model) if watched and name.endswith(".weights")]
    still = small_model(mode, init="xavier")
    still.load_state_dict(model.state_dict())
    with watching(model, dict.fromkeys(weights, lambda w: w)):
        model.train()
        assert not torch.allclose(read(model, token_BL), read(model, token_BL), atol=1e-4)
        same(read(model.eval(), token_BL), read(still, token_BL))


def test_a_branch_is_dropped_before_the_addition() -> None:
    """What is added is the branch with about half of it zero and the rest doubled; the stream itself is whole."""
    model, token_BL = small_model("decoder_only", dropout=0.5, init="xavier").train(), tokens(4, 8)
    seen: dict[str, Tensor] = {}
    names = ("embed.sum", "decoder.0.add_attention.branch", "decoder.0.add_attention.sum")
    with watching(model, {name: lambda x, name=name: seen.setdefault(name, x.detach()) for name in names}):
        read(model, token_BL)
    stream, branch, total = (seen[name] for name in names)
    added = total - stream
    dropped = added.abs() < 1e-6
    assert 0.4 < dropped.float().mean() < 0.6
    same(added[~dropped], 2 * branch[~dropped])


def test_two_runs_with_one_seed_drop_alike() -> None:
    model = small_model("decoder_only", dropout=0.3, attention_dropout=0.3, init="xavier").train()
    answers = []
    for seed in (7, 7, 8):
        torch.manual_seed(seed)
        answers.append(read(model, tokens(4, 8)))
    assert torch.equal(answers[0], answers[1])
    assert not torch.equal(answers[0], answers[2])
