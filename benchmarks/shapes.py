"""What is trained in the benchmarks: the shapes of models and batches."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle

import torch
import torch.nn.functional as F
from torch import Tensor

PADDING, START, END = 0, 1, 2
IGNORED = -100
BATCHES = 64  # random ones, in turn: enough that nothing is learnt by heart and gradients stay ordinary numbers


@dataclass(frozen=True)
class GPT:
    """A decoder-only model on full rows: learned positions, pre-norm, exact GELU, feed-forward 4 × width, tied output.

    `dropout` acts on the embedding, the attention weights and the residual branches.
    """

    layers: int
    width: int
    heads: int
    context: int
    rows: int
    vocabulary: int
    dropout: float

    @property
    def parameters(self) -> int:
        block = 12 * self.width**2 + 13 * self.width
        return self.layers * block + (self.vocabulary + self.context + 2) * self.width

    @property
    def tokens(self) -> int:
        return self.rows * self.context

    @property
    def flops(self) -> float:
        """Multiplications and additions of the matrix products; backward takes two for each of forward's."""
        weights = self.layers * 12 * self.width**2 + self.vocabulary * self.width
        looks = self.rows * self.context * (self.context + 1) / 2
        return 3 * (2 * weights * self.tokens + 4 * self.layers * self.width * looks)

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """(ids_BL, labels_BL): each position is to tell the id that follows."""
        random = torch.Generator().manual_seed(1)
        ids_NBL = torch.randint(self.vocabulary, (BATCHES, self.rows, self.context + 1), generator=random)
        return cycle([(ids_BL[:, :-1].contiguous(), ids_BL[:, 1:].contiguous()) for ids_BL in ids_NBL])


@dataclass(frozen=True)
class Pair:
    """An encoder-decoder on ragged pairs: sinusoidal positions, ReLU, one matrix for both embeddings and the output.

    `layers` on each side; `dropout` acts on embeddings, attention weights, feed-forward hidden and residual branches.
    Lengths run evenly from half of `length` to `length`, so that a quarter of the right-padded batch is padding.
    """

    layers: int
    width: int
    heads: int
    hidden: int
    length: int
    rows: int
    vocabulary: int
    dropout: float

    @property
    def lengths_B(self) -> Tensor:
        return torch.linspace(self.length / 2, self.length, self.rows).round().long()

    @property
    def parameters(self) -> int:
        attention, norm = 4 * self.width * (self.width + 1), 2 * self.width
        feedforward = 2 * self.width * self.hidden + self.hidden + self.width
        encoder, decoder = attention + feedforward + 2 * norm, 2 * attention + feedforward + 3 * norm
        return self.layers * (encoder + decoder) + self.vocabulary * self.width

    @property
    def tokens(self) -> int:
        """Real ones, of both sides."""
        return 2 * int(self.lengths_B.sum())

    @property
    def flops(self) -> float:
        """Matrix products over the real tokens only; backward takes two for each of forward's."""
        lengths_B, half = self.lengths_B.double(), self.tokens / 2
        weights = self.layers * (12 * self.width**2 + 4 * self.width * self.hidden) + self.vocabulary * self.width
        looks = float((lengths_B**2 + lengths_B * (lengths_B + 1) / 2).sum())  # encoder, decoder
        looks += half * half / self.rows  # across, where the two lengths have nothing to do with each other
        return 3 * (2 * weights * half + 4 * self.layers * self.width * looks)

    def batches(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """(source_BM, target_BL, labels_BL), padded on the right with PADDING, the labels with IGNORED."""
        return cycle([self._batch(torch.Generator().manual_seed(seed)) for seed in range(BATCHES)])

    def _batch(self, random: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        source_BM, words_BL = torch.randint(3, self.vocabulary, (2, self.rows, self.length), generator=random)
        source_length_B, target_length_B = (self.lengths_B[torch.randperm(self.rows, generator=random)] for _ in "st")
        left_BM = source_length_B[:, None] - torch.arange(self.length)
        left_BL = target_length_B[:, None] - torch.arange(self.length)
        source_BM = source_BM.masked_fill(left_BM <= 0, PADDING)
        target_BL = F.pad(words_BL[:, :-1], (1, 0), value=START).masked_fill(left_BL <= 0, PADDING)
        labels_BL = words_BL.masked_fill(left_BL == 1, END).masked_fill(left_BL <= 0, IGNORED)
        return source_BM, target_BL, labels_BL
