"""Switching off: against weights set to zero by hand, in whole passes and in steps, and no trace afterwards."""

import copy

import pytest
import torch
from torch import Tensor

from clearhead.errors import ConfigError, ShapeError
from clearhead.look.ablate import ablate, mean, patch, zero
from clearhead.look.capture import look
from clearhead.tap import named_taps
from tests.unit.small import MODES, read, small_model, tokens

ATTENTION = {
    "encoder_decoder": "decoder.1.cross",
    "encoder_only": "encoder.0.attention",
    "decoder_only": "decoder.1.attention",
}


def in_steps(model, token_BL: Tensor, cuts=(2, 3)) -> Tensor:
    """The logits of a target read in pieces."""
    state = model.start(token_BL) if "encoder_layers" in vars(model.config) else model.start()
    read = []
    for piece in token_BL.tensor_split(cuts, dim=1):
        logits, state = model.step(piece, state)
        read.append(logits)
    return torch.cat(read, dim=1)


@pytest.mark.parametrize("mode", sorted(MODES))
def test_a_head_switched_off_adds_nothing(mode: str) -> None:
    model, token_BL, path = small_model(mode), tokens(), ATTENTION[mode]
    changed = copy.deepcopy(model)
    with torch.no_grad():
        out = changed.get_submodule(path).out.weight
        out.view(16, 4, 4)[:, [0, 3]] = 0.0
    with ablate(model, heads={path: [0, 3]}):
        cut = read(model, token_BL)
    torch.testing.assert_close(cut, read(changed, token_BL), atol=1e-6, rtol=1e-5)
    assert not torch.allclose(cut, read(model, token_BL), atol=1e-4)


@pytest.mark.parametrize("residual", ["pre_norm", "post_norm", "deepnorm"])
@pytest.mark.parametrize("mode", sorted(MODES))
def test_a_layer_switched_off_is_the_identity(mode: str, residual: str) -> None:
    model, token_BL = small_model(mode, residual=residual), tokens()
    changed = copy.deepcopy(model)
    name = "encoder" if mode == "encoder_only" else "decoder"
    changed.get_submodule(name).rounds = ["1"]
    with ablate(model, layers=[f"{name}.0"]):
        cut = read(model, token_BL)
    torch.testing.assert_close(cut, read(changed, token_BL))


@pytest.mark.parametrize("persistent", [0, 2])
@pytest.mark.parametrize("mode", sorted(MODES))
def test_a_hidden_position_is_read_by_nobody(mode: str, persistent: int) -> None:
    model, token_BL = small_model(mode, persistent=persistent), tokens()
    every = ("encoder",) if mode == "encoder_only" else ("decoder",)
    hidden = {f"{stack}.{i}.attention": [1, 9] for stack in every for i in range(2)}
    other_BL = token_BL.clone()
    other_BL[:, 1] = (other_BL[:, 1] + 1) % 13
    run = model if mode != "encoder_decoder" else lambda x: model(token_BL, x)
    with ablate(model, positions=hidden), look(model, "*.0.attention.weights") as seen:
        first, second = run(token_BL), run(other_BL)
    elsewhere = [0, 2, 3, 4]
    torch.testing.assert_close(first[:, elsewhere], second[:, elsewhere])
    assert not torch.allclose(run(token_BL)[:, 2:], run(other_BL)[:, 2:])
    weights = seen[f"{every[0]}.0.attention.weights"].values[0]
    assert (weights[..., persistent + 1] == 0).all()
    torch.testing.assert_close(weights[:, :, 2:].sum(-1), torch.ones(2, 4, 3))


@pytest.mark.parametrize("mode", ["decoder_only", "encoder_decoder"])
def test_steps_agree_with_a_whole_pass(mode: str) -> None:
    model, token_BL = small_model(mode), tokens()
    reference = tokens(3, 4, seed=5)
    with look(model, "decoder.0.add_feedforward.branch") as seen:
        read(model, reference)
    with ablate(
        model,
        heads={"decoder.1.attention": [2]},
        layers=["decoder.0"],
        positions={"decoder.1.attention": [0]},
        replace={"decoder.0.add_feedforward.branch": mean(seen), "decoder.1.feedforward.hidden": zero()},
    ):
        torch.testing.assert_close(in_steps(model, token_BL), read(model, token_BL), atol=1e-5, rtol=1e-4)


