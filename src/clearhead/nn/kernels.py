"""Scaled dot-product attention, and the one place that chooses the kernel that computes it.

    y = dropout(softmax(scale * q kᵀ + bias)) v      (Vaswani 2017, equation 1), over the keys that a query may look at

Three kernels give the same numbers:

- `plain`: the formula, line by line. Compilers can read it, and with dropout it is twice as fast compiled as `fused`.
- `fused`: PyTorch's own, which never stores the weights. On a CPU it knows neither dropout nor a bias that learns.
- `blocked`: the formula and its derivative written out by hand, in blocks that stay in the cache, and without the keys
  beyond the causal diagonal. It stores the weights; it knows dropout and biases that learn.

A query that may look at nothing gives zeros, in the output and in every gradient.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from clearhead.errors import ShapeError
from clearhead.nn.cut import room_beside
from clearhead.nn.dropout import dropout as drop
from clearhead.nn.dropout import keep_mask, keep_scale

__all__ = ["attend", "causal_mask", "masked", "safe_softmax", "scores_to_weights"]


class _Rule(NamedTuple):
    """What turns the products of queries and keys into weights."""

    scale: float
    causal: bool
    allowed: Tensor | None
    bias_BHLM: Tensor | None
    dropout: float


_Kernel = Callable[[Tensor, Tensor, Tensor, _Rule], Tensor]


def attend(
    q_BHLK: Tensor,
    k_BGMK: Tensor,
    v_BGMK: Tensor,
    *,
    scale: float,
    causal: bool = False,
    allowed: Tensor | None = None,
    bias_BHLM: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Let each query look at the keys that it may look at, by the fastest kernel for these shapes: y_BHLK.

    G key-value heads serve H query heads, each a group of H / G neighbours. `causal` aligns the last query with the
    last key: query l sees key m where m <= l + M - L. `allowed` (True = may look) and `bias_BHLM` (finite numbers)
    need only broadcast to (B, H, L, M). `dropout` acts on the weights: give it in training only.
    """
    (B, H, L, _), (G, M) = q_BHLK.shape, k_BGMK.shape[1:3]
    if H % G:
        raise ShapeError(f"the query heads must divide among the key-value heads: {H=}, {G=}")
    if B == 0 or L == 0 or M == 0:
        return q_BHLK * 0.0
    if causal and L > M:
        allowed, causal = _and(allowed, causal_mask(L, M, q_BHLK.device)), False
    rule = _Rule(scale, causal and L > 1, allowed, bias_BHLM, dropout)
    if q_BHLK.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        # PyTorch's kernels in bf16 take twice as long as those in float32, which are also more exact.
        with torch.autocast("cpu", enabled=False):
            q, k, v = (x.float() for x in (q_BHLK, k_BGMK, v_BGMK))
            rule = rule._replace(bias_BHLM=None if bias_BHLM is None else bias_BHLM.float())
            return _choose(q, k, v, rule)(q, k, v, rule).to(q_BHLK.dtype)
    return _choose(q_BHLK, k_BGMK, v_BGMK, rule)(q_BHLK, k_BGMK, v_BGMK, rule)


def _choose(q_BHLK: Tensor, k_BGMK: Tensor, v_BGMK: Tensor, rule: _Rule) -> _Kernel:
    """The kernel for these inputs.

    Milliseconds of one core, forward and backward, float32, least of many runs:

        B x H x L x K            fused   blocked   blocked with dropout
        64 x 8 x 24 x 32 padded    5.8       7.0      8.4
        12 x 4 x 64 x 32 causal    1.4       1.9      2.5
        16 x 6 x 256 x 64 causal    57        51       65
        4 x 8 x 512 x 64 causal     72        54       68
        4 x 8 x 512 x 64 padded     72        81      111
        2 x 8 x 1024 x 64 causal   106       119      153

    One query against 64 or 512 stored keys, as in decoding, is fastest in `fused`.
    """
    if q_BHLK.device.type != "cpu":
        return _fused
    if torch.compiler.is_compiling() or q_BHLK.dtype not in (torch.float32, torch.float64):
        return _plain if rule.dropout else _fused
    if rule.dropout or _learns(rule.bias_BHLM):
        return _blocked
    trains = _learns(q_BHLK) or _learns(k_BGMK) or _learns(v_BGMK)
    return _blocked if trains and rule.causal and 256 <= q_BHLK.shape[2] <= 768 else _fused


