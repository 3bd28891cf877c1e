"""Text models of every mode and with any setting, tiny and at random, ready to be looked into."""

from functools import cache
from typing import Any

import torch

from clearhead.data.tokenizers import Tokenizer
from clearhead.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from clearhead.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from clearhead.models.encoder_only import EncoderOnly, EncoderOnlyConfig
from clearhead.tasks.directory import ModelParts, Settings
from clearhead.tasks.encoder_data import SPECIALS as ENCODER_SPECIALS
from clearhead.tasks.viewing import Viewer

__all__ = ["MODES", "TEXT", "tiny_viewer"]

MODES = ("encoder-decoder", "decoder", "encoder")
TEXT = "a b a c"
SIZES: dict[str, Any] = {"width": 16, "heads": 4, "hidden": 12, "length": 32, "dropout": 0.0, "attention_dropout": 0.0}
TASKS = {"encoder-decoder": "translation", "decoder": "language_model", "encoder": "masked_model"}


@cache
def _tokenizer(mode: str) -> Tokenizer:
    specials = {"specials": ENCODER_SPECIALS} if mode == "encoder" else {}
    return Tokenizer.train("word", ["a b c d e f"] * 2, 20, **specials)


def tiny_viewer(mode: str, *, layers: int = 2, seed: int = 0, **choices: Any) -> Viewer:
    """A model with these choices; its parameters are shaken, so that nothing sits at a special value."""
    torch.manual_seed(seed)
    tokenizer = _tokenizer(mode)
    given = {"vocabulary": tokenizer.vocabulary_size, **SIZES, **choices}
    config: Any
    if mode == "encoder-decoder":
        depth = {"encoder_layers": layers, "decoder_layers": layers}
        config = EncoderDecoderConfig(**given, **depth, bos=tokenizer.bos or 0, eos=tokenizer.eos or 0)
        model: torch.nn.Module = EncoderDecoder(config)
    elif mode == "decoder":
        config = DecoderOnlyConfig(**given, layers=layers, bos=tokenizer.bos, eos=tokenizer.eos)
        model = DecoderOnly(config)
    else:
        config = EncoderOnlyConfig(**given, layers=layers)
        model = EncoderOnly(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    generation = {"longest_ratio": 1.0, "longest_extra": 3} if mode == "encoder-decoder" else {}
    return Viewer(ModelParts(model.eval(), tokenizer, Settings(TASKS[mode], config, generation=generation)))
