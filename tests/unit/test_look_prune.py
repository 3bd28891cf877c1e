"""Pruning for real: pruned = switched off, smaller in parameters and operations, and it survives being saved."""

from pathlib import Path

import pytest
import torch
from torch import nn

from clearhead.errors import CheckpointError, ConfigError
from clearhead.look.ablate import ablate
from clearhead.look.prune import choose_heads, prune_heads
from clearhead.models.vit import Vit, VitConfig
from clearhead.nn.int8 import to_int8
from clearhead.nn.positions import POSITIONS
from clearhead.nn.scores import SCORES
from clearhead.tasks.directory import ModelParts, Settings, own_parts, save_model
from tests.unit.small import MODES, read, small_model, tokens

KEEP = {
    "encoder_decoder": {"encoder.0.attention": [1], "decoder.1.attention": [0, 3], "decoder.0.cross": [2, 3]},
    "encoder_only": {"encoder.0.attention": [0, 3], "encoder.1.attention": [2]},
    "decoder_only": {"decoder.0.attention": [2, 3], "decoder.1.attention": [1]},
}


def shaken(mode: str, **changes) -> nn.Module:
    model = small_model(mode, **changes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def without(keep: dict[str, list[int]], heads: int = 4) -> dict[str, list[int]]:
    return {path: sorted(set(range(heads)) - set(kept)) for path, kept in keep.items()}


def check_equal(model: nn.Module, keep: dict[str, list[int]]) -> nn.Module:
    pruned, token_BL = prune_heads(model, keep), tokens()
    with ablate(model, heads=without(keep)):
        torch.testing.assert_close(read(pruned, token_BL), read(model, token_BL), atol=1e-5, rtol=1e-5)
    return pruned


@pytest.mark.parametrize("mode", sorted(MODES))
@pytest.mark.parametrize("positions", sorted(POSITIONS))
def test_pruned_is_switched_off_at_any_position(mode: str, positions: str) -> None:
    check_equal(shaken(mode, positions=positions), KEEP[mode])


@pytest.mark.parametrize("mode", sorted(MODES))
@pytest.mark.parametrize("score", sorted(SCORES))
def test_pruned_is_switched_off_with_any_score(mode: str, score: str) -> None:
    check_equal(shaken(mode, score=score, persistent=2), KEEP[mode])


@pytest.mark.parametrize("positions", ["transformer_xl", "t5", "rotary"])
@pytest.mark.parametrize("biases", [(True, True, True), (True, False, False), (False, True, True)])
def test_groups_stay_or_go_as_a_whole(positions: str, biases: tuple[bool, bool, bool]) -> None:
    model = shaken("decoder_only", kv_heads=2, positions=positions, biases=biases, persistent=1)
    pruned = check_equal(model, {"decoder.0.attention": [2, 3], "decoder.1.attention": [0, 1]})
    assert pruned.decoder.layers[0].attention.kv_heads == 1
    with pytest.raises(ConfigError, match=r"groups of 2 .* \[0, 3\] breaks one"):
        prune_heads(model, {"decoder.0.attention": [0, 3]})


def test_parameters_and_operations_fall() -> None:
    model = small_model("decoder_only")
    pruned = prune_heads(model, {"decoder.1.attention": [1]})
    three = 3 * 4  # heads taken out, times the width of each
    by_hand = three * (3 * (16 + 1) + 16)
    assert model.parameters_table().total - pruned.parameters_table().total == by_hand
    assert model.flops(2, 5) - pruned.flops(2, 5) == 2 * 2 * (5 * 16 * three * 4 + 2 * 3 * 5 * 5 * 4)
    assert pruned.decoder.layers[1].attention.head_width == 4


@pytest.mark.parametrize("mode", ["decoder_only", "encoder_decoder"])
def test_a_pruned_model_steps(mode: str) -> None:
    pruned, token_BL = prune_heads(shaken(mode), KEEP[mode]), tokens()
    state = pruned.start(token_BL) if mode == "encoder_decoder" else pruned.start()
    first, state = pruned.step(token_BL[:, :3], state)
    second, _ = pruned.step(token_BL[:, 3:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), read(pruned, token_BL), atol=1e-5, rtol=1e-5)


class _NoTokenizer:
    def save(self, path: Path) -> None:
        path.write_text("{}")


@pytest.mark.parametrize("positions", ["t5", "transformer_xl", "learned"])
@pytest.mark.parametrize("mode", sorted(MODES))
def test_a_pruned_model_is_built_again_from_its_config(mode: str, positions: str) -> None:
    pruned = prune_heads(shaken(mode, positions=positions, score="general"), KEEP[mode])
    again = type(pruned)(pruned.config).eval()
    assert {n: p.shape for n, p in again.named_parameters()} == {n: p.shape for n, p in pruned.named_parameters()}
    again.load_state_dict(pruned.state_dict())
    assert torch.equal(read(again, tokens()), read(pruned, tokens()))


def test_a_pruned_model_comes_back_from_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearhead.tasks.directory.READERS", {"any": ("tokenizer.json", lambda *_: _NoTokenizer())})
    model = shaken("encoder_decoder", positions="t5")
    pruned = prune_heads(model, KEEP["encoder_decoder"])
    for name, one in (("whole", model), ("pruned", pruned)):
        save_model(tmp_path / name, ModelParts(one, _NoTokenizer(), Settings("any", one.config)))
    again = own_parts(tmp_path / "pruned")
    assert again.settings.config == pruned.config
    assert torch.equal(read(again.model, tokens()), read(pruned, tokens()))
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("whole", "pruned")]
    assert sizes[1] < sizes[0]
    broken = (tmp_path / "pruned" / "config.json").read_text().replace("decoder.0.cross", "decoder.9.cross")
    (tmp_path / "pruned" / "config.json").write_text(broken)
    with pytest.raises(CheckpointError, match=r"'decoder\.9\.cross'"):
        own_parts(tmp_path / "pruned")


