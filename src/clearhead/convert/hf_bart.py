"""BART [lewis2020] at Hugging Face: Marian's names, a norm on the embedding, positions that begin at the third row."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from clearhead.convert.family import Family, of_kind, refuse_theirs, said
from clearhead.convert.hf_marian import (
    NORMS_AFTER,
    PAIR_ALIASES,
    SHARED,
    block_rows,
    output_rows,
    read_pair,
    write_pair,
)
from clearhead.convert.mapping import Row, layer
from clearhead.models.encoder_decoder import EncoderDecoderConfig

__all__ = ["BART"]

# What their config class takes where a config.json is silent.
DEFAULTS: dict[str, Any] = {
    "vocab_size": 50_265, "max_position_embeddings": 1024, "d_model": 1024,
    "encoder_layers": 12, "encoder_ffn_dim": 4096, "encoder_attention_heads": 16,
    "decoder_layers": 12, "decoder_ffn_dim": 4096, "decoder_attention_heads": 16,
    "activation_function": "gelu", "dropout": 0.1, "attention_dropout": 0.0, "activation_dropout": 0.0,
    "scale_embedding": False, "tie_word_embeddings": True,
    "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2,
}  # fmt: skip


def _read(config: Mapping[str, Any], names: AbstractSet[str]) -> EncoderDecoderConfig:
    refuse_theirs("bart", config, {**NORMS_AFTER, "tie_word_embeddings": True})
    own = read_pair("bart", said(config, DEFAULTS, PAIR_ALIASES), names)
    return EncoderDecoderConfig(**own, positions="learned", embedding_norm=True)


def _write(config: EncoderDecoderConfig) -> dict[str, Any]:
    c = of_kind("bart", config, EncoderDecoderConfig)
    able = {"positions": "learned", "embedding_norm": True, "target_vocabulary": None, "tied": True}
    own = write_pair("bart", c, able)
    return {"model_type": "bart", "architectures": ["BartForConditionalGeneration"], **own}


def _rows(config: EncoderDecoderConfig) -> list[Row]:
    rows = [Row("source_embed.tokens.weight", ("model.shared.weight",))]
    for ours, theirs in (("source_embed.", "model.encoder."), ("target_embed.", "model.decoder.")):
        rows += layer(ours, theirs, [Row("place.table", ("embed_positions",), skip=2)], ends=("weight",))
        rows += layer(ours, theirs, [Row("norm", ("layernorm_embedding",))])
    return rows + block_rows(config) + output_rows(config)


BART = Family(
    "bart", _read, _write, _rows, prefix="model.",
    ignored=(r"lm_head\.weight", r"model\.(encoder|decoder)\.embed_tokens\.weight"), twins=SHARED,
)  # fmt: skip
