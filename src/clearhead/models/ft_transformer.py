"""FT-Transformer: a token for each column of a table, and `[CLS]` that reads them all [gorishniy2021 §3.3]."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.nn.account import ParameterTable, parameters_table
from clearhead.nn.attention import MultiHeadAttention, SelfProjection
from clearhead.nn.block import Block
from clearhead.nn.columns import NUMBERS, Categories, ColumnTokens, NumberColumns, WithMissing
from clearhead.nn.feedforward import FEEDFORWARDS, Layer
from clearhead.nn.first import First, FirstAsks
from clearhead.nn.heads import ClassHead
from clearhead.nn.norm import LayerNorm
from clearhead.nn.residual import Residual
from clearhead.nn.stack import Stack
from clearhead.nn.tables import check_rates, check_sizes, pick

__all__ = ["DEPTHS", "Depth", "FTTransformer", "FTTransformerConfig", "of_depth"]


@dataclass(frozen=True)
class FTTransformerConfig:
    """Every size and every choice; the defaults are the paper's.

    numbers      numeric columns
    categories   how many categories each categorical column has
    outputs      logits of classes, or values of a regression
    missing      which of the numeric columns have a token for missing values
    unseen       None, or the share of categories hidden in training, which teaches the token of unseen ones
    embedding    how a number becomes a token: linear, piecewise, periodic
    bins         of piecewise embeddings: how many bins each numeric column has
    frequencies, sigma   of periodic embeddings
    hidden       of the feed-forward layer; width · 4/3, which makes ReGLU as large as ReLU with twice the width
    dropout      on what is added to the stream
    """

    numbers: int = 0
    categories: tuple[int, ...] = ()
    outputs: int = 1
    missing: tuple[int, ...] = ()
    unseen: float | None = None
    embedding: str = "linear"
    bins: tuple[int, ...] = ()
    frequencies: int = 48
    sigma: float = 0.01
    width: int = 192
    heads: int = 8
    layers: int = 3
    hidden: int = 256
    feedforward: str = "reglu"
    norm_eps: float = 1e-5
    dropout: float = 0.0
    attention_dropout: float = 0.2
    hidden_dropout: float = 0.1

    def __post_init__(self) -> None:
        check_sizes(self, "outputs", "frequencies", "width", "heads", "layers", "hidden")
        check_sizes(self, "numbers", least=0)
        check_rates(self, "dropout", "attention_dropout", "hidden_dropout")
        if self.numbers + len(self.categories) == 0:
            raise ConfigError("a table needs at least one column: numbers=0, categories=()")


class Depth(NamedTuple):
    """What the paper's default is at one depth."""

    width: int
    attention_dropout: float
    hidden_dropout: float


# Blocks -> the paper's defaults, as its authors' package has them.
DEPTHS: Mapping[int, Depth] = MappingProxyType(
    {
        1: Depth(96, 0.1, 0.0),
        2: Depth(128, 0.15, 0.05),
        3: Depth(192, 0.2, 0.1),
        4: Depth(256, 0.25, 0.15),
        5: Depth(320, 0.3, 0.2),
        6: Depth(384, 0.35, 0.25),
    }
)


def of_depth(layers: int, config: FTTransformerConfig) -> FTTransformerConfig:
    """The config with the paper's default sizes and rates at that depth."""
    if layers not in DEPTHS:
        raise ConfigError(f"the paper has defaults for {min(DEPTHS)} to {max(DEPTHS)} layers: {layers=}")
    width, attention_dropout, hidden_dropout = DEPTHS[layers]
    return replace(
        config, layers=layers, width=width, hidden=int(width * 4 / 3), attention_dropout=attention_dropout,
        hidden_dropout=hidden_dropout,
    )  # fmt: skip