def _learns(x: Tensor | None) -> bool:
    return x is not None and x.requires_grad and torch.is_grad_enabled()


# ---------------------------------------------------------------- the pieces of the formula


def causal_mask(queries: int, keys: int, device: torch.device | str = "cpu") -> Tensor:
    """True where query l may look at key m, which is where m <= l + M - L, as bool of (L, M)."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def masked(scores_BHLM: Tensor, allowed: Tensor | None) -> Tensor:
    """The scores, with -inf where the query may not look."""
    return scores_BHLM if allowed is None else scores_BHLM.masked_fill(~allowed, float("-inf"))


def safe_softmax(scores_BHLM: Tensor) -> Tensor:
    """Softmax over the last dimension; a row of nothing but -inf gives zeros, where PyTorch's gives NaN."""
    dead = (scores_BHLM == float("-inf")).all(-1, keepdim=True)
    return scores_BHLM.masked_fill(dead, 0.0).softmax(-1).masked_fill(dead, 0.0)


def scores_to_weights(scores_BHLM: Tensor, *, causal: bool = False, allowed: Tensor | None = None) -> Tensor:
    """The weights of each query over the keys that it may look at: they sum to one, or are all zero."""
    if causal:
        L, M = scores_BHLM.shape[-2:]
        allowed = _and(allowed, causal_mask(L, M, scores_BHLM.device))
    return safe_softmax(masked(scores_BHLM, allowed))


def _and(allowed: Tensor | None, other: Tensor) -> Tensor:
    return other if allowed is None else allowed & other


# ---------------------------------------------------------------- plain and fused


def _plain(q_BHLK: Tensor, k_BGMK: Tensor, v_BGMK: Tensor, rule: _Rule) -> Tensor:
    (B, H, L, K), (G, M) = q_BHLK.shape, k_BGMK.shape[1:3]
    # The queries of a group stand one after the other along L, so that keys and values are never repeated.
    scores_BHLM = (q_BHLK.reshape(B, G, -1, K) @ k_BGMK.transpose(-1, -2)).view(B, H, L, M) * rule.scale
    if rule.bias_BHLM is not None:
        scores_BHLM = scores_BHLM + rule.bias_BHLM
    weights_BHLM = drop(scores_to_weights(scores_BHLM, causal=rule.causal, allowed=rule.allowed), rule.dropout)
    return (weights_BHLM.view(B, G, -1, M) @ v_BGMK).view(B, H, L, K)


