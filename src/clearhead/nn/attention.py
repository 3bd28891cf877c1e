"""Attention: a soft dictionary, asked by every position at once [vaswani2017 §3.2].

    q = x W^Q    k = c W^K    v = c W^V          c is x itself, or the context of cross-attention
    w = softmax(score(q, k) + position terms, −∞ where the mask forbids)
    y = concat_h(w_h v_h) W^O

While nobody watches, the fused kernel runs; while somebody watches a score or a weight, the explicit six steps do, and
a test holds the two equal for every row of every table.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from clearhead.errors import ShapeError
from clearhead.nn.cache import LayerCache
from clearhead.nn.cut import cut_heads
from clearhead.nn.dropout import Dropout
from clearhead.nn.kernels import attend, causal_mask, masked, safe_softmax
from clearhead.nn.masks import EVERYTHING, Mask
from clearhead.nn.memory import PersistentMemory
from clearhead.nn.positions import Positions
from clearhead.nn.rows import Rows
from clearhead.nn.scores import Dot, Score
from clearhead.tap import Tap

__all__ = [
    "Biases",
    "CrossProjection",
    "MultiHeadAttention",
    "PartialBias",
    "SelfProjection",
    "basic_attention",
    "soft_dictionary",
]


def basic_attention(x_BLD: Tensor) -> Tensor:
    """Attention with no parameters: y_i = Σ_j w_ij x_j, w = softmax(X Xᵀ) by rows."""
    return safe_softmax(x_BLD @ x_BLD.transpose(-1, -2)) @ x_BLD


def soft_dictionary(query_LK: Tensor, keys_MK: Tensor, values_MW: Tensor, temperature: float = 1.0) -> Tensor:
    """Each query's value: all values, weighed by how well their keys fit; at low temperature, the best one's."""
    return safe_softmax(query_LK @ keys_MK.transpose(-1, -2) / temperature) @ values_MW


class Biases(NamedTuple):
    """Which of the four projections have a bias (Qwen2 has all but the last, Llama none)."""

    q: bool = True
    k: bool = True
    v: bool = True
    out: bool = True


ALL_BIASES = Biases()


class MultiHeadAttention(nn.Module):
    """`heads` attentions side by side, each on its own projection of the input; self- or cross-attention.

    head_width    width of one head; width / heads unless said otherwise (T5, pruned heads)
    kv_heads      heads of keys and values: as many as `heads`, fewer (grouped), or 1 (multi-query)
    score         how a key answers a query; the scaled dot product unless said otherwise

    `across(context_width)` makes it cross-attention, `remembering(slots)` gives it persistent memory.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        head_width: int | None = None,
        kv_heads: int | None = None,
        score: Score | None = None,
        positions: Positions | None = None,
        dropout: float = 0.0,
        biases: Biases = ALL_BIASES,
    ) -> None:
        super().__init__()
        if head_width is None and (heads < 1 or width % heads):
            raise ShapeError(f"width must divide into heads: {width=}, {heads=}")
        self.width, self.heads = width, heads
        self.head_width = width // heads if head_width is None else head_width
        self.kv_heads = heads if kv_heads is None else kv_heads
        if self.kv_heads < 1 or heads % self.kv_heads:
            raise ShapeError(f"heads must divide into key-value heads: {heads=}, {kv_heads=}")
        self.biases = biases
        self.project: SelfProjection | CrossProjection = SelfProjection(width, self.sizes, biases)
        self.memory: PersistentMemory | None = None
        self.score = Dot(self.head_width**-0.5) if score is None else score
        self.positions = Positions() if positions is None else positions
        self.dropout = Dropout(dropout)
        self.out = nn.Linear(heads * self.head_width, width, bias=biases.out)
        self.see_q, self.see_k, self.see_v = Tap(), Tap(), Tap()
        self.see_scores, self.see_scaled, self.see_bias = Tap(), Tap(), Tap()
        self.see_masked, self.see_weights = Tap(), Tap()
        self.see_heads, self.see_output = Tap(), Tap()

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Output widths of W^Q, W^K and W^V."""
        return self.heads * self.head_width, self.kv_heads * self.head_width, self.kv_heads * self.head_width

    def across(self, context_width: int | None = None) -> "MultiHeadAttention":
        """The same as cross-attention: keys and values come from a context of that width."""
        self.project = CrossProjection(self.width, context_width or self.width, self.sizes, self.biases)
        return self

    def remembering(self, slots: int) -> "MultiHeadAttention":
        """The same with `slots` learned keys and values beside those of the input [sukhbaatar2019]."""
        self.memory = PersistentMemory(self.kv_heads, self.head_width, slots)
        return self

    def forward(
        self,
        x_BLD: Tensor,
        *,
        context_BMD: Tensor | None = None,
        mask: Mask = EVERYTHING,
        cache: LayerCache | None = None,
        projected_BLW: Tensor | None = None,
    ) -> tuple[Tensor, LayerCache | None]:
        """y_BLD, and the cache with what was read in it.

        Cross-attention is given a context, or the cache that `remember` made of one; that cache comes back as it was.
        `projected_BLW` is what self-attention's `project` makes of x, where the caller has it more cheaply.
        """
        if isinstance(self.project, CrossProjection):
            q_BHLK, k_BGMK, v_BGMK = self._ask_context(x_BLD, context_BMD, mask, cache)
            position_BL, aligned = self._where(x_BLD, mask, None)
        elif context_BMD is not None:
            raise ShapeError("self-attention reads no context: build it with `.across()`")
        else:
            position_BL, aligned = self._where(x_BLD, mask, cache)
            projected_BLW = self.project(x_BLD) if projected_BLW is None else projected_BLW
            q_BHLK, k_BGMK, v_BGMK, cache = self._ask_self(projected_BLW, mask, cache, position_BL)
        y_BHLK = self.see_heads(self._read(q_BHLK, k_BGMK, v_BGMK, mask, position_BL, aligned))
        y_BLD = y_BHLK.transpose(1, 2).flatten(2)
        if mask.queries is not None:
            y_BLD = mask.queries.pack(y_BLD)
        return self.see_output(self.out(y_BLD)), cache

    def matrices(self) -> dict[str, Tensor]:
        """W^Q, W^K, W^V and W^O by name, as views: (outputs, inputs) each, heads one after another in the outputs."""
        if isinstance(self.project, CrossProjection):
            q, kv = self.project.q.weight, _weight(self.project.kv)
            k, v = kv.split(self.sizes[1:])
        else:
            q, k, v = _weight(self.project.qkv).split(self.sizes)
        return {"q": q, "k": k, "v": v, "out": self.out.weight}

    def remember(self, context_BMD: Tensor, mask: Mask = EVERYTHING) -> LayerCache:
        """The keys and values of a context, computed once for all steps that will ask it."""
        k_BGMK, v_BGMK = self._keys_and_values(context_BMD, mask)
        return LayerCache.of(k_BGMK, v_BGMK, None if mask.keys is None else mask.keys.count_B)

    def flops(self, batch: int, queries: int, keys: int) -> int:
        """Floating-point operations of one forward pass: the projections, and 4 · H · L · M · K for q kᵀ and w v."""
        q, k, v = self.sizes
        asked = queries * self.width
        if isinstance(self.project, CrossProjection):
            asked = keys * self.project.context_width
        project = queries * self.width * 2 * q + asked * (k + v)
        slots = 0 if self.memory is None else self.memory.slots
        return 2 * batch * (project + 2 * self.heads * queries * (keys + slots) * self.head_width)

    def _crossing(self) -> "CrossProjection":
        if not isinstance(self.project, CrossProjection):
            raise ShapeError("self-attention has no context to remember: build it with `.across()`")
        return self.project

    def _where(self, x_BLD: Tensor, mask: Mask, cache: LayerCache | None) -> tuple[Tensor, bool]:
        """Where the new positions stand, and whether the last of them is the last key in every row."""
        aligned = cache is None or cache.length_B is None
        if mask.position_BL is not None:
            return mask.position_BL, aligned
        new = x_BLD.shape[1] if mask.queries is None else mask.queries.longest
        if cache is None:
            return torch.arange(new, device=x_BLD.device)[None], aligned
        return cache.positions(new, x_BLD.device), aligned

    def _ask_self(
        self, projected_BLW: Tensor, mask: Mask, cache: LayerCache | None, position_BL: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, LayerCache | None]:
        sizes = (self.heads, self.kv_heads, self.kv_heads)
        q_BHLK, k_BGMK, v_BGMK = self._split(projected_BLW, mask.queries, *sizes)
        if self.positions.rotate is not None:
            q_BHLK, k_BGMK = self.positions.rotate(q_BHLK, position_BL), self.positions.rotate(k_BGMK, position_BL)
        q_BHLK, k_BGMK, v_BGMK = self.see_q(q_BHLK), self.see_k(k_BGMK), self.see_v(v_BGMK)
        if cache is None:
            return q_BHLK, k_BGMK, v_BGMK, None
        reach = cache.length + k_BGMK.shape[2]
        cache = cache.extend(k_BGMK, v_BGMK, None if mask.queries is None else mask.queries.count_B)
        return q_BHLK, *cache.view(reach), cache

    def _ask_context(
        self, x_BLD: Tensor, context_BMD: Tensor | None, mask: Mask, cache: LayerCache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        if context_BMD is not None:
            k_BGMK, v_BGMK = self._keys_and_values(context_BMD, mask)
        elif cache is not None:
            k_BGMK, v_BGMK = cache.keys_BGMK, cache.values_BGMK
        else:
            raise ShapeError("cross-attention needs a context, or a cache of one: neither was given")
        (q_BHLK,) = self._split(self._crossing().q(x_BLD), mask.queries, self.heads)
        if len(q_BHLK) != len(k_BGMK):
            raise ShapeError(f"a batch of {len(q_BHLK)} cannot read a context of {len(k_BGMK)} rows")
        return self.see_q(q_BHLK), self.see_k(k_BGMK), self.see_v(v_BGMK)

    def _keys_and_values(self, context_BMD: Tensor, mask: Mask) -> tuple[Tensor, ...]:
        return self._split(self._crossing().kv(context_BMD), mask.keys, self.kv_heads, self.kv_heads)

    def _split(self, projected_BLW: Tensor, rows: Rows | None, *heads: int) -> tuple[Tensor, ...]:
        """Cut what was projected together into (B, heads, L, K) pieces, with padding put back where it was left out."""
        if rows is not None:
            projected_BLW = rows.unpack(projected_BLW)
        B, L, _ = projected_BLW.shape
        return cut_heads(projected_BLW.view(B, L, sum(heads), self.head_width), heads)

    def _read(
        self, q_BHLK: Tensor, k_BGMK: Tensor, v_BGMK: Tensor, mask: Mask, position_BL: Tensor, aligned: bool
    ) -> Tensor:
        """What each query reads, by the fused kernel where it serves and nobody watches."""
        causal, allowed = mask.resolve(position_BL, k_BGMK.shape[2], aligned)
        bias_BHLM = None
        if self.positions.bias is not None:
            bias_BHLM = self.positions.bias(q_BHLK, k_BGMK, position_BL)
            bias_BHLM = self.see_bias(bias_BHLM * self.score.scale if self.positions.bias.inside else bias_BHLM)
        if self.memory is not None:
            k_BGMK, v_BGMK, allowed, bias_BHLM = self.memory(k_BGMK, v_BGMK, allowed, bias_BHLM)
        if not self.score.fused or self.positions.value is not None or self._watched():
            return self._read_in_six_steps(q_BHLK, k_BGMK, v_BGMK, causal, allowed, bias_BHLM, position_BL)
        q_BHLK, k_BGMK = self.score.prepare(q_BHLK, k_BGMK)
        return attend(
            q_BHLK, k_BGMK, v_BGMK, scale=self.score.scale, causal=causal, allowed=allowed, bias_BHLM=bias_BHLM,
            dropout=self.dropout.p if self.training else 0.0,
        )  # fmt: skip

    def _read_in_six_steps(
        self,
        q_BHLK: Tensor,
        k_BGMK: Tensor,
        v_BGMK: Tensor,
        causal: bool,
        allowed: Tensor | None,
        bias_BHLM: Tensor | None,
        position_BL: Tensor,
    ) -> Tensor:
        """The same reading, every quantity by itself: score, scale, mask, softmax, weigh, add up."""
        k_BHMK, v_BHMK = (x.repeat_interleave(self.heads // self.kv_heads, dim=1) for x in (k_BGMK, v_BGMK))
        scores_BHLM = self.see_scores(self.score.raw(q_BHLK, k_BHMK))
        scaled_BHLM = self.see_scaled(scores_BHLM * self.score.scale)
        if bias_BHLM is not None:
            scaled_BHLM = scaled_BHLM + bias_BHLM
        if causal:
            past_LM = causal_mask(q_BHLK.shape[2], k_BHMK.shape[2], q_BHLK.device)
            allowed = past_LM if allowed is None else allowed & past_LM
        masked_BHLM = self.see_masked(masked(scaled_BHLM, allowed))
        weights_BHLM = self.see_weights(safe_softmax(masked_BHLM))
        kept_BHLM = self.dropout(weights_BHLM)
        y_BHLK = kept_BHLM @ v_BHMK
        if self.positions.value is not None:
            slots = 0 if self.memory is None else self.memory.slots
            y_BHLK = y_BHLK + self.positions.value(kept_BHLM[..., slots:], position_BL)
        return y_BHLK

    def _watched(self) -> bool:
        return (
            self.see_weights.watched or self.see_scores.watched or self.see_scaled.watched or self.see_masked.watched
        )  # fmt: skip


class SelfProjection(nn.Module):
    """W^Q, W^K and W^V stacked into one matrix: queries, keys and values of x in one product."""

    def __init__(self, width: int, sizes: tuple[int, int, int], biases: Biases) -> None:
        super().__init__()
        self.qkv = _stacked(width, sizes, biases[:3])

    def forward(self, x_BLD: Tensor) -> Tensor:
        return self.qkv(x_BLD)


class CrossProjection(nn.Module):
    """W^Q for those that ask; W^K and W^V stacked, for the context that is asked."""

    def __init__(self, width: int, context_width: int, sizes: tuple[int, int, int], biases: Biases) -> None:
        super().__init__()
        self.context_width = context_width
        self.q = nn.Linear(width, sizes[0], bias=biases.q)
        self.kv = _stacked(context_width, sizes[1:], biases[1:3])


def _stacked(width: int, sizes: tuple[int, ...], biases: tuple[bool, ...]) -> nn.Module:
    """One linear layer in place of several; where only some of them have a bias, that is a layer of its own."""
    if len(set(biases)) == 1:
        return nn.Linear(width, sum(sizes), bias=biases[0])
    return nn.Sequential(nn.Linear(width, sum(sizes), bias=False), PartialBias(sizes, biases))


def _weight(stacked: nn.Module) -> Tensor:
    linear = stacked if isinstance(stacked, nn.Linear) else stacked.get_submodule("0")
    return linear.weight  # type: ignore[return-value]


class PartialBias(nn.Module):
    """A bias on some of several outputs that lie side by side."""

    def __init__(self, sizes: tuple[int, ...], biases: tuple[bool, ...]) -> None:
        super().__init__()
        self.sizes, self.biases = sizes, biases
        self.bias = nn.Parameter(torch.zeros(sum(n for n, has in zip(sizes, biases, strict=True) if has)))

    def forward(self, x_BLW: Tensor) -> Tensor:
        given = iter(self.bias.split([n for n, has in zip(self.sizes, self.biases, strict=True) if has]))
        parts = [next(given) if has else x_BLW.new_zeros(n) for n, has in zip(self.sizes, self.biases, strict=True)]
        return x_BLW + torch.cat(parts)
