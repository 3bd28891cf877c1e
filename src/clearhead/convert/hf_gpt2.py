"""GPT-2 [radford2019] at Hugging Face. Their Conv1D keeps matrices as (inputs, outputs), and q, k, v stacked."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

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
from clearhead.models.decoder_only import DecoderOnlyConfig

__all__ = ["GPT2"]

# What their config class takes where a config.json is silent.
DEFAULTS: dict[str, Any] = {
    "vocab_size": 50_257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": None,
    "activation_function": "gelu_new", "resid_pdrop": 0.1, "attn_pdrop": 0.1, "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True, "tie_word_embeddings": True,
    "bos_token_id": 50_256, "eos_token_id": 50_256, "pad_token_id": None,
}  # fmt: skip
# Other names that their config class takes for its own.
ALIASES = {
    "hidden_size": "n_embd", "max_position_embeddings": "n_positions", "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}  # fmt: skip
SCORES = {True: "scaled_dot", False: "dot"}

ENDS = (Row("embed.tokens", ("wte",)), Row("embed.place.table", ("wpe",)))
BLOCK = (
    Row("attention.project.qkv", ("attn.c_attn",), transposed=True),
    Row("attention.out", ("attn.c_proj",), transposed=True),
    Row("add_attention.before", ("ln_1",)),
    Row("feedforward.widen", ("mlp.c_fc",), transposed=True),
    Row("feedforward.narrow", ("mlp.c_proj",), transposed=True),
    Row("add_feedforward.before", ("ln_2",)),
)


def _read(config: Mapping[str, Any], names: AbstractSet[str]) -> DecoderOnlyConfig:
    refuse_theirs("gpt2", config, {"scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False})
    c = said(config, DEFAULTS, ALIASES)
    return DecoderOnlyConfig(
        vocabulary=c["vocab_size"], width=c["n_embd"], heads=c["n_head"], layers=c["n_layer"],
        hidden=c["n_inner"] or 4 * c["n_embd"], length=c["n_positions"], norm_eps=c["layer_norm_epsilon"],
        feedforward=ours_of("gpt2", "activation_function", c["activation_function"], ACTIVATIONS),
        score=ours_of("gpt2", "scale_attn_weights", c["scale_attn_weights"], SCORES),
        dropout=c["resid_pdrop"], attention_dropout=c["attn_pdrop"], tied=c["tie_word_embeddings"],
        bos=c["bos_token_id"], eos=first_token(c["eos_token_id"]), pad=c["pad_token_id"],
    )  # fmt: skip


def _write(config: DecoderOnlyConfig) -> dict[str, Any]:
    c = of_kind("gpt2", config, DecoderOnlyConfig)
    refuse_ours("gpt2", c, {
        **PLAIN, "positions": "learned", "residual": "pre_norm", "norm": "layer_norm", "kv_heads": [None, c.heads],
        "head_width": [None, c.width // c.heads], "window": None, "biases": (True, True, True),
        "scaled_embedding": False,
    })  # fmt: skip
    return {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
        "vocab_size": c.vocabulary, "n_positions": c.length, "n_embd": c.width, "n_layer": c.layers, "n_head": c.heads,
        "n_inner": c.hidden, "activation_function": theirs_of("gpt2", "feedforward", c.feedforward, ACTIVATIONS),
        "scale_attn_weights": theirs_of("gpt2", "score", c.score, SCORES), "layer_norm_epsilon": c.norm_eps,
        "resid_pdrop": c.dropout, "embd_pdrop": c.dropout, "attn_pdrop": c.attention_dropout,
        "tie_word_embeddings": c.tied, "bos_token_id": c.bos, "eos_token_id": c.eos, "pad_token_id": c.pad,
    }  # fmt: skip


def _rows(config: DecoderOnlyConfig) -> list[Row]:
    rows = layer("", "transformer.", ENDS, ends=("weight",))
    for i in range(config.layers):
        rows += layer(f"decoder.{i}.", f"transformer.h.{i}.", BLOCK)
    rows += layer("", "transformer.", [Row("decoder.norm", ("ln_f",))])
    return rows if config.tied else [*rows, Row("output.linear.weight", ("lm_head.weight",))]


GPT2 = Family(
    "gpt2", _read, _write, _rows, prefix="transformer.",
    ignored=(r"lm_head\.weight", r"transformer\.h\.\d+\.attn\.(bias|masked_bias)"),
    twins=(("lm_head.weight", "transformer.wte.weight"),),
)  # fmt: skip
