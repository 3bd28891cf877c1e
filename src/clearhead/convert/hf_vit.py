"""The vision Transformer [dosovitskiy2021] at Hugging Face.

The names are those of its files; in memory transformers 5 has others, which are read as well.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from clearhead.convert.family import (
    ACTIVATIONS,
    Family,
    class_names,
    classes_of,
    of_kind,
    ours_of,
    refuse_ours,
    refuse_theirs,
    theirs_of,
)
from clearhead.convert.mapping import Row, layer
from clearhead.errors import ConfigError
from clearhead.models.vit import VitConfig

__all__ = ["VIT"]

# What their config class takes where a config.json is silent.
DEFAULTS: dict[str, Any] = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
    "hidden_act": "gelu", "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "layer_norm_eps": 1e-12,
    "image_size": 224, "patch_size": 16, "num_channels": 3, "qkv_bias": True,
}  # fmt: skip

PROJECT = Row("attention.project.qkv", tuple(f"attention.attention.{name}" for name in ("query", "key", "value")))
BLOCK = (
    Row("add_attention.before", ("layernorm_before",)),
    Row("attention.out", ("attention.output.dense",)),
    Row("add_feedforward.before", ("layernorm_after",)),
    Row("feedforward.widen", ("intermediate.dense",)),
    Row("feedforward.narrow", ("output.dense",)),
)


def _read(config: Mapping[str, Any], names: AbstractSet[str]) -> VitConfig:
    c = {**DEFAULTS, **config}
    refuse_theirs("vit", c, {"pooler_act": "tanh", "pooler_output_size": c["hidden_size"]})
    classifies = "classifier.weight" in names  # by what [CLS] is, whether or not the file has a pooler too
    return VitConfig(
        image=_side(c, "image_size"), patch=_side(c, "patch_size"), channels=c["num_channels"],
        classes=classes_of(config) if classifies else 0,
        width=c["hidden_size"], heads=c["num_attention_heads"], layers=c["num_hidden_layers"],
        hidden=c["intermediate_size"], norm_eps=c["layer_norm_eps"],
        feedforward=ours_of("vit", "hidden_act", c["hidden_act"], ACTIVATIONS),
        dropout=c["hidden_dropout_prob"], attention_dropout=c["attention_probs_dropout_prob"],
        biases=(c["qkv_bias"], True, True),
        pooler="tanh" if "vit.pooler.dense.weight" in names and not classifies else "none",
    )  # fmt: skip


def _side(c: Mapping[str, Any], name: str) -> int:
    """Their sizes may be given as height and width."""
    sides = c[name] if isinstance(c[name], list | tuple) else [c[name]]
    if len(set(sides)) > 1:
        raise ConfigError(f"vit with {name}={c[name]!r} cannot be built here, only with squares")
    return int(sides[0])


def _write(config: VitConfig) -> dict[str, Any]:
    c = of_kind("vit", config, VitConfig)
    refuse_ours("vit", c, {
        "positions": "learned", "residual": "pre_norm", "norm": "layer_norm", "score": "scaled_dot",
        "temperature": 1.0, "kv_heads": [None, c.heads], "head_width": [None, c.width // c.heads],
        "pooling": "first" if c.classes else [c.pooling], "pooler": "none" if c.classes else ["none", "tanh"],
        "biases": [(True, True, True), (False, True, True)],
    })  # fmt: skip
    return {
        "model_type": "vit", "architectures": ["ViTForImageClassification" if c.classes else "ViTModel"],
        "hidden_size": c.width, "num_hidden_layers": c.layers, "num_attention_heads": c.heads,
        "intermediate_size": c.hidden, "hidden_act": theirs_of("vit", "feedforward", c.feedforward, ACTIVATIONS),
        "hidden_dropout_prob": c.dropout, "attention_probs_dropout_prob": c.attention_dropout,
        "layer_norm_eps": c.norm_eps, "image_size": c.image, "patch_size": c.patch, "num_channels": c.channels,
        "qkv_bias": c.biases[0], **class_names(c.classes),
    }  # fmt: skip


def _rows(config: VitConfig) -> list[Row]:
    rows = [
        Row("first_1D", ("vit.embeddings.cls_token",), lead=True),
        Row("place.table.weight", ("vit.embeddings.position_embeddings",), lead=True),
    ]
    rows += layer("", "vit.", [Row("patches.project", ("embeddings.patch_embeddings.projection",))])
    for i in range(config.layers):
        places = f"encoder.{i}.", f"vit.encoder.layer.{i}."
        rows += layer(*places, [PROJECT], ends=("weight", "bias") if config.biases[0] else ("weight",))
        rows += layer(*places, BLOCK)
    rows += layer("", "vit.", [Row("encoder.norm", ("layernorm",))])
    if config.pooler == "tanh":
        rows += layer("", "vit.", [Row("pool.dense", ("pooler.dense",))])
    return rows + layer("", "", [Row("class_head.linear", ("classifier",))] if config.classes else [])


VIT = Family(
    "vit", _read, _write, _rows, prefix="vit.", ignored=(r"vit\.pooler\.dense\..*", r"vit\.embeddings\.mask_token"),
    spellings=(
        (r"^vit\.layers\.", "vit.encoder.layer."),
        (r"(layer\.\d+)\.attention\.q_proj\.", r"\1.attention.attention.query."),
        (r"(layer\.\d+)\.attention\.k_proj\.", r"\1.attention.attention.key."),
        (r"(layer\.\d+)\.attention\.v_proj\.", r"\1.attention.attention.value."),
        (r"(layer\.\d+)\.attention\.o_proj\.", r"\1.attention.output.dense."),
        (r"(layer\.\d+)\.mlp\.fc1\.", r"\1.intermediate.dense."),
        (r"(layer\.\d+)\.mlp\.fc2\.", r"\1.output.dense."),
    ),
)  # fmt: skip
