"""Marian [junczys2018] at Hugging Face: the paper's encoder–decoder, with sinusoids in halves, a bias on the logits."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from torch import Tensor

from clearhead.convert.family import (
    ACTIVATIONS,
    PLAIN,
    Family,
    first_token,
    of_kind,
    ours_of,
    refuse_ours,
    refuse_theirs,
    said,
    theirs_of,
)
from clearhead.convert.mapping import Row, layer
from clearhead.models.encoder_decoder import EncoderDecoderConfig

__all__ = ["MARIAN", "NORMS_AFTER", "PAIR_ALIASES", "SHARED", "block_rows", "output_rows", "read_pair", "write_pair"]

# What their config class takes where a config.json is silent.
DEFAULTS: dict[str, Any] = {
    "vocab_size": 58_101, "decoder_vocab_size": None, "max_position_embeddings": 1024, "d_model": 1024,
    "encoder_layers": 12, "encoder_ffn_dim": 4096, "encoder_attention_heads": 16,
    "decoder_layers": 12, "decoder_ffn_dim": 4096, "decoder_attention_heads": 16,
    "activation_function": "gelu", "dropout": 0.1, "attention_dropout": 0.0, "activation_dropout": 0.0,
    "scale_embedding": False, "share_encoder_decoder_embeddings": True, "tie_word_embeddings": True,
    "pad_token_id": 58_100, "eos_token_id": 0, "decoder_start_token_id": 58_100,
}  # fmt: skip
# Other names that their config class takes for its own, in this family and its kin.
PAIR_ALIASES = {
    "hidden_size": "d_model", "num_attention_heads": "encoder_attention_heads", "num_hidden_layers": "encoder_layers",
}  # fmt: skip
NORM_EPS = 1e-5  # always
NEVER = -1e4
NORMS_AFTER = {"normalize_before": False, "add_final_layer_norm": False}

BLOCK = (
    Row("attention.project.qkv", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
    Row("attention.out", ("self_attn.out_proj",)),
    Row("feedforward.widen", ("fc1",)),
    Row("feedforward.narrow", ("fc2",)),
)
CROSS = (
    Row("cross.project.q", ("encoder_attn.q_proj",)),
    Row("cross.project.kv", ("encoder_attn.k_proj", "encoder_attn.v_proj")),
    Row("cross.out", ("encoder_attn.out_proj",)),
)
NORMS = {"attention": "self_attn_layer_norm", "feedforward": "final_layer_norm", "cross": "encoder_attn_layer_norm"}
SLOTS = {"post_norm": "after", "pre_norm": "before"}  # where the residual keeps them


def read_pair(family: str, c: Mapping[str, Any], names: AbstractSet[str]) -> dict[str, Any]:
    """Our settings of what Marian, BART and Pegasus say in the same words."""
    for size in ("ffn_dim", "attention_heads"):
        refuse_theirs(family, c, {f"decoder_{size}": c[f"encoder_{size}"]})
    return {
        "vocabulary": c["vocab_size"], "width": c["d_model"], "heads": c["encoder_attention_heads"],
        "encoder_layers": c["encoder_layers"], "decoder_layers": c["decoder_layers"], "hidden": c["encoder_ffn_dim"],
        "feedforward": ours_of(family, "activation_function", c["activation_function"], ACTIVATIONS),
        "norm_eps": NORM_EPS, "scaled_embedding": c["scale_embedding"], "length": c["max_position_embeddings"],
        "tied": c["tie_word_embeddings"], "output_bias": "final_logits_bias" in names, "init": "normal",
        "dropout": c["dropout"], "attention_dropout": c["attention_dropout"], "hidden_dropout": c["activation_dropout"],
        "pad": c["pad_token_id"] or 0, "bos": c["decoder_start_token_id"], "eos": first_token(c["eos_token_id"]),
    }  # fmt: skip


def write_pair(family: str, c: EncoderDecoderConfig, able: Mapping[str, Any]) -> dict[str, Any]:
    """The way back; refuses what neither their common form nor these further settings can express."""
    refuse_ours(family, c, {
        **PLAIN, "residual": "post_norm", "norm": "layer_norm", "norm_eps": NORM_EPS, "score": "scaled_dot",
        "biases": True, "kv_heads": [None, c.heads], "head_width": [None, c.width // c.heads], "output_scale": 1.0,
        "zero_start": False, **able,
    })  # fmt: skip
    return {
        "vocab_size": c.vocabulary, "d_model": c.width, "max_position_embeddings": c.length,
        "encoder_layers": c.encoder_layers, "encoder_ffn_dim": c.hidden, "encoder_attention_heads": c.heads,
        "decoder_layers": c.decoder_layers, "decoder_ffn_dim": c.hidden, "decoder_attention_heads": c.heads,
        "activation_function": theirs_of(family, "feedforward", c.feedforward, ACTIVATIONS),
        "scale_embedding": c.scaled_embedding, "tie_word_embeddings": c.tied, "is_encoder_decoder": True,
        "dropout": c.dropout, "attention_dropout": c.attention_dropout, "activation_dropout": c.hidden_dropout,
        "pad_token_id": c.pad, "eos_token_id": c.eos, "decoder_start_token_id": c.bos, "forced_eos_token_id": None,
    }  # fmt: skip


def block_rows(c: EncoderDecoderConfig) -> list[Row]:
    """The blocks of both sides."""
    rows: list[Row] = []
    *both, across = (Row(f"add_{part}.{SLOTS[c.residual]}", (name,)) for part, name in NORMS.items())
    for i in range(c.encoder_layers):
        rows += layer(f"encoder.{i}.", f"model.encoder.layers.{i}.", [*BLOCK, *both])
    for i in range(c.decoder_layers):
        rows += layer(f"decoder.{i}.", f"model.decoder.layers.{i}.", [*BLOCK, *CROSS, *both, across])
    return rows


def output_rows(c: EncoderDecoderConfig) -> list[Row]:
    """The output, where it is not the embedding, and its bias."""
    rows = [] if c.tied else [Row("output.linear.weight", ("lm_head.weight",))]
    return [*rows, Row("output.linear.bias", ("final_logits_bias",), lead=True)] if c.output_bias else rows


def _read(config: Mapping[str, Any], names: AbstractSet[str]) -> EncoderDecoderConfig:
    refuse_theirs("marian", config, NORMS_AFTER)
    c = said(config, DEFAULTS, PAIR_ALIASES)
    shared = c["share_encoder_decoder_embeddings"]
    if shared:
        refuse_theirs("marian", c, {"tie_word_embeddings": True})
    target = None if shared else c["decoder_vocab_size"] or c["vocab_size"]
    return EncoderDecoderConfig(
        **read_pair("marian", c, names), target_vocabulary=target, positions="sinusoidal_halves"
    )


def _write(config: EncoderDecoderConfig) -> dict[str, Any]:
    c = of_kind("marian", config, EncoderDecoderConfig)
    able = {
        "positions": "sinusoidal_halves", "base": 10_000.0, "embedding_norm": False,
        "tied": [c.tied] if c.target_vocabulary else True, "zero_start": [c.target_vocabulary is None and c.zero_start],
    }  # fmt: skip
    return {
        "model_type": "marian", "architectures": ["MarianMTModel"], **write_pair("marian", c, able),
        "decoder_vocab_size": c.target_vocabulary or c.vocabulary, "bos_token_id": None,
        "share_encoder_decoder_embeddings": c.target_vocabulary is None,
    }  # fmt: skip


def _rows(config: EncoderDecoderConfig) -> list[Row]:
    shared = [Row("source_embed.tokens.weight", ("model.shared.weight",))]
    apart = [
        Row("source_embed.tokens.weight", ("model.encoder.embed_tokens.weight",)),
        Row("target_embed.tokens.weight", ("model.decoder.embed_tokens.weight",)),
    ]
    return (apart if config.target_vocabulary else shared) + block_rows(config) + output_rows(config)


def _zero_start(config: EncoderDecoderConfig, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The row of the start as zeros, which tools take for granted, and a bias by which it is never written."""
    if not config.zero_start:
        return {}
    table, bias = tensors["model.shared.weight"].clone(), tensors.get("final_logits_bias")
    bias = table.new_zeros(1, config.vocabulary) if bias is None else bias.clone()
    table[config.bos], bias[0, config.bos] = 0.0, NEVER
    return {"model.shared.weight": table, "final_logits_bias": bias}


SHARED = tuple(
    (f"{name}.weight", "model.shared.weight")
    for name in ("lm_head", "model.encoder.embed_tokens", "model.decoder.embed_tokens")
)
MARIAN = Family(
    "marian", _read, _write, _rows, prefix="model.",
    ignored=(
        r"lm_head\.weight", r"model\.shared\.weight", r"model\.(encoder|decoder)\.embed_(tokens|positions)\.weight"
    ),
    twins=(*SHARED, ("lm_head.weight", "model.decoder.embed_tokens.weight")), besides=_zero_start,
)  # fmt: skip
