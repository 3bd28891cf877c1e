"""Pegasus [zhang2020] at Hugging Face: Marian's names and sinusoids, norms before the sub-layers and after the stacks.

It was made for summaries; any translator of ours with norms before its sub-layers is one.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import torch
from torch import Tensor

from clearhead.convert.family import Family, of_kind, refuse_theirs, said
from clearhead.convert.hf_marian import PAIR_ALIASES, SHARED, block_rows, output_rows, read_pair, write_pair
from clearhead.convert.mapping import Row, layer
from clearhead.models.encoder_decoder import EncoderDecoderConfig
from clearhead.nn.positions_absolute import sinusoid

__all__ = ["PEGASUS"]

# What their config class takes where a config.json is silent.
DEFAULTS: dict[str, Any] = {
    "vocab_size": 50_265, "max_position_embeddings": 1024, "d_model": 1024,
    "encoder_layers": 12, "encoder_ffn_dim": 4096, "encoder_attention_heads": 16,
    "decoder_layers": 12, "decoder_ffn_dim": 4096, "decoder_attention_heads": 16,
    "activation_function": "gelu", "dropout": 0.1, "attention_dropout": 0.0, "activation_dropout": 0.0,
    "scale_embedding": False, "tie_word_embeddings": True,
    "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0,
}  # fmt: skip
# What only their older files say, and CTranslate2 wants to know.
NORMS = {"normalize_before": True, "add_final_layer_norm": True, "normalize_embedding": False}
ABLE: dict[str, Any] = {"positions": "sinusoidal_halves", "residual": "pre_norm"}


def _read(config: Mapping[str, Any], names: AbstractSet[str]) -> EncoderDecoderConfig:
    refuse_theirs("pegasus", config, {**NORMS, "tie_word_embeddings": True})
    return EncoderDecoderConfig(**read_pair("pegasus", said(config, DEFAULTS, PAIR_ALIASES), names), **ABLE)


def _write(config: EncoderDecoderConfig) -> dict[str, Any]:
    c = of_kind("pegasus", config, EncoderDecoderConfig)
    able = {**ABLE, "base": 10_000.0, "embedding_norm": False, "target_vocabulary": None, "tied": True}
    own = write_pair("pegasus", c, able)
    return {"model_type": "pegasus", "architectures": ["PegasusForConditionalGeneration"], **own, **NORMS}


def _rows(config: EncoderDecoderConfig) -> list[Row]:
    rows = [Row("source_embed.tokens.weight", ("model.shared.weight",))]
    final = [Row(f"{side}.norm", (f"model.{side}.layer_norm",)) for side in ("encoder", "decoder")]
    return rows + layer("", "", final) + block_rows(config) + output_rows(config)


def _positions(config: EncoderDecoderConfig, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    table = sinusoid(torch.arange(config.length), config.width, halves=True)
    return {f"model.{side}.embed_positions.weight": table.clone() for side in ("encoder", "decoder")}


PEGASUS = Family(
    "pegasus", _read, _write, _rows, prefix="model.",
    ignored=(r"lm_head\.weight", r"model\.(encoder|decoder)\.embed_(tokens|positions)\.weight"),
    twins=SHARED, besides=_positions,
)  # fmt: skip
