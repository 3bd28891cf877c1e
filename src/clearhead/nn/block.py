"""The block: attention, cross-attention where there is a context, feed-forward, each in its residual."""

from collections.abc import Callable

from torch import Tensor, nn

from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.cache import LayerCache
from clearhead.nn.feedforward import Layer
from clearhead.nn.first import FirstAsks
from clearhead.nn.masks import EVERYTHING, Mask
from clearhead.nn.residual import Residual

__all__ = ["Block"]


class Block(nn.Module):
    """One layer of an encoder or, with `cross`, of a decoder [vaswani2017 §3.1]; `join` makes the residual of each."""

    def __init__(
        self,
        attention: MultiHeadAttention | FirstAsks,
        feedforward: Layer,
        join: Callable[[], Residual],
        cross: MultiHeadAttention | None = None,
    ) -> None:
        super().__init__()
        self.attention, self.add_attention = attention, join()
        self.cross, self.add_cross = cross, None if cross is None else join()
        self.feedforward, self.add_feedforward = feedforward, None if feedforward is None else join()

    def forward(
        self,
        x_BLD: Tensor,
        *,
        mask: Mask = EVERYTHING,
        cache: LayerCache | None = None,
        context_BMD: Tensor | None = None,
        context_mask: Mask = EVERYTHING,
        context_cache: LayerCache | None = None,
        projected_BLW: Tensor | None = None,
    ) -> tuple[Tensor, LayerCache | None]:
        """The stream after the block; `projected_BLW` is known to a caller that has it more cheaply than attention."""

        def attend(y_BLD: Tensor) -> Tensor:
            nonlocal cache
            if projected_BLW is None:
                y_BLD, cache = self.attention(y_BLD, mask=mask, cache=cache)
            else:
                y_BLD, cache = self.attention(y_BLD, mask=mask, cache=cache, projected_BLW=projected_BLW)
            return y_BLD

        def read(y_BLD: Tensor) -> Tensor:
            y_BLD, _ = self.cross(y_BLD, context_BMD=context_BMD, mask=context_mask, cache=context_cache)  # type: ignore[misc]
            return y_BLD

        x_BLD = self.add_attention(x_BLD, attend)
        if self.add_cross is not None:
            x_BLD = self.add_cross(x_BLD, read)
        if self.add_feedforward is not None:
            x_BLD = self.add_feedforward(x_BLD, self.feedforward)
        return x_BLD, cache

    def flops(self, batch: int, queries: int, keys: int, context: int = 0) -> int:
        """Floating-point operations of one forward pass."""
        cross = 0 if self.cross is None else self.cross.flops(batch, queries, context)
        feedforward = 0 if self.feedforward is None else self.feedforward.flops(batch * queries)
        return self.attention.flops(batch, queries, keys) + cross + feedforward
