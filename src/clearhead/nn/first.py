"""Reading off the first position alone: the last block of a model that needs nothing but `[CLS]`.

Such a block is wired from the usual parts: `Block(FirstAsks(attention), …)`, its attention joined to the stream by a
`Residual` that keeps the `First` position. It computes what the whole block would have at the first position, and
spares the queries, the feed-forward layer and the norms of all others.
"""

from typing import Any

from torch import Tensor, nn

from clearhead.nn.attention import CrossProjection, MultiHeadAttention
from clearhead.nn.cache import LayerCache
from clearhead.nn.masks import EVERYTHING, Mask
from clearhead.nn.members import Linears
from clearhead.nn.positions import Positions
from clearhead.nn.scores import Dot
from clearhead.tap import Tap

__all__ = ["First", "FirstAsks"]


class First(nn.Module):
    """The first position, x_BLD -> x_B1D."""

    def forward(self, x_BLD: Tensor) -> Tensor:
        return x_BLD[:, :1]


class FirstAsks(nn.Module):
    """Self-attention in which the first position alone asks, and all are asked: x_BLD -> y_B1D.

    A single query need not wait for the keys and values of every position. The matrices go to its side instead:

        q · (W^K x_m + b^K)     = (W^Kᵀ q) · x_m + q · b^K        the last term is alike for all m: softmax ignores it
        Σ_m w_m (W^V x_m + b^V) = W^V (Σ_m w_m x_m) + b^V Σ_m w_m

    for each head, which takes D / H times fewer operations on the positions. While somebody watches the attention, it
    goes the usual way.
    """

    def __init__(self, attention: MultiHeadAttention) -> None:
        super().__init__()
        self.attention = attention.across()

    @property
    def positions(self) -> Positions:
        return self.attention.positions

    def forward(
        self, x_BLD: Tensor, *, mask: Mask = EVERYTHING, cache: LayerCache | None = None
    ) -> tuple[Tensor, LayerCache | None]:
        if mask is EVERYTHING and self._short_way():
            return self._read(x_BLD), cache
        y_B1D, _ = self.attention(x_BLD[:, :1], context_BMD=x_BLD, mask=mask)
        return y_B1D, cache

    def flops(self, batch: int, queries: int, keys: int) -> int:
        """Floating-point operations of one forward pass, however many positions there are to ask."""
        a = self.attention
        if not self._short_way():
            return a.flops(batch, 1, keys)
        return 2 * batch * a.width * a.heads * (4 * a.head_width + 2 * keys)

    def _short_way(self) -> bool:
        """Whether nothing but matrices stands between the positions and the scores, and nobody watches."""
        a = self.attention
        return (
            all(type(linear) in (nn.Linear, Linears) for linear in self._matrices())
            and isinstance(a.score, Dot)
            and a.kv_heads == a.heads
            and a.memory is a.positions.rotate is a.positions.bias is a.positions.value is None
            and not any(tap.watched for tap in vars(a).values() if isinstance(tap, Tap))
        )

    def _matrices(self) -> tuple[nn.Module, Any]:
        """W^Q, and W^K stacked on W^V."""
        project = self.attention.project
        assert isinstance(project, CrossProjection)
        return project.q, project.kv

    def _read(self, x_BMD: Tensor) -> Tensor:
        """What the first position reads; S members of an ensemble may stand side by side (`nn/members.py`), B = S · N.

        In between, a member's head is the batch of products with its matrices, and a row that of products with x.
        """
        a, (q, kv) = self.attention, self._matrices()
        B, D, H, K = len(x_BMD), a.width, a.heads, a.head_width
        key_SHKD, value_SHKD = kv.weight.view(-1, 2, H, K, D).unbind(1)
        S = len(key_SHKD)

        q_SHNK = q(x_BMD[:, 0]).view(S, -1, H, K).transpose(1, 2)
        ask_SHND = (q_SHNK * a.score.scale).flatten(0, 1).bmm(key_SHKD.flatten(0, 1)).unflatten(0, (S, H))
        ask_BHD = ask_SHND.transpose(1, 2).flatten(0, 1)
        scores_BMH = x_BMD.bmm(ask_BHD.transpose(1, 2))  # in this order its derivative by x is laid out as x is
        weights_BHM = a.dropout(scores_BMH.softmax(1).transpose(1, 2).contiguous())
        mix_SHND = weights_BHM.bmm(x_BMD).view(S, -1, H, D).transpose(1, 2)
        y_SHNK = mix_SHND.flatten(0, 1).bmm(value_SHKD.flatten(0, 1).transpose(1, 2)).unflatten(0, (S, H))
        y_SNHK = y_SHNK.transpose(1, 2)
        if kv.bias is not None:
            value_S1HK = kv.bias.view(S, 1, 2, H, K)[:, :, 1]
            y_SNHK = y_SNHK + value_S1HK * weights_BHM.sum(2).view(S, -1, H, 1)
        y_B1D: Tensor = a.out(y_SNHK.reshape(B, 1, H * K))
        return y_B1D
