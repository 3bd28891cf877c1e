"""BERT [devlin2019] at Hugging Face: the body, masked words, next sentence, classes of texts and of tokens."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from clearhead.convert.family import ACTIVATIONS, Family, class_names, of_kind, ours_of, refuse_theirs, theirs_of
from clearhead.convert.hf_encoder import EncoderNames, model_class, refuse_encoder
from clearhead.convert.mapping import Row
from clearhead.errors import ConfigError
from clearhead.models.encoder_only import EncoderOnlyConfig

__all__ = ["BERT", "BLOCK", "NORM_SPELLINGS", "embeddings", "read_body", "write_body"]

# What their config class takes where a config.json is silent.
DEFAULTS: dict[str, Any] = {
    "vocab_size": 30_522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "classifier_dropout": None,
    "pad_token_id": 0, "tie_word_embeddings": True,
}  # fmt: skip
NORM_SPELLINGS = ((r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias"))

BLOCK = (
    Row("attention.project.qkv", ("attention.self.query", "attention.self.key", "attention.self.value")),
    Row("attention.out", ("attention.output.dense",)),
    Row("add_attention.after", ("attention.output.LayerNorm",)),
    Row("feedforward.widen", ("intermediate.dense",)),
    Row("feedforward.narrow", ("output.dense",)),
    Row("add_feedforward.after", ("output.LayerNorm",)),
)


def embeddings(body: str, *, skip: int = 0) -> tuple[Row, ...]:
    """The tables of BERT's body; `skip` first positions are never used."""
    return (
        Row("embed.tokens", (f"{body}.embeddings.word_embeddings",)),
        Row("embed.place.table", (f"{body}.embeddings.position_embeddings",), skip=skip),
        Row("embed.segments", (f"{body}.embeddings.token_type_embeddings",)),
    )


NAMES = EncoderNames(
    tables=embeddings("bert"),
    modules=(Row("embed.norm", ("bert.embeddings.LayerNorm",)),),
    blocks="bert.encoder.layer.{}.",
    block=BLOCK,
    heads={
        "pooler": (Row("pool.dense", ("bert.pooler.dense",)),),
        "words": (
            Row("word_head.dense", ("cls.predictions.transform.dense",)),
            Row("word_head.norm", ("cls.predictions.transform.LayerNorm",)),
        ),
        # Theirs is 0 for "it follows".
        "next_sentence": (Row("next_head.linear", ("cls.seq_relationship",), flipped=True),),
        "classes": (Row("class_head.linear", ("classifier",)),),
        "labels": (Row("label_head.linear", ("classifier",)),),
    },
    pooler="tanh",
    word_bias="cls.predictions.bias",
)


def read_body(family: str, c: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings of what BERT and some of its kin say in the same words."""
    able = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}
    refuse_theirs(family, c, able)
    return {
        "vocabulary": c["vocab_size"], "width": c["hidden_size"], "heads": c["num_attention_heads"],
        "layers": c["num_hidden_layers"], "hidden": c["intermediate_size"], "length": c["max_position_embeddings"],
        "feedforward": ours_of(family, "hidden_act", c["hidden_act"], ACTIVATIONS), "norm_eps": c["layer_norm_eps"],
        "segments": c["type_vocab_size"], "tied": c["tie_word_embeddings"], "dropout": c["hidden_dropout_prob"],
        "attention_dropout": c["attention_probs_dropout_prob"], "pad": c["pad_token_id"] or 0,
    }  # fmt: skip


def write_body(family: str, c: EncoderOnlyConfig) -> dict[str, Any]:
    """The way back."""
    if not c.segments:
        raise ConfigError(f"{family} has no segments=0, at least 1")
    return {
        "vocab_size": c.vocabulary, "hidden_size": c.width, "num_attention_heads": c.heads,
        "num_hidden_layers": c.layers, "intermediate_size": c.hidden, "max_position_embeddings": c.length,
        "hidden_act": theirs_of(family, "feedforward", c.feedforward, ACTIVATIONS), "layer_norm_eps": c.norm_eps,
        "type_vocab_size": c.segments, "tie_word_embeddings": c.tied, "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": c.attention_dropout, "pad_token_id": c.pad,
        **class_names(c.classes or c.labels),
    }  # fmt: skip


def _read(config: Mapping[str, Any], names: AbstractSet[str]) -> EncoderOnlyConfig:
    c = {**DEFAULTS, **config}
    return EncoderOnlyConfig(
        **read_body("bert", c), **NAMES.heads_in(config, names), head_dropout=c["classifier_dropout"]
    )


def _write(config: EncoderOnlyConfig) -> dict[str, Any]:
    c = of_kind("bert", config, EncoderOnlyConfig)
    refuse_encoder("bert", c, {}, pooler=NAMES.pooler)
    return {
        "model_type": "bert", "architectures": [model_class("bert", "Bert", c)], **write_body("bert", c),
        "classifier_dropout": c.head_dropout,
    }  # fmt: skip


BERT = Family(
    "bert", _read, _write, NAMES.rows, prefix="bert.", spellings=NORM_SPELLINGS,
    ignored=(
        r"bert\.embeddings\.position_ids", r"bert\.pooler\.dense\..*", r"cls\.predictions\.decoder\.(weight|bias)"
    ),
    twins=(
        ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
        ("cls.predictions.decoder.bias", "cls.predictions.bias"),
    ),
)  # fmt: skip
