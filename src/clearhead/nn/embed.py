"""Embeddings: from what is given (tokens, patches, points) to vectors of the model's width."""

import torch
from torch import Tensor, nn

from clearhead.errors import ShapeError
from clearhead.nn.dropout import Dropout
from clearhead.nn.norm import fix_norm
from clearhead.nn.positions import Positions
from clearhead.tap import Tap

__all__ = ["PatchEmbedding", "PointEmbedding", "TokenEmbedding"]


class TokenEmbedding(nn.Module):
    """dropout(norm(scale · E[token] + S[segment] + position)): a row of a table for each token.

    scale       √D where the paper multiplies by it [vaswani2017 §3.4], otherwise 1
    positions   the scheme whose `embed` slot is used here
    segments    how many kinds of segments there are (BERT has two), 0 for none
    norm        applied to the sum (BERT, BART), the identity otherwise
    fixed       FixNorm: every row brought to this length [nguyen2019]

    `blank` may be set to a token whose vector is then zero, whatever the table says (Marian's start).
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        *,
        scale: float = 1.0,
        positions: Positions | None = None,
        segments: int = 0,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
        fixed: float | None = None,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.segments = nn.Embedding(segments, width) if segments else None
        self.place = (Positions() if positions is None else positions).embed
        self.norm = nn.Identity() if norm is None else norm
        self.dropout = Dropout(dropout)
        self.scale, self.fixed = scale, fixed
        self.blank: int | None = None
        self.see_tokens, self.see_placed, self.see_sum = Tap(), Tap(), Tap()

    def forward(self, token_BL: Tensor, position_BL: Tensor, segment_BL: Tensor | None = None) -> Tensor:
        x_BLD: Tensor = self.tokens(token_BL)
        if self.fixed is not None:
            x_BLD = fix_norm(x_BLD, self.fixed)
        if self.blank is not None:
            x_BLD = x_BLD.masked_fill((token_BL == self.blank)[..., None], 0.0)
        x_BLD = self.see_tokens(x_BLD if self.scale == 1.0 else x_BLD * self.scale)
        if self.segments is not None:
            x_BLD = x_BLD + self.segments(torch.zeros_like(token_BL) if segment_BL is None else segment_BL)
        placed_BLD = self.see_placed(self.place(x_BLD, position_BL))
        return self.see_sum(self.dropout(self.norm(placed_BLD)))


class PatchEmbedding(nn.Module):
    """An image as a sequence: each patch flattened and projected, which is a strided convolution [dosovitskiy2021]."""

    def __init__(self, channels: int, patch: int, width: int) -> None:
        super().__init__()
        self.patch = patch
        self.project = nn.Conv2d(channels, width, kernel_size=patch, stride=patch)

    def forward(self, image_BCLM: Tensor) -> Tensor:
        """(B, channels, height, width) to one row per patch, line by line."""
        height, width = image_BCLM.shape[-2:]
        if height % self.patch or width % self.patch:
            raise ShapeError(f"an image must divide into patches: {height=}, {width=}, patch={self.patch}")
        return self.project(image_BCLM).flatten(2).transpose(1, 2)


class PointEmbedding(nn.Module):
    """A cloud of points as a set: each point's features projected, with no position, so that no order exists."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(features, width)

    def forward(self, point_BLW: Tensor) -> Tensor:
        return self.project(point_BLW)
