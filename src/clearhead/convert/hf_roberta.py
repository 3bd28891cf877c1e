"""RoBERTa [liu2019] at Hugging Face: BERT whose positions begin behind the padding token's, and whose heads differ."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from clearhead.convert.family import Family, of_kind, refuse_ours, refuse_theirs
from clearhead.convert.hf_bert import BLOCK, NORM_SPELLINGS, embeddings, read_body, write_body
from clearhead.convert.hf_encoder import EncoderNames, model_class, refuse_encoder
from clearhead.convert.mapping import Row
from clearhead.models.encoder_only import EncoderOnlyConfig

__all__ = ["ROBERTA"]

# What their config class takes where a config.json is silent.
DEFAULTS: dict[str, Any] = {
    "vocab_size": 50_265, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "classifier_dropout": None,
    "pad_token_id": 1, "tie_word_embeddings": True,
}  # fmt: skip
NAMES = EncoderNames(
    tables=embeddings("roberta"),
    modules=(Row("embed.norm", ("roberta.embeddings.LayerNorm",)),),
    blocks="roberta.encoder.layer.{}.",
    block=BLOCK,
    heads={
        "pooler": (Row("pool.dense", ("roberta.pooler.dense",)),),
        "words": (Row("word_head.dense", ("lm_head.dense",)), Row("word_head.norm", ("lm_head.layer_norm",))),
        "classes": (Row("pool.dense", ("classifier.dense",)), Row("class_head.linear", ("classifier.out_proj",))),
        "labels": (Row("label_head.linear", ("classifier",)),),
    },
    pooler="tanh",
    word_bias="lm_head.bias",
)


def _read(config: Mapping[str, Any], names: AbstractSet[str]) -> EncoderOnlyConfig:
    c = {**DEFAULTS, **config}
    heads = NAMES.heads_in(config, names)
    if heads["words"]:  # their word head bends by GELU whatever the blocks do
        refuse_theirs("roberta", c, {"hidden_act": "gelu"})
    body = read_body("roberta", c)
    unused = body["pad"] + 1
    return EncoderOnlyConfig(
        **{**body, "length": body["length"] - unused}, **heads, head_dropout=c["classifier_dropout"]
    )


def _write(config: EncoderOnlyConfig) -> dict[str, Any]:
    c = of_kind("roberta", config, EncoderOnlyConfig)
    refuse_encoder("roberta", c, {}, pooler=NAMES.pooler)
    if c.words:
        refuse_ours("roberta", c, {"feedforward": "gelu"})
    architecture = model_class("roberta", "Roberta", c, lacking=("ForPreTraining", "ForNextSentencePrediction"))
    return {
        "model_type": "roberta", "architectures": [architecture], **write_body("roberta", c),
        "max_position_embeddings": c.length + c.pad + 1, "classifier_dropout": c.head_dropout,
    }  # fmt: skip


def _rows(config: EncoderOnlyConfig) -> list[Row]:
    return replace(NAMES, tables=embeddings("roberta", skip=config.pad + 1)).rows(config)


ROBERTA = Family(
    "roberta", _read, _write, _rows, prefix="roberta.", spellings=NORM_SPELLINGS,
    ignored=(
        r"roberta\.embeddings\.position_ids", r"roberta\.pooler\.dense\..*", r"lm_head\.decoder\.(weight|bias)"
    ),
    twins=(
        ("lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"),
        ("lm_head.decoder.bias", "lm_head.bias"),
    ),
)  # fmt: skip