class FTTransformer(nn.Module):
    """Rows of a table to logits or values: column tokens, Pre-LN blocks, `[CLS]` → norm → ReLU → linear."""

    def __init__(self, config: FTTransformerConfig) -> None:
        super().__init__()
        self.config = c = config

        def norm() -> nn.Module:
            return LayerNorm(c.width, eps=c.norm_eps)

        def attention() -> MultiHeadAttention:
            return MultiHeadAttention(c.width, c.heads, dropout=c.attention_dropout)

        def feedforward() -> Layer:
            return pick(FEEDFORWARDS, c.feedforward, "feedforward")(c.width, c.hidden, c.hidden_dropout, True)

        def block(before: nn.Module | None, *, last: bool) -> Block:
            """Pre-LN, the very first norm left out; of the last block only `[CLS]` is computed."""
            add_attention = Residual(before=before, keep=First() if last else None, dropout=c.dropout)
            add_feedforward = Residual(before=norm(), dropout=c.dropout)
            asking = FirstAsks(attention()) if last else attention()
            return Block(asking, feedforward(), iter([add_attention, add_feedforward]).__next__)

        self.columns = ColumnTokens(
            c.width,
            numbers=self._numbers() if c.numbers else None,
            categories=Categories(c.categories, c.width, unseen=c.unseen) if c.categories else None,
        )
        norms = [None, *(norm() for _ in range(c.layers - 1))]
        self.encoder = Stack([block(before, last=i == c.layers - 1) for i, before in enumerate(norms)], norm=norm())
        self.head = ClassHead(c.width, c.outputs)
        for name, parameter in self.encoder.named_parameters():
            if ".attention." in name and name.endswith("bias"):
                nn.init.zeros_(parameter)  # all else starts as PyTorch's own layers do

    def _numbers(self) -> nn.Module:
        c = self.config
        of = NumberColumns(c.numbers, c.width, c.bins, c.frequencies, c.sigma)
        embed = pick(NUMBERS, c.embedding, "embedding")(of)
        return WithMissing(embed, c.numbers, c.width, c.missing) if c.missing else embed

    def forward(self, number_BC: Tensor, code_BC: Tensor) -> Tensor:
        """Logits of each row; columns of a kind that the table lacks are tensors of width 0."""
        return self.head(self.features(number_BC, code_BC))

    def features(self, number_BC: Tensor, code_BC: Tensor) -> Tensor:
        """What the head reads: a vector for each row, x_BD."""
        qkv = self._first_projection(len(number_BC))
        if qkv is None:
            x_B1D, _ = self.encoder(self.columns(number_BC, code_BC))
        else:
            x_BLD, projected_BLW = self.columns.projected(number_BC, code_BC, qkv)
            x_B1D, _ = self.encoder(x_BLD, projected_BLW=projected_BLW)
        return F.relu(x_B1D[:, 0])

    def _first_projection(self, batch: int) -> nn.Linear | None:
        """The layer above the tokens, with no norm between, where it is less work by `ColumnTokens.projected`.

        Not where somebody watches the tokens, nor where members of an ensemble have theirs side by side.
        """
        attention, columns = self.encoder.layers[0].attention, self.columns
        if not isinstance(attention, MultiHeadAttention) or not isinstance(columns, ColumnTokens):
            return None
        qkv = attention.project.qkv if isinstance(attention.project, SelfProjection) else None
        less = not columns.see_tokens.watched and columns.rows(batch) < batch * self.tokens / 2
        return qkv if less and type(qkv) is nn.Linear else None

    @property
    def tokens(self) -> int:
        """Those of a row: `[CLS]` and one for each column."""
        return 1 + self.config.numbers + len(self.config.categories)

    @property
    def feature_width(self) -> int:
        return self.config.width

    def parameters_table(self, depth: int = 3) -> ParameterTable:
        """What holds how many parameters."""
        return parameters_table(self, depth)

    def flops(self, batch: int) -> int:
        """Floating-point operations of the blocks in one forward pass over `batch` rows."""
        *below, last = self.encoder.layers
        whole = sum(block.flops(batch, self.tokens, self.tokens) for block in below) + last.flops(batch, 1, self.tokens)
        qkv = self._first_projection(batch)
        if qkv is None:
            return whole
        return whole - int(2 * (batch * self.tokens - self.columns.rows(batch)) * qkv.weight.numel())
