"""Reading off the first position alone: the last block of a model that needs nothing but `[CLS]`.

Such a block is wired from the usual parts: `Block(FirstAsks(attention), …)`, its attention joined to the stream by a
`Residual` that keeps the `First` position. It computes what the whole block would have at the first position, and
spares the queries, the feed-forward layer and the norms of all others.
"""

from torch import Tensor, nn

from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.cache import LayerCache
from clearhead.nn.masks import EVERYTHING, Mask
from clearhead.nn.positions import Positions

__all__ = ["First", "FirstAsks"]


class First(nn.Module):
    """The first position, x_BLD -> x_B1D."""

    def forward(self, x_BLD: Tensor) -> Tensor:
        return x_BLD[:, :1]


class FirstAsks(nn.Module):
    """Self-attention in which the first position alone asks, and all are asked: x_BLD -> y_B1D."""

    def __init__(self, attention: MultiHeadAttention) -> None:
        super().__init__()
        self.attention = attention.across()

    @property
    def positions(self) -> Positions:
        return self.attention.positions

    def forward(
        self, x_BLD: Tensor, *, mask: Mask = EVERYTHING, cache: LayerCache | None = None
    ) -> tuple[Tensor, LayerCache | None]:
        y_B1D, _ = self.attention(x_BLD[:, :1], context_BMD=x_BLD, mask=mask)
        return y_B1D, cache

    def flops(self, batch: int, queries: int, keys: int) -> int:
        """Floating-point operations of one forward pass, however many positions there are to ask."""
        return self.attention.flops(batch, 1, keys)
