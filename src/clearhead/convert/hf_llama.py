"""Llama [touvron2023] at Hugging Face, and its nearest kin: Mistral (a window) and Qwen2 (biases on q, k, v)."""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from clearhead.convert.family import PLAIN, Family, first_token, of_kind, ours_of, refuse_ours, refuse_theirs, theirs_of
from clearhead.convert.mapping import Row, layer
from clearhead.errors import ConfigError
from clearhead.models.decoder_only import DecoderOnlyConfig

__all__ = ["LLAMA", "MISTRAL", "QWEN2"]

# What their config class takes where a config.json is silent.
DEFAULTS: dict[str, Any] = {
    "vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": None, "head_dim": None, "hidden_act": "silu",
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "rope_theta": 10_000.0, "attention_dropout": 0.0,
    "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None,
}  # fmt: skip
GATED = {
    "silu": "swiglu", "swish": "swiglu", "gelu": "geglu", "gelu_new": "geglu_tanh", "gelu_pytorch_tanh": "geglu_tanh",
    "relu": "reglu",
}  # fmt: skip

PROJECT = Row("attention.project.qkv", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"))
OUT = Row("attention.out", ("self_attn.o_proj",))
FEEDFORWARD = (
    Row("feedforward.widen", ("mlp.gate_proj", "mlp.up_proj")),
    Row("feedforward.narrow", ("mlp.down_proj",)),
)
NORMS = (
    Row("add_attention.before", ("input_layernorm",)),
    Row("add_feedforward.before", ("post_attention_layernorm",)),
)


@dataclass(frozen=True)
class _Kin:
    """In what the members of the family differ.

    defaults  of its config class, where they are not Llama's
    biases    of q, k, v; of the output; of the feed-forward layer. None where the config says it
    window    what a config.json says of a window; None where there can be none
    """

    name: str
    model: str
    defaults: Mapping[str, Any]
    biases: tuple[bool, bool, bool] | None = None
    window: Callable[[int | None], dict[str, Any]] | None = None


def _read(kin: _Kin, config: Mapping[str, Any], names: AbstractSet[str]) -> DecoderOnlyConfig:
    c = {**DEFAULTS, **kin.defaults, **config}
    return DecoderOnlyConfig(
        vocabulary=c["vocab_size"], width=c["hidden_size"], heads=c["num_attention_heads"],
        kv_heads=_unless(c["num_key_value_heads"], c["num_attention_heads"]),
        head_width=_unless(c["head_dim"], c["hidden_size"] // max(c["num_attention_heads"], 1)),
        layers=c["num_hidden_layers"], hidden=c["intermediate_size"], length=c["max_position_embeddings"],
        positions="rotary", **_read_rotary(c), window=_read_window(kin, c), norm="rms_norm", norm_eps=c["rms_norm_eps"],
        feedforward=ours_of(kin.name, "hidden_act", c["hidden_act"], GATED),
        biases=kin.biases or (c["attention_bias"], c["attention_bias"], c["mlp_bias"]),
        dropout=0.0, attention_dropout=c["attention_dropout"], init="normal", tied=c["tie_word_embeddings"],
        bos=c["bos_token_id"], eos=first_token(c["eos_token_id"]), pad=c["pad_token_id"],
    )  # fmt: skip


def _unless(size: int | None, usual: int) -> int | None:
    """Ours says nothing of what is usual; their files may."""
    return None if size == usual else size


def _read_rotary(c: Mapping[str, Any]) -> dict[str, Any]:
    """The base of rotary positions and their stretch: two settings in older files, one since transformers 5."""
    rope = c.get("rope_scaling") or c.get("rope_parameters") or {}
    refuse_theirs("a rotary position", {**c, **rope}, {"partial_rotary_factor": 1.0})
    ours: dict[str, Any] = {"base": float(rope.get("rope_theta", c["rope_theta"]))}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "linear", "llama3"):
        raise ConfigError(f"rotary positions of type {kind!r} cannot be built here, only default, linear and llama3")
    if kind != "default":
        ours["rotary_factor"] = float(rope["factor"])
    if kind == "llama3":
        ours["rotary_length"] = rope["original_max_position_embeddings"]
        ours["rotary_bounds"] = (float(rope["low_freq_factor"]), float(rope["high_freq_factor"]))
    return ours


def _read_window(kin: _Kin, c: Mapping[str, Any]) -> int | None:
    """How far back a position sees, in all layers alike."""
    if kin.window is None or c["sliding_window"] is None or not c.get("use_sliding_window", True):
        return None
    first, layers = c.get("max_window_layers", 0), c["num_hidden_layers"]  # from the first on, layers have the window
    types = c.get("layer_types")
    windowed = [kind != "full_attention" for kind in types[:layers]] if types else [first <= 0, first < layers]
    if any(windowed) and not all(windowed):
        said = f"max_window_layers={first}, layer_types={types}"
        raise ConfigError(f"{kin.name} with a window in some layers alone cannot be built here: {said}")
    return int(c["sliding_window"]) if any(windowed) else None


def _write(kin: _Kin, config: DecoderOnlyConfig) -> dict[str, Any]:
    c = of_kind(kin.name, config, DecoderOnlyConfig)
    refuse_ours(kin.name, c, {
        **PLAIN, "positions": "rotary", "residual": "pre_norm", "norm": "rms_norm", "score": "scaled_dot",
        "scaled_embedding": False, "window": [c.window if kin.window else None],
        "biases": [kin.biases] if kin.biases else [(a, a, b) for a in (False, True) for b in (False, True)],
    })  # fmt: skip
    if c.width % c.heads:
        raise ConfigError(f"{kin.name} has no width that does not divide into heads: {c.width=}, {c.heads=}")
    return {
        "model_type": kin.name, "architectures": [kin.model],
        "vocab_size": c.vocabulary, "hidden_size": c.width, "intermediate_size": c.hidden,
        "num_hidden_layers": c.layers, "num_attention_heads": c.heads, "num_key_value_heads": c.kv_heads or c.heads,
        **({"head_dim": c.head_width} if c.head_width else {}),
        "hidden_act": theirs_of(kin.name, "feedforward", c.feedforward, GATED), "rms_norm_eps": c.norm_eps,
        "max_position_embeddings": c.length, "rope_theta": c.base, "rope_scaling": _write_rotary(c),
        **(kin.window(c.window) if kin.window else {}),
        **({} if kin.biases else {"attention_bias": c.biases[0], "mlp_bias": c.biases[2]}),
        "attention_dropout": c.attention_dropout, "tie_word_embeddings": c.tied,
        "bos_token_id": c.bos, "eos_token_id": c.eos, "pad_token_id": c.pad,
    }  # fmt: skip


def _write_rotary(c: DecoderOnlyConfig) -> dict[str, Any] | None:
    """In the older form, which all versions and other tools understand."""
    if c.rotary_length is None:
        return None if c.rotary_factor == 1.0 else {"rope_type": "linear", "factor": c.rotary_factor}
    low, high = c.rotary_bounds
    return {
        "rope_type": "llama3", "factor": c.rotary_factor, "low_freq_factor": low, "high_freq_factor": high,
        "original_max_position_embeddings": c.rotary_length,
    }  # fmt: skip


def _rows(config: DecoderOnlyConfig) -> list[Row]:
    c = config
    each = c.head_width or c.width // c.heads
    kv = (c.kv_heads or c.heads) * each
    modules = ([replace(PROJECT, sizes=(c.heads * each, kv, kv))], [OUT], FEEDFORWARD)
    rows = [Row("embed.tokens.weight", ("model.embed_tokens.weight",))]
    for i in range(c.layers):
        places = f"decoder.{i}.", f"model.layers.{i}."
        for some, bias in zip(modules, c.biases, strict=True):
            rows += layer(*places, some, ends=("weight", "bias") if bias else ("weight",))
        rows += layer(*places, NORMS, ends=("weight",))
    rows.append(Row("decoder.norm.weight", ("model.norm.weight",)))
    return rows if c.tied else [*rows, Row("output.linear.weight", ("lm_head.weight",))]


def _family(kin: _Kin) -> Family:
    ignored = (r"lm_head\.weight", r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
    return Family(
        kin.name, partial(_read, kin), partial(_write, kin), _rows, prefix="model.", ignored=ignored,
        twins=(("lm_head.weight", "model.embed_tokens.weight"),),
    )  # fmt: skip


LLAMA = _family(_Kin("llama", "LlamaForCausalLM", {}))
MISTRAL = _family(
    _Kin(
        "mistral", "MistralForCausalLM",
        {"intermediate_size": 14_336, "num_key_value_heads": 8, "max_position_embeddings": 131_072,
         "sliding_window": 4096},
        biases=(False, False, False), window=lambda size: {"sliding_window": size},
    )
)  # fmt: skip
QWEN2 = _family(
    _Kin(
        "qwen2", "Qwen2ForCausalLM",
        {"vocab_size": 151_936, "intermediate_size": 22_016, "num_key_value_heads": 32,
         "max_position_embeddings": 32_768, "use_sliding_window": False, "sliding_window": 4096,
         "max_window_layers": 28, "bos_token_id": None, "eos_token_id": None},
        biases=(True, False, False),
        window=lambda size: {"use_sliding_window": size is not None, "sliding_window": size, "max_window_layers": 0},
    )
)  # fmt: skip
