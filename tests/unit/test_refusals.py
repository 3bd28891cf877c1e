"""What the models refuse: each in one sentence of its own error that shows the value."""

from dataclasses import fields
from functools import partial
from typing import Any

import pytest
import torch

from clearhead.errors import ClearheadError, ConfigError, ShapeError
from clearhead.models.decoder_only import DecoderOnlyConfig
from clearhead.models.presets import PRESETS, build, preset
from clearhead.nn.feedforward import FEEDFORWARDS
from clearhead.nn.heads import POOLERS, POOLINGS
from clearhead.nn.init import INITS
from clearhead.nn.norm import NORMS
from clearhead.nn.positions import POSITIONS
from clearhead.nn.residual import RESIDUALS
from clearhead.nn.scores import SCORES
from clearhead.nn.stack import COMBINATIONS
from tests.unit.small import MODES, read, small_model, tokens

TABLES: dict[str, Any] = {
    "score": SCORES,
    "positions": POSITIONS,
    "residual": RESIDUALS,
    "norm": NORMS,
    "feedforward": FEEDFORWARDS,
    "combination": COMBINATIONS,
    "init": INITS,
    "pooling": POOLINGS,
    "pooler": POOLERS,
}
CHOICES = [(mode, field.name) for mode in sorted(MODES) for field in fields(MODES[mode][1]) if field.name in TABLES]
SIZES = ("vocabulary", "target_vocabulary", "width", "heads", "kv_heads", "head_width", "layers", "encoder_layers",
         "decoder_layers", "hidden", "length", "window", "embedding_width", "distinct", "buckets", "farthest",
         "rotary_length")  # fmt: skip
COUNTED = [(mode, field.name) for mode in sorted(MODES) for field in fields(MODES[mode][1]) if field.name in SIZES]
DROPPED = [
    (mode, field.name) for mode in sorted(MODES) for field in fields(MODES[mode][1]) if field.name.endswith("dropout")
]  # fmt: skip


@pytest.mark.parametrize(("mode", "setting"), CHOICES)
def test_an_unknown_choice_names_the_nearest(mode: str, setting: str) -> None:
    near = sorted(TABLES[setting])[-1]
    with pytest.raises(ConfigError, match=rf"'{near}x'.*did you mean '{near}'"):
        small_model(mode, **{setting: near + "x"})


@pytest.mark.parametrize("mode", sorted(MODES))
def test_every_choice_of_a_mode_is_tried(mode: str) -> None:
    config = small_model(mode).config
    texts = [field.name for field in fields(config) if isinstance(getattr(config, field.name), str)]
    assert texts == [setting for of, setting in CHOICES if of == mode]


@pytest.mark.parametrize("size", [0, -2])
@pytest.mark.parametrize(("mode", "setting"), COUNTED)
def test_a_size_below_one(mode: str, setting: str, size: int) -> None:
    with pytest.raises(ClearheadError, match=rf"{setting}={size}"):
        small_model(mode, **{setting: size})


@pytest.mark.parametrize("setting", ["segments", "classes", "labels", "persistent"])
def test_a_number_of_optional_things_below_zero(setting: str) -> None:
    with pytest.raises(ClearheadError, match=r"-1"):
        small_model("encoder_only", **{setting: -1})


@pytest.mark.parametrize("rate", [1.0, -0.5])
@pytest.mark.parametrize(("mode", "setting"), DROPPED)
def test_a_dropout_that_cannot_be(mode: str, setting: str, rate: float) -> None:
    with pytest.raises(ConfigError, match=rf"={rate}$"):
        small_model(mode, **{setting: rate})


@pytest.mark.parametrize("mode", sorted(MODES))
def test_a_width_that_does_not_divide_into_heads(mode: str) -> None:
    with pytest.raises(ShapeError, match=r"width=16, heads=3"):
        small_model(mode, heads=3)
    with pytest.raises(ShapeError, match=r"heads=4, kv_heads=3"):
        small_model(mode, kv_heads=3)


@pytest.mark.parametrize("mode", sorted(MODES))
def test_a_temperature_that_cannot_be(mode: str) -> None:
    with pytest.raises(ConfigError, match="temperature=0"):
        small_model(mode, temperature=0.0)


@pytest.mark.parametrize("mode", sorted(MODES))
def test_more_tokens_than_learned_positions(mode: str) -> None:
    model = small_model(mode, positions="learned", length=6)
    assert read(model, tokens(1, 6)).shape[1] == 6
    with pytest.raises(ShapeError, match="7 positions are more than the 6"):
        read(model, tokens(1, 7))


def test_steps_beyond_the_learned_positions() -> None:
    model = small_model("decoder_only", positions="learned", length=4)
    _, state = model.step(tokens(1, 4), model.start())
    with pytest.raises(ShapeError, match="5 positions are more than the 4"):
        model.step(tokens(1, 1), state)


def test_a_source_and_a_target_of_different_batches() -> None:
    model = small_model("encoder_decoder")
    with pytest.raises(ShapeError, match=r"batch of 3 .* context of 2 rows"):
        model(tokens(2), tokens(3))
    with pytest.raises(ShapeError, match=r"batch of 3 .* context of 2 rows"):
        model.step(tokens(3, 1), model.start(tokens(2)))


@pytest.mark.parametrize("mode", ["encoder_decoder", "decoder_only"])
def test_a_step_with_another_batch_than_the_state(mode: str) -> None:
    model = small_model(mode)
    start = model.start(tokens(2)) if mode == "encoder_decoder" else model.start()
    _, state = model.step(tokens(2, 1), start)
    with pytest.raises(ShapeError, match="2 rows cannot take 3"):
        model.step(tokens(3, 1), state)


@pytest.mark.parametrize(
    "counts", [[3], [3, 2, 1], [6, 1], [-1, 2]], ids=["too few", "too many", "too long", "negative"]
)
@pytest.mark.parametrize("mode", sorted(MODES))
def test_counts_that_do_not_fit_the_batch(mode: str, counts: list[int]) -> None:
    """Two rows of five tokens."""
    model, count_B = small_model(mode), torch.tensor(counts)
    call = partial(model, tokens(2), tokens(2), source_count_B=count_B)
    if mode != "encoder_decoder":
        call = partial(model, tokens(2), count_B=count_B)
    with pytest.raises(ShapeError, match=r"\d"):
        call()


@pytest.mark.parametrize("head", ["words", "follows", "classes", "labels"])
def test_a_head_that_the_model_does_not_have(head: str) -> None:
    model = small_model("encoder_only", words=False)
    setting = {"follows": "next_sentence"}.get(head, head)
    with pytest.raises(ConfigError, match=f"`{setting}`"):
        getattr(model, head)(tokens())


def test_an_unknown_preset_or_setting_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'gpt3'.*'gpt2'"):
        build("gpt3")
    with pytest.raises(ConfigError, match=r"'droput'.*'dropout'"):
        preset("gpt2", droput=0.0)
    with pytest.raises(ConfigError, match="layers"):
        build(DecoderOnlyConfig(), layers=1)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_can_be_built(name: str) -> None:
    with torch.device("meta"):
        model = build(name)
    assert model.config == PRESETS[name]


def test_errors_are_values_that_python_knows() -> None:
    """Whoever catches ValueError catches these too."""
    assert issubclass(ShapeError, ValueError)
    assert issubclass(ConfigError, ValueError)
    assert not issubclass(ShapeError, ConfigError)