def test_the_mean_is_that_of_all_positions() -> None:
    model = small_model("decoder_only")
    with look(model, "decoder.*.heads") as seen:
        read(model, tokens(3, 4, seed=5))
        read(model, tokens(1, 2, seed=6))
    with ablate(model, replace={"decoder.*.heads": mean(seen)}), look(model, "decoder.*.heads") as replaced:
        read(model, tokens())
    rows = [y for value in seen["decoder.1.attention.heads"].values for y in value.transpose(1, 2).flatten(0, 1)]
    expected = sum(rows) / len(rows)
    assert len(rows) == 14
    found = replaced["decoder.1.attention.heads"].tensor
    torch.testing.assert_close(found, expected[None, :, None].expand_as(found))
    with look(model, "*.weights") as seen:
        read(model, tokens())
    with pytest.raises(ShapeError, match="no mean"), ablate(model, replace={"*.weights": mean(seen)}):
        pass


def test_a_patched_stream_gives_the_other_answer() -> None:
    """Everything after a fully patched stream is the other run's; patched at one position, the past is untouched."""
    model, clean, other = small_model("decoder_only"), tokens(), tokens(seed=3)
    with look(model, ["decoder.0.add_feedforward.sum", "decoder.0.attention.heads"]) as seen:
        answer = read(model, other)
    with ablate(model, replace={"decoder.0.add_feedforward.sum": patch(seen)}):
        assert torch.equal(read(model, clean), answer)
    with ablate(model, replace={"decoder.0.add_feedforward.sum": patch(seen, positions=[3])}):
        patched = read(model, clean)
    plain = read(model, clean)
    torch.testing.assert_close(patched[:, :3], plain[:, :3])
    assert not torch.allclose(patched[:, 3:], plain[:, 3:])
    with (
        ablate(model, replace={"decoder.0.attention.heads": patch(seen, heads=[1], positions=[4])}),
        look(model, "decoder.0.attention.heads") as mixed,
    ):
        read(model, clean)
    with look(model, "decoder.0.attention.heads") as own:
        read(model, clean)
    expected = own["decoder.0.attention.heads"].tensor
    expected[:, 1, 4] = seen["decoder.0.attention.heads"].tensor[:, 1, 4]
    assert torch.equal(mixed["decoder.0.attention.heads"].tensor, expected)


def test_a_patch_that_does_not_fit_is_refused() -> None:
    model = small_model("decoder_only")
    with look(model, "embed.sum") as seen:
        read(model, tokens())
    with pytest.raises(ShapeError, match=r"\(2, 5, 16\) for 'embed.sum' where \(2, 4, 16\)"):  # noqa: SIM117
        with ablate(model, replace={"embed.sum": patch(seen)}):
            read(model, tokens(2, 4))
    with ablate(model, replace={"embed.sum": patch(seen)}):
        read(model, tokens())
        with pytest.raises(ShapeError, match="no more"):
            read(model, tokens())
    for wrong, error in (({"heads": [0]}, ConfigError), ({"positions": [7]}, ShapeError)):
        with ablate(model, replace={"embed.sum": patch(seen, **wrong)}), pytest.raises(error):
            read(model, tokens())


def test_nested_contexts_add_up() -> None:
    model, token_BL = small_model("decoder_only"), tokens()
    with ablate(model, heads={"decoder.0.attention": [0]}), ablate(model, heads={"decoder.0.attention": [1]}):
        nested = read(model, token_BL)
    with ablate(model, heads={"decoder.0.attention": [0, 1]}):
        assert torch.equal(read(model, token_BL), nested)


@pytest.mark.parametrize("mode", sorted(MODES))
def test_no_trace_is_left(mode: str) -> None:
    model, token_BL = small_model(mode), tokens()
    before, state = read(model, token_BL), {name: x.clone() for name, x in model.state_dict().items()}
    name = "encoder" if mode == "encoder_only" else "decoder"

    def fail() -> None:
        with ablate(model, heads={ATTENTION[mode]: [0]}, layers=[f"{name}.0"], replace={"*.sum": zero()}):
            read(model, token_BL)
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        fail()
    assert torch.equal(read(model, token_BL), before)
    assert all(torch.equal(x, state[name]) for name, x in model.state_dict().items())
    assert not any(tap.watched for tap in named_taps(model).values())
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"heads": {"decoder.0.attention": [4]}}, "heads 0 to 3"),
        ({"heads": {"decoder.0.cross": [0]}}, "no attention is named 'decoder.0.cross'"),
        ({"layers": ["decoder"]}, "no layer is named 'decoder'"),
        ({"positions": {"embed": [0]}}, "no attention is named 'embed'"),
        ({"replace": {"embed.sun": zero()}}, "embed.sum"),
    ],
)
def test_what_is_not_there_is_refused(wrong, sentence: str) -> None:
    model = small_model("decoder_only")
    with pytest.raises(ConfigError, match=sentence), ablate(model, **wrong):
        pass
    assert not any(tap.watched for tap in named_taps(model).values())
