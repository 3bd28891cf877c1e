"""The family under contract: every row of every table, in each of the three modes, at a tiny size."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from clearhead.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from clearhead.models.encoder_only import EncoderOnly, EncoderOnlyConfig
from clearhead.nn.feedforward import FEEDFORWARDS
from clearhead.nn.norm import NORMS
from clearhead.nn.positions import POSITIONS
from clearhead.nn.residual import RESIDUALS
from clearhead.nn.scores import SCORES
from clearhead.nn.stack import COMBINATIONS
from tests.contracts.covering import Setting

MODES = ("encoder_decoder", "encoder_only", "decoder_only")
FACTORS: dict[str, Any] = {
    "mode": MODES,
    "score": sorted(SCORES),
    "positions": sorted(POSITIONS),
    "residual": sorted(RESIDUALS),
    "norm": sorted(NORMS),
    "feedforward": sorted(FEEDFORWARDS),
    "combination": sorted(COMBINATIONS),
    "kv_heads": (None, 2, 1),
    "persistent": (0, 3),
}
VOCABULARY, WIDTH, BATCH, LENGTH = 11, 24, 3, 6
COUNTS = torch.tensor([6, 2, 4])
SOURCE_COUNTS = torch.tensor([3, 5, 1])


def build(setting: Setting, layers: int = 2, seed: int = 0) -> nn.Module:
    """The model of a setting in evaluation mode, its parameters shaken so that nothing sits at a special value."""
    torch.manual_seed(seed)
    choices = {name: value for name, value in setting.items() if name != "mode"}
    sizes: dict[str, Any] = {"vocabulary": VOCABULARY, "width": WIDTH, "heads": 4, "hidden": 20, "length": 16}
    still: dict[str, Any] = {"dropout": 0.0, "attention_dropout": 0.0}
    if setting["mode"] == "encoder_decoder":
        depth = {"encoder_layers": layers, "decoder_layers": layers}
        model: nn.Module = EncoderDecoder(EncoderDecoderConfig(**sizes, **still, **depth, **choices))
    elif setting["mode"] == "encoder_only":
        heads = {"words": True, "next_sentence": True, "classes": 3, "labels": 4}
        model = EncoderOnly(EncoderOnlyConfig(**sizes, **still, **heads, layers=layers, **choices))
    else:
        model = DecoderOnly(DecoderOnlyConfig(**sizes, **still, layers=layers, **choices))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def tokens(seed: int = 0, length: int = LENGTH) -> Tensor:
    return torch.randint(VOCABULARY, (BATCH, length), generator=torch.Generator().manual_seed(seed))


def outputs(model: nn.Module, token_BL: Tensor, count_B: Tensor | None = COUNTS) -> Tensor:
    """The per-position output of any mode: logits, or the encoder's vectors."""
    return caller(model)(token_BL, count_B)


def caller(model: nn.Module) -> Callable[[Tensor, Tensor | None], Tensor]:
    """The model as a function of tokens and counts; an encoder–decoder reads a source that is always the same."""
    if isinstance(model, EncoderDecoder):
        source = tokens(seed=9, length=5)
        return lambda token_BL, count_B: model(source, token_BL, source_count_B=SOURCE_COUNTS, target_count_B=count_B)
    return lambda token_BL, count_B: model(token_BL, count_B=count_B)


def total(model: nn.Module, token_BL: Tensor) -> Tensor:
    """A number that depends on every output of the model, all heads included."""
    generator = torch.Generator().manual_seed(5)
    given = [outputs(model, token_BL)]
    if isinstance(model, EncoderOnly):
        segment_BL = (torch.arange(LENGTH) > 1).long().expand(BATCH, -1)
        heads = (model.words, model.follows, model.classes, model.labels)
        given += [head(token_BL, count_B=COUNTS, segment_BL=segment_BL) for head in heads]
    return sum(((x * torch.randn(x.shape, generator=generator)).sum() for x in given), torch.zeros(()))


def real(x_BLW: Tensor, count_B: Tensor = COUNTS) -> Tensor:
    """The real positions of a padded batch."""
    return x_BLW[torch.arange(x_BLW.shape[1]) < count_B[:, None]]