def _fused(q_BHLK: Tensor, k_BGMK: Tensor, v_BGMK: Tensor, rule: _Rule) -> Tensor:
    (B, H, L, K), (G, M) = q_BHLK.shape, k_BGMK.shape[1:3]
    allowed, mask = rule.allowed, rule.bias_BHLM
    # PyTorch's flag aligns the first query with the first key, and excludes a mask.
    flag = rule.causal and L == M and allowed is None and mask is None
    if rule.causal and not flag:
        allowed = _and(allowed, causal_mask(L, M, q_BHLK.device))
    mask = allowed if mask is None else masked(mask, allowed)
    if L == 1 and G < H:
        # Decoding: a group of single queries takes the place of L, so that its keys are read once (2x faster).
        q_BHLK = q_BHLK.view(B, G, -1, K)
        if mask is not None and mask.dim() > 2 and mask.shape[-3] == H:
            mask = mask.reshape(-1, G, H // G, mask.shape[-1])
    y_BHLK = F.scaled_dot_product_attention(
        q_BHLK, k_BGMK, v_BGMK, mask, rule.dropout, flag, scale=rule.scale, enable_gqa=q_BHLK.shape[1] > G
    )
    return y_BHLK.view(B, H, L, K) if L == 1 else y_BHLK


# ---------------------------------------------------------------- blocked

# Queries per block, and scores per block: one row of the batch is a view, several are a copy, which pays for tiny rows.
_QUERIES, _ONE_ROW, _MANY_ROWS = 128, 1 << 16, 1 << 19


class _Block(NamedTuple):
    """Some rows of the batch, some of their queries, the keys that these reach, and where their weights are stored."""

    rows: slice
    queries: slice
    keys: slice
    stored: slice


def _blocks(B: int, H: int, L: int, M: int, causal: bool) -> list[_Block]:
    """Cut (B, H, L, M) into blocks; of each row the last queries come first, because they reach every key."""
    length = min(L, _QUERIES)
    scores = H * length * M
    step = 1 if scores >= _ONE_ROW else max(1, _MANY_ROWS // scores)
    blocks, used = [], 0
    for row in range(0, B, step):
        rows = slice(row, min(B, row + step))
        for stop in range(L, 0, -length):
            queries = slice(max(0, stop - length), stop)
            keys = slice(0, M - L + stop if causal else M)
            size = (rows.stop - row) * H * (stop - queries.start) * keys.stop
            blocks.append(_Block(rows, queries, keys, slice(used, used + size)))
            used += size
    return blocks


def _blocked(q_BHLK: Tensor, k_BGMK: Tensor, v_BGMK: Tensor, rule: _Rule) -> Tensor:
    bias, allowed = rule.bias_BHLM, rule.allowed
    if allowed is not None:
        # Finite, so that a query with nothing to look at gives numbers, which are multiplied by zero in the end.
        closed = (~allowed).to(q_BHLK.dtype) * (torch.finfo(q_BHLK.dtype).min / 2)
        bias = closed if bias is None else bias + closed
    if bias is not None:
        bias = bias[(None,) * (4 - bias.dim())]
    y_BHLK: Tensor = _Blocked.apply(q_BHLK, k_BGMK, v_BGMK, bias, rule.scale, rule.causal, rule.dropout)
    if allowed is None or allowed[..., 0].all():
        return y_BHLK
    if rule.causal:
        allowed = allowed & causal_mask(q_BHLK.shape[2], k_BGMK.shape[2])
    return y_BHLK * allowed.any(-1, keepdim=True)


class _Blocked(torch.autograd.Function):
    """y = a v, where a = w ∘ mask / (1 - p) and w = softmax(scale * q kᵀ + bias); and the derivative of it.

    Within a block the heads are laid out as (rows x key-value heads, queries of a group, ·): `q_`, `k_`, `w` and so on.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, causal: bool, dropout: float
    ) -> Tensor:
        (B, H, L, _), M = q.shape, k.shape[2]
        blocks = _blocks(B, H, L, M, causal)
        if blocks[0].rows.stop > 1:  # copies of many rows, made once for both passes
            q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        weights = q.new_empty(blocks[-1].stored.stop)
        kept = keep_mask(weights.shape, dropout) if dropout else None
        future = q.new_full((min(L, _QUERIES),) * 2, float("-inf")).triu_(1) if causal else None
        y = _empty_heads_last(q)
        for block in blocks:
            q_, k_, v_ = _heads(q, k, v, block)
            y_ = y[block.rows, :, block.queries]
            w = weights[block.stored].view(*q_.shape[:2], k_.shape[1])
            w_BHLM = w.view(*y_.shape[:3], k_.shape[1])
            torch.baddbmm(w, q_, k_.transpose(1, 2), beta=0, alpha=scale, out=w)
            if bias is not None:
                w_BHLM.add_(_part(bias, block))
            if future is not None:
                length = y_.shape[2]
                w_BHLM[..., -length:].add_(future[:length, :length])
            _softmax(w)
            a = w if kept is None else kept[block.stored].view_as(w).to(w.dtype).mul_(w)
            y_.copy_(_product(a, v_, keep_scale(dropout)).view_as(y_))
        ctx.save_for_backward(q, k, v, bias, weights, kept)
        ctx.blocks, ctx.scale, ctx.dropout = blocks, scale, dropout
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias, weights, kept = ctx.saved_tensors
        dq, dk, dv = _gradients(q, k)
        dbias = torch.zeros_like(bias) if ctx.needs_input_grad[3] else None
        for block in ctx.blocks:
            q_, k_, v_ = _heads(q, k, v, block)
            dy_ = grads[0][block.rows, :, block.queries].reshape(q_.shape)
            a = w = weights[block.stored].view(*q_.shape[:2], k_.shape[1])
            ds = _product(dy_, v_.transpose(1, 2), keep_scale(ctx.dropout))
            if kept is not None:
                a = kept[block.stored].view_as(w).to(w.dtype)
                ds.mul_(a)
                a.mul_(w)
            _softmax_backward(ds, w)
            reaches_all = block.queries.stop == q.shape[2]
            _store(
                dv[block.rows, :, block.keys], _product(a.transpose(1, 2), dy_, keep_scale(ctx.dropout)), reaches_all
            )
            _store(dk[block.rows, :, block.keys], _product(ds.transpose(1, 2), q_, ctx.scale), reaches_all)
            _store(dq[block.rows, :, block.queries], _product(ds, k_, ctx.scale), True)
            if dbias is not None:
                part = _part(dbias, block)
                ds_BHLM = ds.view(-1, q.shape[1], block.queries.stop - block.queries.start, k_.shape[1])
                part.add_(ds_BHLM.sum_to_size(part.shape))
        return dq, dk, dv, dbias, None, None, None


def _empty_heads_last(x_BHLK: Tensor) -> Tensor:
    """Room for a tensor of that shape that lies in memory as (B, L, H, K): joining its heads copies nothing."""
    B, H, L, K = x_BHLK.shape
    return x_BHLK.new_empty(B, L, H, K).transpose(1, 2)


def _gradients(q: Tensor, k: Tensor) -> tuple[Tensor, ...]:
    """Room for those of queries, keys and values, side by side as one projection, or two, may have given these."""
    (_, H, L, _), (_, G, M, _) = q.shape, k.shape
    if L == M:
        return room_beside(q, (H, G, G), L)
    return *room_beside(q, (H,), L), *room_beside(k, (G, G), M)


def _heads(q: Tensor, k: Tensor, v: Tensor, block: _Block) -> tuple[Tensor, Tensor, Tensor]:
    """The heads of a block, one after the other; for a block of one row these are views, not copies."""
    k_, v_ = (x[block.rows, :, block.keys].flatten(0, 1) for x in (k, v))
    return q[block.rows, :, block.queries].reshape(k_.shape[0], -1, q.shape[3]), k_, v_


def _part(bias: Tensor, block: _Block) -> Tensor:
    """What of a broadcast (B, H, L, M) belongs to the block."""
    everything = slice(None)
    places = zip((block.rows, everything, block.queries, block.keys), bias.shape, strict=True)
    return bias[tuple(place if size > 1 else everything for place, size in places)]


# PyTorch's softmax of rows shorter than a vector register (16 numbers) is seven times slower than its formula.
_SHORT = 16


def _softmax(w: Tensor) -> None:
    """In place, w ← softmax(w) over the last dimension."""
    if w.shape[-1] >= _SHORT:
        torch.softmax(w, -1, out=w)
    else:
        w.sub_(w.amax(-1, keepdim=True)).exp_()
        w.div_(w.sum(-1, keepdim=True))


def _softmax_backward(dw: Tensor, w: Tensor) -> None:
    """In place, dw ← w ∘ (dw − Σ dw ∘ w), the gradient of what went into the softmax."""
    if w.shape[-1] >= _SHORT:
        torch._softmax_backward_data(dw, w, -1, w.dtype, grad_input=dw)
    else:
        dw.mul_(w)
        dw.addcmul_(w, dw.sum(-1, keepdim=True), value=-1)


def _product(a: Tensor, b: Tensor, factor: float) -> Tensor:
    """factor * a b, without a pass of its own for the factor."""
    if a.shape[2] == 1:  # outer products, ten times slower as products of matrices
        return (a * factor) * b
    out = a.new_empty(a.shape[0], a.shape[1], b.shape[2])
    return torch.baddbmm(out, a, b, beta=0, alpha=factor, out=out)


def _store(into: Tensor, part: Tensor, first: bool) -> None:
    part = part.view_as(into)
    into.copy_(part) if first else into.add_(part)
