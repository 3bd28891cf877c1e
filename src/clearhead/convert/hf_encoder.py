"""What BERT [devlin2019] and its kin have in common at Hugging Face: names of one shape, and a class for each head."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from clearhead.convert.family import PLAIN, classes_of, refuse_ours
from clearhead.convert.mapping import Row, layer
from clearhead.errors import ConfigError
from clearhead.models.encoder_only import EncoderOnlyConfig

__all__ = ["EncoderNames", "model_class", "refuse_encoder"]

HEADS = ("words", "next_sentence", "classes", "labels")  # as our config has them
# Heads of ours -> the end of the name of their class.
CLASSES: Mapping[tuple[str, ...], str] = {
    (): "Model",
    ("words",): "ForMaskedLM",
    ("words", "next_sentence"): "ForPreTraining",
    ("next_sentence",): "ForNextSentencePrediction",
    ("classes",): "ForSequenceClassification",
    ("labels",): "ForTokenClassification",
}


@dataclass(frozen=True)
class EncoderNames:
    """The modules of an encoder, ours and theirs.

    tables        embeddings: modules with a weight alone
    modules       the others outside the blocks
    blocks        where block i is over there
    block         the modules of each
    heads         the modules of the pooler and of each head; what a head has itself, it takes from nowhere else
    pooler        how the pooler bends
    word_bias     of the word head, whose matrix is the embedding
    """

    tables: tuple[Row, ...]
    modules: tuple[Row, ...]
    blocks: str
    block: tuple[Row, ...]
    heads: Mapping[str, tuple[Row, ...]]
    pooler: str
    word_bias: str

    def rows(self, c: EncoderOnlyConfig) -> list[Row]:
        """The map of a config's tensors."""
        rows = layer("", "", self.tables, ends=("weight",)) + layer("", "", self.modules)
        for i in range(c.distinct or c.layers):
            rows += layer(f"encoder.{i}.", self.blocks.format(i), self.block)
        there = {"pooler": c.pooler == self.pooler, **{head: bool(getattr(c, head)) for head in HEADS}}
        modules = {row.ours: row for head, some in self.heads.items() if there[head] for row in some}
        rows += layer("", "", modules.values())
        return [*rows, Row("word_head.words.linear.bias", (self.word_bias,))] if c.words else rows

    def heads_in(self, config: Mapping[str, Any], names: AbstractSet[str]) -> dict[str, Any]:
        """Our settings of the heads that a file has. One name may be of two: classes of a text, or of each token."""
        modules = {f"{row.theirs[0]}.weight": row.ours for some in self.heads.values() for row in some}
        pooled = any(name in names for name, ours in modules.items() if ours == "pool.dense")
        there = {head for head, some in self.heads.items() if f"{some[-1].theirs[0]}.weight" in names}
        if {"classes", "labels"} <= there:
            there.remove("classes" if _each_token(config, there) else "labels")
        if "words" in there and config.get("tie_word_embeddings") is False:
            raise ConfigError("tie_word_embeddings=False cannot be built here: words are told by the embedding")
        count = classes_of(config)
        return {
            "words": "words" in there, "next_sentence": "next_sentence" in there,
            "classes": count if "classes" in there else 0, "labels": count if "labels" in there else 0,
            "pooler": self.pooler if pooled else "none",
        }  # fmt: skip


def _each_token(config: Mapping[str, Any], there: AbstractSet[str]) -> bool:
    """Whether classes are of each token: by the name of the model's class; without one, where no text is pooled."""
    name = str((config.get("architectures") or [""])[0])
    return name.endswith(CLASSES["labels",]) or (not name.endswith(CLASSES["classes",]) and "pooler" not in there)


def refuse_encoder(family: str, c: EncoderOnlyConfig, able: Mapping[str, Any], *, pooler: str) -> None:
    """Refuse what neither BERT's form nor these further settings, nor this pooler, where one is used, can express."""
    pools = c.classes or c.next_sentence
    refuse_ours(family, c, {
        **PLAIN, "positions": "learned", "residual": "post_norm", "norm": "layer_norm", "score": "scaled_dot",
        "biases": True, "embedding_norm": True, "kv_heads": [None, c.heads], "head_width": [None, c.width // c.heads],
        "embedding_width": None, "distinct": [None, c.layers], "pooler": pooler if pools else ["none", pooler],
        "pooling": "first" if pools else [c.pooling], "tied": True if c.words else [c.tied], **able,
    })  # fmt: skip


def model_class(family: str, stem: str, c: EncoderOnlyConfig, lacking: Sequence[str] = ()) -> str:
    """The class that has these heads; `lacking` are ends of names that this family has no class of."""
    heads = tuple(head for head in HEADS if getattr(c, head))
    if heads not in CLASSES or CLASSES[heads] in lacking:
        raise ConfigError(f"{family} has no model with the heads {' and '.join(heads)}: leave some out of the config")
    return stem + CLASSES[heads]
