"""DistilBERT [sanh2019] at Hugging Face: BERT without segments and pooler; its head for classes bends by ReLU."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from clearhead.convert.family import ACTIVATIONS, Family, class_names, of_kind, ours_of, said, theirs_of
from clearhead.convert.hf_encoder import EncoderNames, model_class, refuse_encoder
from clearhead.convert.mapping import Row
from clearhead.models.encoder_only import EncoderOnlyConfig

__all__ = ["DISTILBERT"]

# What their config class takes where a config.json is silent.
DEFAULTS: dict[str, Any] = {
    "vocab_size": 30_522, "max_position_embeddings": 512, "n_layers": 6, "n_heads": 12, "dim": 768, "hidden_dim": 3072,
    "dropout": 0.1, "attention_dropout": 0.1, "activation": "gelu", "seq_classif_dropout": 0.2, "pad_token_id": 0,
    "tie_word_embeddings": True,
}  # fmt: skip
# Other names that their config class takes for its own.
ALIASES = {"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"}
NORM_EPS = 1e-12  # always
NAMES = EncoderNames(
    tables=(
        Row("embed.tokens", ("distilbert.embeddings.word_embeddings",)),
        Row("embed.place.table", ("distilbert.embeddings.position_embeddings",)),
    ),
    modules=(Row("embed.norm", ("distilbert.embeddings.LayerNorm",)),),
    blocks="distilbert.transformer.layer.{}.",
    block=(
        Row("attention.project.qkv", ("attention.q_lin", "attention.k_lin", "attention.v_lin")),
        Row("attention.out", ("attention.out_lin",)),
        Row("add_attention.after", ("sa_layer_norm",)),
        Row("feedforward.widen", ("ffn.lin1",)),
        Row("feedforward.narrow", ("ffn.lin2",)),
        Row("add_feedforward.after", ("output_layer_norm",)),
    ),
    heads={
        "pooler": (Row("pool.dense", ("pre_classifier",)),),
        "words": (Row("word_head.dense", ("vocab_transform",)), Row("word_head.norm", ("vocab_layer_norm",))),
        "classes": (Row("class_head.linear", ("classifier",)),),
        "labels": (Row("label_head.linear", ("classifier",)),),
    },
    pooler="relu",
    word_bias="vocab_projector.bias",
)


def _read(config: Mapping[str, Any], names: AbstractSet[str]) -> EncoderOnlyConfig:
    c = said(config, DEFAULTS, ALIASES)
    return EncoderOnlyConfig(
        vocabulary=c["vocab_size"], width=c["dim"], heads=c["n_heads"], layers=c["n_layers"], hidden=c["hidden_dim"],
        length=c["max_position_embeddings"], norm_eps=NORM_EPS, segments=0,
        feedforward=ours_of("distilbert", "activation", c["activation"], ACTIVATIONS), tied=c["tie_word_embeddings"],
        dropout=c["dropout"], attention_dropout=c["attention_dropout"], head_dropout=c["seq_classif_dropout"],
        pad=c["pad_token_id"] or 0, **NAMES.heads_in(config, names),
    )  # fmt: skip


def _write(config: EncoderOnlyConfig) -> dict[str, Any]:
    c = of_kind("distilbert", config, EncoderOnlyConfig)
    refuse_encoder("distilbert", c, {"segments": 0, "norm_eps": NORM_EPS}, pooler=NAMES.pooler)
    architecture = model_class("distilbert", "DistilBert", c, lacking=("ForPreTraining", "ForNextSentencePrediction"))
    return {
        "model_type": "distilbert", "architectures": [architecture],
        "vocab_size": c.vocabulary, "dim": c.width, "n_heads": c.heads, "n_layers": c.layers, "hidden_dim": c.hidden,
        "max_position_embeddings": c.length, "tie_word_embeddings": c.tied,
        "activation": theirs_of("distilbert", "feedforward", c.feedforward, ACTIVATIONS),
        "dropout": c.dropout, "attention_dropout": c.attention_dropout, "pad_token_id": c.pad,
        "seq_classif_dropout": c.dropout if c.head_dropout is None else c.head_dropout,
        **class_names(c.classes or c.labels),
    }  # fmt: skip


DISTILBERT = Family(
    "distilbert", _read, _write, NAMES.rows, prefix="distilbert.",
    ignored=(r"distilbert\.embeddings\.position_ids", r"vocab_projector\.weight"),
    twins=(("vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"),),
)  # fmt: skip
