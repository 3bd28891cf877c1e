"""Shares add up to the logit, whatever the placement of the norms, and each is what it is said to be."""

import pytest
import torch

from clearhead.errors import ConfigError, ShapeError
from clearhead.look.shares import logit_shares
from clearhead.nn.feedforward import FEEDFORWARDS
from clearhead.nn.norm import NORMS
from clearhead.nn.residual import RESIDUALS
from clearhead.tap import named_taps
from tests.unit.small import MODES, read, small_model, tokens


def shaken(mode: str, **changes):
    model = small_model(mode, **changes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def words(model, token_BL):
    with torch.no_grad():
        return model.words(token_BL) if hasattr(model, "words") else read(model, token_BL)


def check_sum(model, **place: int) -> None:
    token_BL = tokens()
    logits = words(model, token_BL)
    shares = logit_shares(model, lambda: words(model, token_BL), 3, **place)
    at = logits[place.get("row", 0), place.get("position", -1)]
    assert shares.total == pytest.approx(at[3].item(), abs=1e-4)
    assert sum(shares.by_kind().values()) == pytest.approx(shares.total, abs=1e-9)
    difference = logit_shares(model, lambda: words(model, token_BL), 3, against=5, **place)
    assert difference.total == pytest.approx((at[3] - at[5]).item(), abs=1e-4)


@pytest.mark.parametrize("mode", sorted(MODES))
@pytest.mark.parametrize("norm", sorted(NORMS))
@pytest.mark.parametrize("residual", sorted(RESIDUALS))
def test_shares_add_up(mode: str, residual: str, norm: str) -> None:
    check_sum(shaken(mode, residual=residual, norm=norm), row=1, position=2)


@pytest.mark.parametrize("mode", sorted(MODES))
@pytest.mark.parametrize("feedforward", sorted(FEEDFORWARDS))
def test_shares_add_up_with_any_feedforward(mode: str, feedforward: str) -> None:
    check_sum(shaken(mode, feedforward=feedforward, combination="dense", persistent=2, residual="sandwich"))


def test_shares_add_up_in_shared_layers_and_with_everything_around_the_words() -> None:
    check_sum(shaken("encoder_only", layers=4, distinct=2, embedding_width=8))
    check_sum(shaken("encoder_decoder", output_bias=True, output_scale=0.5, embedding_norm=True, positions="shaw"))
    check_sum(shaken("decoder_only", scaled_embedding=True, biases=(False, False, False), kv_heads=2))


def test_the_parts_are_named() -> None:
    model = small_model("encoder_decoder", residual="pre_norm", output_bias=True)
    shares = logit_shares(model, lambda: read(model, tokens()), 0)
    expected = {"target_embed.tokens", "target_embed.position", "decoder.norm.bias", "output.bias"}
    for layer in range(2):
        for part in ("attention", "cross"):
            expected |= {f"decoder.{layer}.{part}.head.{head}" for head in range(4)}
        expected |= {f"decoder.{layer}.{part}.bias" for part in ("attention", "cross", "feedforward")}
        expected.add(f"decoder.{layer}.feedforward")
    assert set(shares.of) == expected
    assert set(shares.by_kind()) == {"tokens", "position", "head", "feedforward", "bias"}


def test_a_share_is_the_projection_through_the_frozen_norm() -> None:
    """By hand, for one head of the last layer of a decoder with norms before the sub-layers."""
    model, token_BL = shaken("decoder_only"), tokens()
    shares = logit_shares(model, lambda: model(token_BL), 3, row=1)
    kept = {}
    model.decoder.norm.register_forward_hook(lambda module, given, output: kept.update(x=given[0][1, -1]))
    attention = model.decoder.layers[1].attention
    attention.out.register_forward_hook(lambda module, given, output: kept.update(y=given[0][1, -1]))
    with torch.no_grad():
        model(token_BL)
        added = attention.out.weight[:, 8:12] @ kept["y"][8:12]
        scale = model.decoder.norm.weight / (kept["x"].var(correction=0) + 1e-5).sqrt()
        by_hand = ((added - added.mean()) * scale) @ model.output.linear.weight[3]
    assert shares.of["decoder.1.attention.head.2"] == pytest.approx(by_hand.item(), abs=1e-5)


def test_what_cannot_be_split_is_refused() -> None:
    model = small_model("decoder_only")
    for place in ({"row": 2}, {"position": 5}, {"position": -6}):
        with pytest.raises(ShapeError, match="has no"):
            logit_shares(model, lambda: model(tokens()), 0, **place)
    with pytest.raises(ShapeError, match="one whole pass"):
        logit_shares(model, lambda: (model(tokens()), model(tokens())), 0)
    with pytest.raises(ConfigError, match="eval"):
        logit_shares(model.train(), lambda: model(tokens()), 0)
    assert not any(tap.watched for tap in named_taps(model).values())
    assert not any(module._forward_hooks for module in model.modules())
