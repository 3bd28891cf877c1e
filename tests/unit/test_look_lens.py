"""The lens: the last guess is the model's own, and a guess is what a model cut off there says."""

import copy

import pytest
import torch

from clearhead.errors import ConfigError, ShapeError
from clearhead.look.lens import lens
from clearhead.models.vit import Vit, VitConfig
from clearhead.nn.residual import RESIDUALS
from clearhead.nn.stack import COMBINATIONS
from clearhead.tap import named_taps
from tests.unit.small import MODES, read, small_model, tokens


def words(model, token_BL):
    return model.words(token_BL) if hasattr(model, "words") else read(model, token_BL)


@pytest.mark.parametrize("residual", sorted(RESIDUALS))
@pytest.mark.parametrize("mode", sorted(MODES))
def test_each_guess_is_that_of_a_model_cut_off_there(mode: str, residual: str) -> None:
    model, token_BL = small_model(mode, residual=residual), tokens()
    found = lens(model, lambda: words(model, token_BL))
    stack = "encoder" if mode == "encoder_only" else "decoder"
    embed = "target_embed" if mode == "encoder_decoder" else "embed"
    assert found.layers == (embed, f"{stack}.0", f"{stack}.1")
    for depth in range(3):
        short = copy.deepcopy(model)
        short.get_submodule(stack).rounds = ["0", "1"][:depth]
        torch.testing.assert_close(found.logits_XBLV[depth], words(short, token_BL), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("combination", sorted(COMBINATIONS))
def test_the_last_guess_is_what_the_model_says(combination: str) -> None:
    changes = {"layers": 4, "distinct": 2, "embedding_width": 8, "combination": combination}
    model, token_BL = small_model("encoder_only", **changes), tokens()
    found = lens(model, lambda: model.words(token_BL))
    assert found.layers == ("embed", "encoder.0", "encoder.1", "encoder.0", "encoder.1")
    torch.testing.assert_close(found.logits_XBLV[-1], model.words(token_BL), atol=1e-6, rtol=1e-5)
    assert not any(tap.watched for tap in named_taps(model).values())


def test_the_best_words_and_the_rank_of_one() -> None:
    model, token_BL = small_model("decoder_only"), tokens()
    found = lens(model, lambda: model(token_BL))
    probability, word = found.best(3)
    plain = model(token_BL).softmax(-1)
    assert int(word[-1, 0, 0, 0]) == int(plain[0, 0].argmax())
    torch.testing.assert_close(probability[-1, 0, 0, 1], plain[0, 0].sort(descending=True).values[1])
    assert (found.rank(word[-1, :, :, 2])[-1] == 2).all()


def test_what_has_no_words_is_refused() -> None:
    model = small_model("decoder_only")
    with pytest.raises(ShapeError, match="not 2 of them"):
        lens(model, lambda: (model(tokens()), model(tokens())))
    with pytest.raises(ConfigError, match="no head for words"):
        lens(small_model("encoder_only", words=False), lambda: None)
    with pytest.raises(ConfigError, match="a Vit has no stream"):
        lens(Vit(VitConfig(image=4, patch=2, width=8, heads=2, layers=1, hidden=8)), lambda: None)
