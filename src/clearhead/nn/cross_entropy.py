"""Cross-entropy of a linear layer's logits, without ever holding all of the logits.

The target distribution of a position gives 1 - ε to its target t and spreads ε over all V words:

    y = (1 - ε) onehot(t) + ε / V          loss = -Σ_v y_v log p_v,     p = softmax(W h + b)

This is KL(y ‖ p) plus the entropy of y, which is a constant: the two have the same gradient, p - y at the logits
(Szegedy et al. 2016 §7; PyTorch's `label_smoothing` spreads ε in the same way).
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

__all__ = ["linear_cross_entropy"]

_LOGITS_AT_ONCE = 1 << 20


def linear_cross_entropy(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    target_N: Tensor,
    *,
    smoothing: float = 0.0,
    ignore: int = -100,
) -> Tensor:
    """The sum, over the positions whose target is not `ignore`, of the smoothed cross-entropy of W h + b."""
    plain = (
        target_N.numel() * weight_VD.shape[0] <= _LOGITS_AT_ONCE
        or hidden_ND.device.type != "cpu"
        or not hidden_ND.dtype == weight_VD.dtype == torch.float32
        or torch.compiler.is_compiling()
    )
    if plain:
        logits_NV = F.linear(hidden_ND, weight_VD, bias_V)
        logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))  # bf16 is too coarse for a log
        return F.cross_entropy(logits_NV, target_N, ignore_index=ignore, label_smoothing=smoothing, reduction="sum")
    # Positions without a target cost nothing; ordinary batches have a quarter of them.
    real_N = (target_N != ignore).nonzero().squeeze(1)
    if real_N.numel() < target_N.numel():
        hidden_ND, target_N = hidden_ND.index_select(0, real_N), target_N[real_N]
    loss: Tensor = _Chunked.apply(hidden_ND, weight_VD, bias_V, target_N, smoothing, torch.is_grad_enabled())
    return loss


class _Chunked(torch.autograd.Function):
    """Some rows of logits at a time; the gradients are made in passing, and scaled in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        target_N: Tensor,
        smoothing: float,
        learns: bool,
    ) -> Tensor:
        V = weight_VD.shape[0]
        # The products are made in autocast's precision, everything between them in that of the weights.
        product = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else weight_VD.dtype
        W_VD = weight_VD.to(product)
        dhidden_ND, dweight_VD, dbias_V = (
            torch.zeros_like(x) if learns and needed and x is not None else None
            for x, needed in zip((hidden_ND, weight_VD, bias_V), ctx.needs_input_grad, strict=False)
        )
        loss = hidden_ND.new_zeros(())
        step = max(1, _LOGITS_AT_ONCE // V)
        for start in range(0, target_N.numel(), step):
            rows = slice(start, start + step)
            h, t = hidden_ND[rows].to(product), target_N[rows, None]
            log_p = F.linear(h, W_VD, bias_V).to(weight_VD.dtype)
            torch.log_softmax(log_p, -1, out=log_p)
            loss -= (1.0 - smoothing) * log_p.gather(1, t).sum()
            if smoothing:
                loss -= smoothing / V * log_p.sum()
            if not learns:
                continue
            error = log_p.exp_()
            error.scatter_add_(1, t, error.new_full(t.shape, smoothing - 1.0))
            if smoothing:
                error -= smoothing / V
            if dbias_V is not None:
                dbias_V += error.sum(0)
            error = error.to(product)
            if dhidden_ND is not None:
                dhidden_ND[rows] = error @ W_VD
            if dweight_VD is not None and product == dweight_VD.dtype:
                dweight_VD.addmm_(error.t(), h)
            elif dweight_VD is not None:
                dweight_VD += error.t() @ h
        ctx.save_for_backward(dhidden_ND, dweight_VD, dbias_V)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return *(None if made is None else made * grads[0] for made in ctx.saved_tensors), None, None, None
