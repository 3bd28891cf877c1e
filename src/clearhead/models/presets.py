"""Presets: named sizes. The vocabulary of the small ones, and what images and classes they have, is the user's own.

`build("gpt2")` makes a model; `preset("gpt-tiny", vocabulary=65, dropout=0.0)` a config to look at or change.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from torch import nn

from clearhead.errors import ConfigError
from clearhead.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from clearhead.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from clearhead.models.encoder_only import EncoderOnly, EncoderOnlyConfig
from clearhead.models.ft_transformer import FTTransformer, FTTransformerConfig
from clearhead.models.tab_transformer import TabTransformer, TabTransformerConfig
from clearhead.models.vit import Vit, VitConfig
from clearhead.nn.tables import pick

__all__ = ["ARCHITECTURES", "PRESETS", "build", "preset"]

Config = (
    EncoderDecoderConfig
    | EncoderOnlyConfig
    | DecoderOnlyConfig
    | VitConfig
    | FTTransformerConfig
    | TabTransformerConfig
)

# The name of an architecture in a model directory's config.json -> its config and its model.
ARCHITECTURES: Mapping[str, tuple[type[Any], type[nn.Module]]] = MappingProxyType(
    {
        "encoder_decoder": (EncoderDecoderConfig, EncoderDecoder),
        "encoder_only": (EncoderOnlyConfig, EncoderOnly),
        "decoder_only": (DecoderOnlyConfig, DecoderOnly),
        "vit": (VitConfig, Vit),
        "ft_transformer": (FTTransformerConfig, FTTransformer),
        "tab_transformer": (TabTransformerConfig, TabTransformer),
    }
)

_GPT2 = DecoderOnlyConfig()
# GPT-2's form on a small scale, with the exact GELU: five times faster on a CPU than the tanh form.
_SMALL_GPT = replace(_GPT2, feedforward="gelu", length=256, dropout=0.2, attention_dropout=0.2, bos=None, eos=None)
# RMSNorm, rotary positions, SwiGLU, grouped heads, no biases: today's decoder [touvron2023].
_MODERN = DecoderOnlyConfig(
    vocabulary=32_000, width=768, heads=12, kv_heads=4, layers=12, hidden=2048, positions="rotary", norm="rms_norm",
    feedforward="swiglu", biases=(False, False, False), dropout=0.0, attention_dropout=0.0, length=2048, bos=1, eos=2,
)  # fmt: skip
# Pre-norm trains on two cores without a long warm-up; with sinusoids in halves others can read it too (Pegasus).
_SMALL_PAIR = EncoderDecoderConfig(
    vocabulary=8_000, width=256, heads=8, encoder_layers=3, decoder_layers=3, hidden=1024, residual="pre_norm",
    positions="sinusoidal_halves",
)  # fmt: skip
_SMALL_BERT = EncoderOnlyConfig(
    vocabulary=8_000, width=256, heads=4, layers=4, hidden=1024, residual="pre_norm", embedding_norm=False
)

PRESETS: Mapping[str, Config] = MappingProxyType(
    {
        "transformer-base": EncoderDecoderConfig(vocabulary=37_000),
        "transformer-big": EncoderDecoderConfig(vocabulary=37_000, width=1024, heads=16, hidden=4096, dropout=0.3),
        "transformer-small": _SMALL_PAIR,
        "transformer-tiny": replace(_SMALL_PAIR, width=128, heads=4, encoder_layers=2, decoder_layers=2, hidden=512),
        "bert-base": EncoderOnlyConfig(next_sentence=True),
        "bert-small": _SMALL_BERT,
        "bert-tiny": replace(_SMALL_BERT, width=128, layers=2, hidden=512),
        "gpt2": _GPT2,
        "gpt2-medium": replace(_GPT2, width=1024, heads=16, layers=24, hidden=4096),
        "gpt2-large": replace(_GPT2, width=1280, heads=20, layers=36, hidden=5120),
        "gpt2-xl": replace(_GPT2, width=1600, heads=25, layers=48, hidden=6400),
        "gpt-small": replace(_SMALL_GPT, width=384, heads=6, layers=6, hidden=1536),
        "gpt-tiny": replace(
            _SMALL_GPT, width=128, heads=4, layers=4, hidden=512, length=64, dropout=0.0, attention_dropout=0.0
        ),
        "modern": _MODERN,
        "modern-small": replace(_MODERN, width=384, heads=6, kv_heads=2, layers=6, hidden=1024, length=256),
        "modern-tiny": replace(_MODERN, width=128, heads=4, kv_heads=2, layers=4, hidden=344, length=64),
        "vit-base": VitConfig(),
        "vit-tiny": VitConfig(image=28, patch=4, channels=1, classes=10, width=128, heads=4, layers=4, hidden=512),
    }
)


def preset(name: str, **changes: Any) -> Config:
    """The config of that name, with some of its fields changed."""
    config = pick(PRESETS, name, "preset")
    unknown = sorted(set(changes) - set(config.__dataclass_fields__))
    if unknown:
        pick(config.__dataclass_fields__, unknown[0], f"setting of {type(config).__name__}")
    return replace(config, **changes)


def build(config: Config | str, **changes: Any) -> nn.Module:
    """The model of a config, or of a preset's name."""
    if isinstance(config, str):
        config = preset(config, **changes)
    elif changes:
        raise ConfigError(f"changes go with a preset's name; with a config use dataclasses.replace: {sorted(changes)}")
    for made_of, model in ARCHITECTURES.values():
        if type(config) is made_of:
            return model(config)
    raise ConfigError(f"no architecture takes a {type(config).__name__}")
