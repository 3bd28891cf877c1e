"""Variations of the encoder against plainer models: shared blocks, a narrow embedding, heads that bend as blocks do."""

import json
from dataclasses import asdict
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from clearhead.errors import ConfigError
from clearhead.models.decoder_only import DecoderOnlyConfig
from clearhead.models.encoder_only import EncoderOnly, EncoderOnlyConfig
from clearhead.models.vit import VitConfig
from clearhead.tasks.checked import as_dataclass
from tests.parity.plain import same
from tests.unit.small import small_model, tokens

COUNTS = torch.tensor([4, 2])


def encoder(**changes: Any) -> EncoderOnly:
    model = small_model("encoder_only", **{"dropout": 0.0, **changes})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def test_blocks_in_rounds_are_copies_one_after_another() -> None:
    shared = encoder(layers=4, distinct=2)
    plain = encoder(layers=4)
    state = shared.state_dict()
    for name in plain.state_dict():
        parts = name.split(".")
        if parts[0] == "encoder" and parts[1].isdigit():
            parts[1] = str(int(parts[1]) % 2)
        state[name] = shared.state_dict()[".".join(parts)]
    plain.load_state_dict(state)
    token_BL = tokens(2, 4)
    same(shared(token_BL, count_B=COUNTS), plain(token_BL, count_B=COUNTS))
    assert sum(p.numel() for p in shared.encoder.parameters()) * 2 == sum(p.numel() for p in plain.encoder.parameters())


def test_a_narrow_embedding_is_a_product_of_two_matrices() -> None:
    bare: dict[str, Any] = {"positions": "none", "segments": 0, "embedding_norm": False}
    narrow, wide = encoder(embedding_width=3, **bare), encoder(**bare)
    wide.encoder.load_state_dict(narrow.encoder.state_dict())
    with torch.no_grad():
        wide.embed.tokens.weight.copy_(narrow.embed.tokens.weight @ narrow.widen.weight.T + narrow.widen.bias)
    token_BL = tokens(2, 4)
    same(narrow(token_BL), wide(token_BL))


@pytest.mark.parametrize(
    ("feedforward", "bend"), [("relu", F.relu), ("swiglu", F.silu), ("gelu", F.gelu), ("none", F.gelu)]
)
@pytest.mark.parametrize("embedding_width", [None, 3])
def test_the_word_head_bends_as_the_blocks_do_and_ends_in_the_embedding(
    feedforward: str, bend: Any, embedding_width: int | None
) -> None:
    model = encoder(feedforward=feedforward, embedding_width=embedding_width)
    token_BL, head = tokens(2, 4), model.word_head
    assert head is not None
    inner = head.norm(bend(head.dense(model(token_BL))))
    assert inner.shape[-1] == (embedding_width or model.config.width)
    same(model.words(token_BL), inner @ model.embed.tokens.weight.T + head.words.linear.bias)


@pytest.mark.parametrize(("own", "expected"), [(None, 0.2), (0.5, 0.5), (0.0, 0.0)])
def test_the_heads_dropout(own: float | None, expected: float) -> None:
    model = small_model("encoder_only", dropout=0.2, head_dropout=own, classes=3, labels=2)
    assert model.class_head.dropout.p == model.label_head.dropout.p == expected
    assert model.embed.dropout.p == 0.2


def test_what_cannot_be() -> None:
    with pytest.raises(ConfigError, match="layers=3, distinct=2"):
        EncoderOnlyConfig(layers=3, distinct=2)
    with pytest.raises(ConfigError, match=r"head_dropout=1\.0"):
        EncoderOnlyConfig(head_dropout=1.0)
    with pytest.raises(ConfigError, match=r"unknown pooler 'tahn'.*'tanh'"):
        small_model("encoder_only", pooler="tahn")


@pytest.mark.parametrize(
    "config",
    [
        DecoderOnlyConfig(positions="rotary", rotary_factor=8.0, rotary_length=64, rotary_bounds=(1.5, 3.0)),
        EncoderOnlyConfig(pooler="relu", distinct=3, embedding_width=32, head_dropout=0.3),
        VitConfig(biases=(False, True, True)),
    ],
    ids=lambda config: type(config).__name__,
)
def test_configs_as_json(config: Any) -> None:
    assert as_dataclass(type(config), json.loads(json.dumps(asdict(config))), "config") == config
