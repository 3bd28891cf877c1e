"""Taps: named, watched, edited, and as they were before when nobody looks any more."""

import pytest
import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.tap import Tap, named_taps, watching
from tests.unit.small import MODES, read, small_model, tokens

ATTENTION = ("q", "k", "v", "scores", "scaled", "bias", "masked", "weights", "heads", "output")


def expected_names(stack: str, layers: int, *, cross: bool = False) -> list[str]:
    """What a stack shows: its own output, then what happens in its layers, in that order."""
    names = [f"{stack}.output"]
    for layer in range(layers):
        for part in ("attention", "cross") if cross else ("attention",):
            names += [f"{stack}.{layer}.{part}.{what}" for what in ATTENTION]
            names += [f"{stack}.{layer}.add_{part}.{what}" for what in ("branch", "sum")]
        names += [f"{stack}.{layer}.feedforward.hidden"]
        names += [f"{stack}.{layer}.add_feedforward.{what}" for what in ("branch", "sum")]
    return names


def test_the_names_of_each_mode() -> None:
    names = {mode: list(named_taps(small_model(mode))) for mode in MODES}
    assert names["decoder_only"] == [
        "embed.tokens", "embed.placed", "embed.sum", *expected_names("decoder", 2), "output.logits",
    ]  # fmt: skip
    assert names["encoder_only"] == [
        "embed.tokens", "embed.placed", "embed.sum", *expected_names("encoder", 2), "word_head.words.logits",
    ]  # fmt: skip
    assert names["encoder_decoder"] == [
        "source_embed.tokens", "source_embed.placed", "source_embed.sum",
        "target_embed.tokens", "target_embed.placed", "target_embed.sum",
        *expected_names("encoder", 2), *expected_names("decoder", 2, cross=True), "output.logits",
    ]  # fmt: skip


@pytest.mark.parametrize("mode", sorted(MODES))
def test_every_quantity_passes_once_in_the_order_of_the_names(mode: str) -> None:
    model, passed = small_model(mode, positions="alibi"), []
    names = [name for name in named_taps(model) if not name.startswith("word_head.")]  # asked for by `words` alone
    with watching(model, {name: lambda x, name=name: passed.append(name) or x for name in names}):
        read(model, tokens())
    silent = set(names) - set(passed)
    assert all(".cross.bias" in name for name in silent)  # a context has no positions
    assert sorted(passed) == sorted(set(names) - silent)
    by_stack = [[name for name in order if name.startswith("decoder.1.")] for order in (passed, names)]
    assert [name for name in by_stack[0] if not name.endswith(".bias")] == [
        name for name in by_stack[1] if not name.endswith(".bias")
    ]


def test_an_edit_takes_effect() -> None:
    model, token_BL = small_model("decoder_only"), tokens()
    plain = read(model, token_BL)
    with watching(model, {"decoder.1.add_feedforward.branch": torch.zeros_like}):
        cut = read(model, token_BL)
    assert not torch.allclose(cut, plain, atol=1e-4)
    with torch.no_grad():
        model.decoder.layers[1].feedforward.narrow.weight.zero_()
        model.decoder.layers[1].feedforward.narrow.bias.zero_()
    assert torch.allclose(read(model, token_BL), cut)


def test_weights_can_be_set() -> None:
    """Attention that looks only at the first position reads its value alone."""
    model, token_BL = small_model("encoder_only"), tokens()

    def first(weights_BHLM: Tensor) -> Tensor:
        only = torch.zeros_like(weights_BHLM)
        only[..., 0] = 1.0
        return only

    seen: dict[str, Tensor] = {}
    hooks = {
        "encoder.0.attention.weights": first,
        "encoder.0.attention.v": lambda v: seen.setdefault("v", v),
        "encoder.0.attention.heads": lambda y: seen.setdefault("heads", y),
    }
    with watching(model, hooks):
        read(model, token_BL)
    assert torch.allclose(seen["heads"], seen["v"][:, :, :1].expand_as(seen["heads"]))


def test_hooks_are_gone_afterwards_even_after_an_error() -> None:
    model = small_model("decoder_only")

    def fail(x_BLD: Tensor) -> Tensor:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"), watching(model, {"embed.sum": fail}):
        read(model, tokens())
    assert not any(tap.watched for tap in named_taps(model).values())


def test_watchers_are_chained_and_unchained() -> None:
    module = nn.Module()
    module.see_x = Tap()
    with watching(module, {"x": lambda x: x + 1}):
        with watching(module, {"x": lambda x: x * 10}):
            assert module.see_x(torch.tensor(2)) == 30
        assert module.see_x(torch.tensor(2)) == 3
    assert module.see_x(torch.tensor(2)) == 2
    assert not module.see_x.watched


def test_an_unknown_name_is_refused_before_anything_is_watched() -> None:
    model = small_model("decoder_only")
    with (
        pytest.raises(ConfigError, match=r"'decoder\.0\.attention\.weight'"),
        watching(model, {"embed.sum": torch.zeros_like, "decoder.0.attention.weight": lambda x: x}),
    ):
        pass
    assert not any(tap.watched for tap in named_taps(model).values())


def test_taps_are_no_part_of_the_state() -> None:
    model = small_model("decoder_only")
    assert not [key for key in model.state_dict() if "see_" in key]
    with watching(model, {"embed.sum": lambda x: x}):
        assert model.state_dict().keys() == small_model("decoder_only").state_dict().keys()