@pytest.mark.parametrize("positions", ["alibi", "transformer_xl", "none"])
def test_what_was_pruned_can_be_pruned_again(positions: str) -> None:
    model = shaken("decoder_only", positions=positions)
    twice = prune_heads(prune_heads(model, {"decoder.0.attention": [0, 2, 3]}), {"decoder.0.attention": [1, 2]})
    once = prune_heads(model, {"decoder.0.attention": [2, 3]})
    assert twice.config == once.config
    assert torch.equal(read(twice, tokens()), read(once, tokens()))
    assert model.config.pruned == ()  # the model itself is left alone


@pytest.mark.parametrize("wrong", [[], [4], [0, 0], [-1]])
def test_heads_that_are_not_there_are_refused(wrong: list[int]) -> None:
    with pytest.raises(ConfigError, match="heads 0 to 3"):
        prune_heads(small_model("decoder_only"), {"decoder.0.attention": wrong})


def test_what_cannot_be_pruned_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no attention is named 'decoder\.0'"):
        prune_heads(small_model("decoder_only"), {"decoder.0": [0]})
    with pytest.raises(ConfigError, match=r"'decoder\.0\.feedforward' is no attention"):
        small_model("decoder_only", pruned=(("decoder.0.feedforward", (0,)),))
    with pytest.raises(ConfigError, match="Int8Linear"):
        prune_heads(to_int8(small_model("decoder_only")), {"decoder.0.attention": [0]})
    images = Vit(VitConfig(image=4, patch=2, width=8, heads=2, layers=1, hidden=8))
    with pytest.raises(ConfigError, match="a Vit cannot be pruned"):
        prune_heads(images, {"encoder.0.attention": [0]})


def test_the_heads_that_matter_most_are_kept() -> None:
    model = small_model("decoder_only")
    importance = {
        "decoder.0.attention": torch.tensor([0.9, 0.8, 0.7, 0.6]),
        "decoder.1.attention": torch.tensor([0.1, 0.3, 0.2, 0.0]),
    }
    assert choose_heads(model, importance, 0.5) == {"decoder.0.attention": [0, 1, 2], "decoder.1.attention": [1]}
    assert choose_heads(model, importance, 1.0) == {path: [0, 1, 2, 3] for path in importance}
    assert choose_heads(model, importance, 0.01) == {"decoder.0.attention": [0], "decoder.1.attention": [1]}
    grouped = small_model("decoder_only", kv_heads=2)
    assert choose_heads(grouped, importance, 0.75)["decoder.1.attention"] == [0, 1]
    with pytest.raises(ConfigError, match="keep=0"):
        choose_heads(model, importance, 0)
    with pytest.raises(ConfigError, match="has 4 heads"):
        choose_heads(model, {"decoder.0.attention": torch.zeros(3)}, 0.5)
