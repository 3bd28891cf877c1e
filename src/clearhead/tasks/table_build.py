"""From what a user says of a table model to its config."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from clearhead.data.table_bins import BINS, Edges
from clearhead.data.table_schema import Schema
from clearhead.errors import ConfigError
from clearhead.models.ft_transformer import DEPTHS, FTTransformerConfig, of_depth
from clearhead.models.tab_transformer import TabTransformerConfig
from clearhead.nn.tables import check_rates, check_sizes, pick

__all__ = ["EMBEDDINGS", "MODELS", "Embedding", "ModelKind", "TableConfig", "Wish", "ft_config", "tab_config"]

TableConfig = FTTransformerConfig | TabTransformerConfig


class Embedding(NamedTuple):
    """How numbers become tokens: a row of `nn.columns.NUMBERS`, and where it has bins, a row of `BINS`."""

    name: str
    bins: str | None = None


EMBEDDINGS: dict[str, Embedding] = {
    "linear": Embedding("linear"),
    "quantiles": Embedding("piecewise", "quantiles"),
    "trees": Embedding("piecewise", "trees"),
    "periodic": Embedding("periodic"),
}


@dataclass(frozen=True)
class Wish:
    """What a user says of the model; None leaves it to the paper's defaults."""

    layers: int | None = None
    width: int | None = None
    heads: int | None = None
    dropout: float | None = None
    numbers: str = "linear"
    bins: int = 48
    unseen: float = 0.01

    def __post_init__(self) -> None:
        check_sizes(self, "layers", "width", "heads", "bins")
        check_rates(self, "dropout", "unseen")

    @property
    def embedding(self) -> Embedding:
        return pick(EMBEDDINGS, self.numbers, "embedding of numbers")

    @property
    def edges(self) -> "Callable[..., Edges] | None":
        """What finds the bins of each column, where the embedding has any."""
        return None if self.embedding.bins is None else BINS[self.embedding.bins]


def ft_config(schema: Schema, outputs: int, wish: Wish, bins: tuple[int, ...]) -> FTTransformerConfig:
    """FT-Transformer; at a depth that the paper has no defaults for, a width is to be given."""
    layers = 3 if wish.layers is None else wish.layers
    config = FTTransformerConfig(
        numbers=len(schema.numbers), categories=_sizes(schema), outputs=outputs, missing=_missing(schema),
        unseen=wish.unseen if schema.unseen else None, embedding=wish.embedding.name, bins=bins,
    )  # fmt: skip
    if wish.width is None or layers in DEPTHS:
        config = of_depth(layers, config)
    width = config.width if wish.width is None else wish.width
    config = replace(config, layers=layers, width=width, hidden=max(1, int(width * 4 / 3)))
    if wish.dropout is not None:
        config = replace(config, attention_dropout=wish.dropout, hidden_dropout=wish.dropout)
    return config if wish.heads is None else replace(config, heads=wish.heads)


def tab_config(schema: Schema, outputs: int, wish: Wish, bins: tuple[int, ...]) -> TabTransformerConfig:
    """TabTransformer; its numbers are not embedded at all."""
    if wish.numbers != "linear":
        raise ConfigError(f"TabTransformer takes numbers as they are: numbers={wish.numbers!r} is for kind='ft'")
    usual = TabTransformerConfig(numbers=1)
    width = usual.width if wish.width is None else wish.width
    config = TabTransformerConfig(
        numbers=len(schema.numbers), categories=_sizes(schema), outputs=outputs, missing=_missing(schema),
        unseen=wish.unseen if schema.unseen else None, width=width, hidden=4 * width, shared=width // 8,
        layers=usual.layers if wish.layers is None else wish.layers,
        heads=usual.heads if wish.heads is None else wish.heads,
    )  # fmt: skip
    if wish.dropout is None:
        return config
    rate = wish.dropout
    return replace(config, dropout=rate, attention_dropout=rate, hidden_dropout=rate, mlp_dropout=rate)


@dataclass(frozen=True)
class ModelKind:
    """A row of the table: its config, and the learning rate that it starts from."""

    config: Callable[[Schema, int, Wish, tuple[int, ...]], TableConfig]
    learning_rate: float


MODELS: dict[str, ModelKind] = {"ft": ModelKind(ft_config, 1e-4), "tab": ModelKind(tab_config, 5e-4)}


def _sizes(schema: Schema) -> tuple[int, ...]:
    return tuple(feature.size for feature in schema.categories)


def _missing(schema: Schema) -> tuple[int, ...]:
    return tuple(c for c, feature in enumerate(schema.numbers) if feature.missing)
