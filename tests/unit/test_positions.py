"""The table of position schemes: which place each of them fills, and which layers share its parameters."""

import pytest
import torch

from clearhead.nn.positions import POSITIONS, Place
from tests.unit.small import small_model

EMBEDDED = {"sinusoidal", "sinusoidal_halves", "learned"}
SLOTS = {
    "rotary": {"rotate"},
    "rotary_interleaved": {"rotate"},
    "shaw": {"bias", "value"},
    "t5": {"bias"},
    "alibi": {"bias"},
    "transformer_xl": {"bias"},
}
OF_EACH_LAYER = {"shaw", "transformer_xl"}


@pytest.mark.parametrize("name", sorted(POSITIONS))
def test_each_scheme_fills_its_places(name: str) -> None:
    scheme = POSITIONS[name](Place(8, 2, 4))
    x_BLD, position_BL = torch.randn(1, 3, 8), torch.arange(3)[None]
    assert (not torch.equal(scheme.embed(x_BLD, position_BL), x_BLD)) == (name in EMBEDDED)
    assert {slot for slot in ("rotate", "bias", "value") if getattr(scheme, slot) is not None} == SLOTS.get(name, set())


@pytest.mark.parametrize("name", sorted(POSITIONS))
def test_layers_share_what_the_paper_shares(name: str) -> None:
    """Shaw and Transformer-XL have parameters in each layer, which start apart; T5's table is one for all."""
    model = small_model("decoder_only", positions=name, init="pytorch")
    first, second = (list(layer.attention.positions.parameters()) for layer in model.decoder.layers)
    assert len(first) == len(second) == {"shaw": 2, "transformer_xl": 3, "t5": 1}.get(name, 0)
    if name in OF_EACH_LAYER:
        assert {id(p) for p in first}.isdisjoint(id(p) for p in second)
        assert any(not torch.equal(a, b) for a, b in zip(first, second, strict=True))
    else:
        assert [id(p) for p in first] == [id(p) for p in second]


def test_an_encoder_and_a_decoder_have_tables_of_their_own() -> None:
    """T5 shares its bias over the layers of a stack; the decoder's buckets lie in the past alone [raffel2020 §2.1]."""
    model = small_model("encoder_decoder", positions="t5")
    encoder, decoder = (
        model.encoder.layers[0].attention.positions.bias,
        model.decoder.layers[0].attention.positions.bias,
    )
    assert encoder.table is not decoder.table
    assert (encoder.causal, decoder.causal) == (False, True)
    assert model.decoder.layers[0].cross.positions.bias is None
