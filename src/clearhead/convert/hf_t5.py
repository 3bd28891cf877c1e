"""T5 [raffel2020] at Hugging Face, v1.0 and v1.1: no biases, RMS norms, unscaled scores and bucketed distances.

The first version multiplies the last vectors by width^-½ and has one matrix for both ends; v1.1 does neither. Their
config says both by `tie_word_embeddings`, since transformers 5 the former by `scale_decoder_outputs`; whether there are
two matrices is then seen in the file.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from clearhead.convert.family import (
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
from clearhead.nn.feedforward import ACTIVATIONS

__all__ = ["T5"]

# What their config class takes where a config.json is silent.
DEFAULTS: dict[str, Any] = {
    "vocab_size": 32_128, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_decoder_layers": None,
    "num_heads": 8, "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128, "dropout_rate": 0.1,
    "layer_norm_epsilon": 1e-6, "feed_forward_proj": "relu", "tie_word_embeddings": True, "n_positions": 512,
    "pad_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
# Other names that their config class takes for its own.
ALIASES = {
    "hidden_size": "d_model", "num_attention_heads": "num_heads", "num_hidden_layers": "num_layers", "head_dim": "d_kv",
}  # fmt: skip
FEEDFORWARDS = {
    "relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "silu": "silu", "gated-relu": "reglu",
    "gated-gelu": "geglu_tanh", "gated-silu": "swiglu",
}  # fmt: skip

OWN = (
    Row("attention.project.qkv", ("SelfAttention.q", "SelfAttention.k", "SelfAttention.v")),
    Row("attention.out", ("SelfAttention.o",)),
    Row("add_attention.before", ("layer_norm",)),
)
CROSS = (
    Row("cross.project.q", ("EncDecAttention.q",)),
    Row("cross.project.kv", ("EncDecAttention.k", "EncDecAttention.v")),
    Row("cross.out", ("EncDecAttention.o",)),
    Row("add_cross.before", ("layer_norm",)),
)
NARROW = (Row("feedforward.narrow", ("DenseReluDense.wo",)), Row("add_feedforward.before", ("layer_norm",)))
WIDEN = Row("feedforward.widen", ("DenseReluDense.wi",))
GATED = Row("feedforward.widen", ("DenseReluDense.wi_0", "DenseReluDense.wi_1"))
WEIGHT = ("weight",)  # nothing has a bias


def _read(config: Mapping[str, Any], names: AbstractSet[str]) -> EncoderDecoderConfig:
    c = said(config, DEFAULTS, ALIASES)
    kind = c["feed_forward_proj"]
    feedforward = ours_of("t5", "feed_forward_proj", kind, FEEDFORWARDS)
    # Files may say by what it bends a second time, and they believe that.
    refuse_theirs("t5", c, {"dense_act_fn": "gelu_new" if kind == "gated-gelu" else kind.removeprefix("gated-")})
    scaled = c.get("scale_decoder_outputs", c["tie_word_embeddings"] is not False)
    start = c.get("decoder_start_token_id")
    return EncoderDecoderConfig(
        vocabulary=c["vocab_size"], width=c["d_model"], heads=c["num_heads"], head_width=c["d_kv"], hidden=c["d_ff"],
        encoder_layers=c["num_layers"], decoder_layers=c["num_decoder_layers"] or c["num_layers"],
        positions="t5", buckets=c["relative_attention_num_buckets"], farthest=c["relative_attention_max_distance"],
        residual="pre_norm", norm="rms_norm", norm_eps=c["layer_norm_epsilon"], score="dot", biases=False,
        feedforward=feedforward,
        tied=scaled or "lm_head.weight" not in names, output_scale=max(c["d_model"], 1) ** -0.5 if scaled else 1.0,
        scaled_embedding=False, length=c["n_positions"], init="t5", dropout=c["dropout_rate"],
        attention_dropout=c["dropout_rate"], hidden_dropout=c["dropout_rate"],
        pad=c["pad_token_id"] or 0, bos=(c["pad_token_id"] or 0) if start is None else start,
        eos=first_token(c["eos_token_id"]),
    )  # fmt: skip


def _write(config: EncoderDecoderConfig) -> dict[str, Any]:
    c = of_kind("t5", config, EncoderDecoderConfig)
    refuse_ours("t5", c, {
        **PLAIN, "positions": "t5", "residual": "pre_norm", "norm": "rms_norm", "score": "dot", "biases": False,
        "kv_heads": [None, c.heads], "target_vocabulary": None, "output_bias": False, "scaled_embedding": False,
        "embedding_norm": False, "zero_start": False, "output_scale": [1.0, c.width**-0.5] if c.tied else 1.0,
    })  # fmt: skip
    return {
        "model_type": "t5", "architectures": ["T5ForConditionalGeneration"],
        "vocab_size": c.vocabulary, "d_model": c.width, "d_kv": c.head_width or c.width // c.heads, "d_ff": c.hidden,
        "num_layers": c.encoder_layers, "num_decoder_layers": c.decoder_layers, "num_heads": c.heads,
        "relative_attention_num_buckets": c.buckets, "relative_attention_max_distance": c.farthest,
        "feed_forward_proj": theirs_of("t5", "feedforward", c.feedforward, FEEDFORWARDS), "is_encoder_decoder": True,
        "layer_norm_epsilon": c.norm_eps, "tie_word_embeddings": c.output_scale != 1.0, "dropout_rate": c.dropout,
        "n_positions": c.length, "pad_token_id": c.pad, "eos_token_id": c.eos, "decoder_start_token_id": c.bos,
    }  # fmt: skip


def _rows(config: EncoderDecoderConfig) -> list[Row]:
    feedforward = (GATED if ACTIVATIONS[config.feedforward].gated else WIDEN, *NARROW)
    rows = layer("", "", [Row("source_embed.tokens", ("shared",))], WEIGHT)
    rows += _side("encoder", config.encoder_layers, (OWN, feedforward))
    rows += _side("decoder", config.decoder_layers, (OWN, CROSS, feedforward))
    return rows if config.tied else [*rows, Row("output.linear.weight", ("lm_head.weight",))]


def _side(name: str, layers: int, parts: Sequence[Sequence[Row]]) -> list[Row]:
    """An encoder or a decoder; its layers share the distances of the first one, here and there."""
    distances = f"{name}.block.0.layer.0.SelfAttention.relative_attention_bias"
    table, norm = f"{name}.0.attention.positions.bias.table", f"{name}.norm"
    rows = layer("", "", [Row(table, (distances,)), Row(norm, (f"{name}.final_layer_norm",))], WEIGHT)
    for i in range(layers):
        for j, part in enumerate(parts):
            rows += layer(f"{name}.{i}.", f"{name}.block.{i}.layer.{j}.", part, WEIGHT)
    return rows


T5 = Family(
    "t5", _read, _write, _rows, prefix="",
    ignored=(r"(encoder|decoder)\.embed_tokens\.weight", r"lm_head\.weight",
             # old files: a table of the cross-attention that nobody reads
             r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight"),
    twins=(("lm_head.weight", "shared.weight"), ("encoder.embed_tokens.weight", "shared.weight"),
           ("decoder.embed_tokens.weight", "shared.weight")),
)  # fmt: skip
