"""A model laid out for decoding is the same model."""

from pathlib import Path

import pytest
import torch

from clearhead.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from clearhead.nn.layout import for_decoding
from clearhead.nn.weights import load_weights, save_weights

TOKENS_BL = torch.tensor([[3, 1, 4, 1, 5], [2, 7, 1, 8, 2]])


def small_model(tied: bool = True) -> DecoderOnly:
    torch.manual_seed(0)
    sizes = {"vocabulary": 300, "width": 16, "heads": 2, "layers": 2, "hidden": 24, "length": 8}
    return DecoderOnly(DecoderOnlyConfig(**sizes, tied=tied, dropout=0.0, attention_dropout=0.0))


@pytest.mark.parametrize("tied", [True, False])
def test_same_answers_and_same_parameters(tied: bool) -> None:
    plain, laid_out = small_model(tied).eval(), for_decoding(small_model(tied))
    with torch.no_grad():
        torch.testing.assert_close(laid_out(TOKENS_BL), plain(TOKENS_BL), rtol=1e-5, atol=1e-6)
    ours, theirs = dict(laid_out.named_parameters()), dict(plain.named_parameters())
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_matrices_lie_by_inputs_and_the_embedding_does_not() -> None:
    model = for_decoding(small_model())
    assert model.get_parameter("decoder.0.feedforward.widen.weight").t().is_contiguous()
    assert model.get_parameter("embed.tokens.weight").is_contiguous()


def test_the_packed_output_is_used_without_gradients_alone() -> None:
    model = for_decoding(small_model())
    if model.output.packed is None:
        pytest.skip("this build of PyTorch has no oneDNN")
    with torch.no_grad():
        before = model(TOKENS_BL)
        model.output.linear.weight.mul_(2)
        # The copy does not follow, which tells that it was the copy that was used; with gradients it is not.
        torch.testing.assert_close(model.output(torch.ones(1, 16)), small_model().output(torch.ones(1, 16)))
    assert before.shape == (2, 5, 300)
    model(TOKENS_BL).sum().backward()
    assert model.get_parameter("embed.tokens.weight").grad is not None


def test_it_can_be_saved_and_loaded(tmp_path: Path) -> None:
    model, other = for_decoding(small_model()), small_model()
    save_weights(model, tmp_path / "model.safetensors")
    with torch.no_grad():
        other.embed.tokens.weight.zero_()
    load_weights(other, tmp_path / "model.safetensors")
    with torch.no_grad():
        torch.testing.assert_close(other.eval()(TOKENS_BL), model(TOKENS_BL), rtol=1e-5, atol=1e-6)
