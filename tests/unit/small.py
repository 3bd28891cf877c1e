"""The three modes at a size for tests: two layers of width 16, nothing dropped."""

from typing import Any

import torch
from torch import Tensor, nn

from clearhead.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from clearhead.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from clearhead.models.encoder_only import EncoderOnly, EncoderOnlyConfig

__all__ = ["MODES", "VOCABULARY", "read", "small_model", "tokens"]

VOCABULARY = 13
SIZES: dict[str, Any] = {"vocabulary": VOCABULARY, "width": 16, "heads": 4, "hidden": 24, "length": 12}
STILL: dict[str, Any] = {"dropout": 0.0, "attention_dropout": 0.0}

MODES: dict[str, tuple[type[nn.Module], type[Any], dict[str, Any]]] = {
    "encoder_decoder": (EncoderDecoder, EncoderDecoderConfig, {"encoder_layers": 2, "decoder_layers": 2}),
    "encoder_only": (EncoderOnly, EncoderOnlyConfig, {"layers": 2}),
    "decoder_only": (DecoderOnly, DecoderOnlyConfig, {"layers": 2}),
}


def small_model(mode: str, **changes: Any) -> Any:
    """A model of that mode in evaluation, with some settings changed."""
    model, config, layers = MODES[mode]
    return model(config(**{**SIZES, **STILL, **layers, **changes})).eval()


def tokens(rows: int = 2, length: int = 5, seed: int = 0) -> Tensor:
    return torch.randint(VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def read(model: nn.Module, token_BL: Tensor) -> Tensor:
    """What any of the three makes of the tokens; an encoder–decoder reads them as source and as target."""
    answer: Tensor = model(token_BL, token_BL) if isinstance(model, EncoderDecoder) else model(token_BL)
    return answer
