"""ALBERT [lan2020] at Hugging Face: BERT with a narrow embedding and with blocks that run in rounds."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from clearhead.convert.family import Family, of_kind, refuse_theirs
from clearhead.convert.hf_bert import NORM_SPELLINGS, embeddings, read_body, write_body
from clearhead.convert.hf_encoder import EncoderNames, model_class, refuse_encoder
from clearhead.convert.mapping import Row
from clearhead.errors import ConfigError
from clearhead.models.encoder_only import EncoderOnlyConfig

__all__ = ["ALBERT"]

# What their config class takes where a config.json is silent.
DEFAULTS: dict[str, Any] = {
    "vocab_size": 30_000, "embedding_size": 128, "hidden_size": 4096, "num_hidden_layers": 12, "inner_group_num": 1,
    "num_attention_heads": 64, "intermediate_size": 16_384, "hidden_act": "gelu_new", "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 512, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
    "classifier_dropout_prob": 0.1, "pad_token_id": 0, "tie_word_embeddings": True,
}  # fmt: skip
NAMES = EncoderNames(
    tables=embeddings("albert"),
    modules=(
        Row("embed.norm", ("albert.embeddings.LayerNorm",)),
        Row("widen", ("albert.encoder.embedding_hidden_mapping_in",)),
    ),
    blocks="albert.encoder.albert_layer_groups.0.albert_layers.{}.",
    block=(
        Row("attention.project.qkv", ("attention.query", "attention.key", "attention.value")),
        Row("attention.out", ("attention.dense",)),
        Row("add_attention.after", ("attention.LayerNorm",)),
        Row("feedforward.widen", ("ffn",)),
        Row("feedforward.narrow", ("ffn_output",)),
        Row("add_feedforward.after", ("full_layer_layer_norm",)),
    ),
    heads={
        "pooler": (Row("pool.dense", ("albert.pooler",)),),
        "words": (Row("word_head.dense", ("predictions.dense",)), Row("word_head.norm", ("predictions.LayerNorm",))),
        # Theirs is whether two sentences stand in their order: 0 for "they do".
        "next_sentence": (Row("next_head.linear", ("sop_classifier.classifier",), flipped=True),),
        "classes": (Row("class_head.linear", ("classifier",)),),
        "labels": (Row("label_head.linear", ("classifier",)),),
    },
    pooler="tanh",
    word_bias="predictions.bias",
)


def _read(config: Mapping[str, Any], names: AbstractSet[str]) -> EncoderOnlyConfig:
    refuse_theirs("albert", config, {"num_hidden_groups": 1})
    c = {**DEFAULTS, **config}
    distinct = c["inner_group_num"]
    return EncoderOnlyConfig(
        **{**read_body("albert", c), "layers": distinct * c["num_hidden_layers"]}, **NAMES.heads_in(config, names),
        embedding_width=c["embedding_size"], distinct=distinct, head_dropout=c["classifier_dropout_prob"],
    )  # fmt: skip


def _write(config: EncoderOnlyConfig) -> dict[str, Any]:
    c = of_kind("albert", config, EncoderOnlyConfig)
    own = {"embedding_width": [c.embedding_width], "distinct": [c.distinct]}
    refuse_encoder("albert", c, own, pooler=NAMES.pooler)
    if c.embedding_width is None:
        raise ConfigError("albert has no embedding_width=None: it always projects its embedding")
    distinct = c.distinct or c.layers
    architecture = model_class("albert", "Albert", c, lacking=("ForNextSentencePrediction",))
    return {
        "model_type": "albert", "architectures": [architecture], **write_body("albert", c),
        "embedding_size": c.embedding_width, "num_hidden_layers": c.layers // distinct, "inner_group_num": distinct,
        "num_hidden_groups": 1, "classifier_dropout_prob": c.dropout if c.head_dropout is None else c.head_dropout,
    }  # fmt: skip


ALBERT = Family(
    "albert", _read, _write, NAMES.rows, prefix="albert.", spellings=NORM_SPELLINGS,
    ignored=(
        r"albert\.embeddings\.position_ids", r"albert\.pooler\.(weight|bias)", r"predictions\.decoder\.(weight|bias)"
    ),
    twins=(
        ("predictions.decoder.weight", "albert.embeddings.word_embeddings.weight"),
        ("predictions.decoder.bias", "predictions.bias"),
    ),
)  # fmt: skip
