"""Weights in fewer bits: half a step from what they were, and in int8 arithmetic the same numbers as without a file."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes

from clearhead.errors import CheckpointError, ConfigError
from clearhead.nn.int8 import to_int8
from clearhead.nn.stored import STORES, Restored, packed
from clearhead.nn.weights import distinct, load_weights, read_tensors, save_weights, write_tensors
from clearhead.tasks.loading import load_model
from tests.unit.command_line import refusal, run
from tests.unit.small import MODES, read, small_model, tokens
from tests.unit.tiny_tasks import random_translator


@given(array_shapes(min_dims=1, max_dims=3, max_side=5), st.integers(0, 99))
def test_int8_is_half_a_step_away(shape: tuple[int, ...], seed: int) -> None:
    torch.manual_seed(seed)
    tensor = torch.randn(shape) * torch.logspace(-4, 4, shape[0]).view(-1, *[1] * (len(shape) - 1))
    tensor[0] = 0.0
    again = Restored(packed({"w": tensor}, "int8"), "a file")["w"]
    if tensor.dim() == 1:
        assert torch.equal(again, tensor)
    else:
        step = tensor.abs().amax(-1, keepdim=True) / 127
        assert ((again - tensor).abs() <= 0.5001 * step).all()
        assert torch.equal(again[0], tensor[0])


def test_a_tensor_without_numbers_stays_one() -> None:
    """As a TabTransformer has that shares nothing between the categories of a column."""
    assert Restored(packed({"w": torch.empty(3, 0)}, "int8"), "a file")["w"].shape == (3, 0)


@given(st.integers(0, 99))
def test_what_was_rounded_is_rounded_no_more(seed: int) -> None:
    torch.manual_seed(seed)
    once = packed({"w": torch.randn(7, 9)}, "int8")
    twice = packed(dict(Restored(once, "a file")), "int8")
    assert torch.equal(once["w"], twice["w"])
    torch.testing.assert_close(once["w.scale"], twice["w.scale"], rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("mode", sorted(MODES))
@pytest.mark.parametrize("store", sorted(STORES))
@torch.no_grad()
def test_a_model_comes_back(mode: str, store: str, tmp_path: Path) -> None:
    model, again = small_model(mode), small_model(mode)
    save_weights(model, tmp_path / "w", store)
    for parameter in again.parameters():
        parameter.zero_()
    load_weights(again, tmp_path / "w")
    assert all(parameter.dtype == torch.float32 for parameter in again.parameters())
    for name, tensor in distinct(model).items():
        atol = {"float32": 0.0, "float16": 1e-3, "int8": 0.5001 / 127}[store] * float(tensor.abs().max())
        torch.testing.assert_close(distinct(again)[name], tensor, rtol=0.0, atol=atol)


@torch.no_grad()
def test_arithmetic_in_8_bits_is_the_same_with_and_without_the_file(tmp_path: Path) -> None:
    model, again = small_model("decoder_only"), small_model("decoder_only")
    save_weights(model, tmp_path / "w", "int8")
    load_weights(again, tmp_path / "w")
    for name, tensor in distinct(again).items():
        if "embed" in name:  # looked up, not multiplied: rounded by the file alone
            distinct(model)[name].copy_(tensor)
    torch.testing.assert_close(read(to_int8(model), tokens()), read(to_int8(again), tokens()), atol=1e-5, rtol=1e-5)


def test_scales_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    model = small_model("decoder_only")
    save_weights(model, tmp_path / "w", "int8")
    tensors = read_tensors(tmp_path / "w")
    name = next(name for name in tensors if name.endswith(".scale"))
    write_tensors(tmp_path / "w", {**tensors, name: torch.ones(3)})
    with pytest.raises(CheckpointError, match=r"w is broken: .* has scales for \(3,\)"):
        load_weights(model, tmp_path / "w")
    del tensors[name]
    write_tensors(tmp_path / "w", tensors)
    with pytest.raises(CheckpointError, match=r"w is broken: .* has no scales"):
        load_weights(model, tmp_path / "w")


def test_weights_that_came_in_16_bits_are_written_as_they_are_unless_more_is_wanted(tmp_path: Path) -> None:
    model = small_model("decoder_only").half()
    for store, dtype in ((None, torch.float16), ("float32", torch.float32), ("int8", torch.int8)):
        save_weights(model, tmp_path / "w", store)
        assert read_tensors(tmp_path / "w")["embed.tokens.weight"].dtype == dtype


def test_an_unknown_way_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'int8'"):
        save_weights(small_model("decoder_only"), tmp_path / "w", "int9")


def test_convert_makes_it_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    large, small = tmp_path / "large", tmp_path / "small"
    translator = random_translator(width=64, hidden=256)
    translator.save_pretrained(large)
    assert run(capsys, "convert", large, small, "--store", "int8").out.strip() == str(small)
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (large, small)]
    assert sizes[1] < 0.35 * sizes[0]
    assert (small / "config.json").read_text("utf-8") == (large / "config.json").read_text("utf-8")
    assert json.loads(run(capsys, "translate", "a b c", "-m", small, "--json").out)["source"] == "a b c"
    assert load_model(small).model.config == translator.parts.model.config
    said = refusal(run(capsys, "convert", large, tmp_path / "hf", "--format", "hf", "--store", "int8"))
    assert "--store int8 is for our own format" in said
    assert not (tmp_path / "hf").exists()
