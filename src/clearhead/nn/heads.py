"""Heads: from the last vectors to what is asked for: words, classes, labels."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.nn.cross_entropy import linear_cross_entropy
from clearhead.nn.dropout import Dropout
from clearhead.nn.feedforward import Activation
from clearhead.nn.residual import unchanged
from clearhead.nn.rows import Rows
from clearhead.nn.tables import pick
from clearhead.tap import Tap

__all__ = ["POOLERS", "POOLINGS", "ClassHead", "Pooler", "Unembedding", "WordHead", "first", "last", "maximum", "mean"]


class Unembedding(nn.Module):
    """logits = scale · x Eᵀ + b; E is the embedding itself where the two are tied [press2017]."""

    def __init__(self, width: int, vocabulary: int, *, bias: bool = False, scale: float = 1.0) -> None:
        super().__init__()
        self.linear = nn.Linear(width, vocabulary, bias=bias)
        self.scale = scale
        self.packed: Callable[[Tensor], Tensor] | None = None  # what `nn/layout.py` makes of E for decoding
        self.see_logits = Tap()

    def tie(self, embedding: nn.Embedding) -> "Unembedding":
        """The same with the embedding's own matrix."""
        self.linear.weight = embedding.weight
        return self

    def forward(self, x_BLD: Tensor) -> Tensor:
        x_BLD = x_BLD if self.scale == 1.0 else x_BLD * self.scale
        if self.packed is None or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return self.see_logits(self.linear(x_BLD))
        return self.see_logits(self.packed(x_BLD))

    def loss(self, x_ND: Tensor, target_N: Tensor, smoothing: float = 0.0) -> Tensor:
        """The summed cross-entropy of the targets, without ever holding all logits; targets of −100 do not count."""
        x_ND = x_ND if self.scale == 1.0 else x_ND * self.scale
        return linear_cross_entropy(x_ND, self.linear.weight, self.linear.bias, target_N, smoothing=smoothing)


class WordHead(nn.Module):
    """BERT's head for masked words: dense, activation, norm, then the (tied) embedding and a bias [devlin2019].

    inner   width of the embedding, where that is not the model's (ALBERT)
    """

    def __init__(
        self, width: int, vocabulary: int, activation: Activation, norm: nn.Module, *, inner: int | None = None
    ) -> None:
        super().__init__()
        self.dense = nn.Linear(width, inner or width)
        self.activation = activation
        self.norm = norm
        self.words = Unembedding(inner or width, vocabulary, bias=True)

    def transform(self, x_BLD: Tensor) -> Tensor:
        """What is compared with the embeddings."""
        return self.norm(self.activation.bend(self.dense(x_BLD)))

    def forward(self, x_BLD: Tensor) -> Tensor:
        return self.words(self.transform(x_BLD))


def first(x_BLD: Tensor, rows: Rows) -> Tensor:
    """The vector of the first token, `[CLS]`: a unit that reads the whole."""
    return x_BLD[:, 0]


def mean(x_BLD: Tensor, rows: Rows) -> Tensor:
    """The mean over real positions."""
    real_BL1 = rows.allowed_BM[:, :, None].to(x_BLD)
    return (x_BLD * real_BL1).sum(1) / real_BL1.sum(1).clamp(min=1)


def maximum(x_BLD: Tensor, rows: Rows) -> Tensor:
    """The largest value of each feature over real positions."""
    return x_BLD.masked_fill(~rows.allowed_BM.to(x_BLD.device)[:, :, None], -torch.inf).amax(1)


def last(x_BLD: Tensor, rows: Rows) -> Tensor:
    """The vector of the last real token, which in a causal model has read all."""
    return rows.last(x_BLD)[:, 0]


# name -> (vectors of every position, which are real) -> one vector per row
POOLINGS: dict[str, Callable[[Tensor, Rows], Tensor]] = {
    "first": first,
    "mean": mean,
    "maximum": maximum,
    "last": last,
}


# name -> what becomes of the pooled vector: whether it is projected, and how it then bends
POOLERS: dict[str, tuple[bool, Callable[[Tensor], Tensor]]] = {
    "none": (False, unchanged),
    "tanh": (True, torch.tanh),  # BERT; RoBERTa before its classes
    "relu": (True, F.relu),  # DistilBERT before its classes
    "unit": (False, F.normalize),  # length 1: dot products of such vectors are cosines
}


class Pooler(nn.Module):
    """One vector per row, and what a row of `POOLERS` makes of it."""

    def __init__(self, width: int, pooling: str, pooler: str = "none") -> None:
        super().__init__()
        self.pool = pick(POOLINGS, pooling, "pooling")
        projected, self.bend = pick(POOLERS, pooler, "pooler")
        self.dense = nn.Linear(width, width) if projected else nn.Identity()

    def forward(self, x_BLD: Tensor, rows: Rows) -> Tensor:
        return self.bend(self.dense(self.pool(x_BLD, rows)))


class ClassHead(nn.Module):
    """dropout, then one linear layer to the classes, for a row or for each token."""

    def __init__(self, width: int, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.linear = nn.Linear(width, classes)
        self.see_logits = Tap()

    def forward(self, x: Tensor) -> Tensor:
        return self.see_logits(self.linear(self.dropout(x)))

    def loss(self, x: Tensor, target: Tensor, smoothing: float = 0.0) -> Tensor:
        """The summed cross-entropy of the targets; targets of −100 do not count."""
        logits = self(x).flatten(0, -2)
        return F.cross_entropy(logits, target.flatten(), reduction="sum", label_smoothing=smoothing, ignore_index=-100)
