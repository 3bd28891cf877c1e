"""Attention straight from the formula, one position, one head and one number at a time: the oracle of the tests."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from clearhead.nn.attention import MultiHeadAttention

__all__ = ["PLAIN_SCORES", "Allowed", "PlainScore", "plain_attention", "plain_read", "plain_softmax", "same"]

Vector = Sequence[float]
# (query, key, head, query's position, key's position) -> the score, scale and position terms included
PlainScore = Callable[[Vector, Vector, int, int, int], float]
# (head, query's position, key's position) -> may it look?
Allowed = Callable[[int, int, int], bool]


def same(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    """Equal shapes, and every number within `tolerance`."""
    torch.testing.assert_close(actual.double(), expected.double(), atol=tolerance, rtol=0)


def everywhere(head: int, query: int, key: int) -> bool:
    return True


def plain_softmax(scores: Sequence[float]) -> list[float]:
    largest = max(scores)
    powers = [math.exp(score - largest) for score in scores]
    return [power / sum(powers) for power in powers]


def plain_read(q_HLK: Tensor, k_GMK: Tensor, v_GMK: Tensor, score: PlainScore, allowed: Allowed = everywhere) -> Tensor:
    """y_hl = Σ_m softmax_m(score(q_hl, k_gm)) v_gm over the m that are allowed; g is the group of head h."""
    heads, queries, width = q_HLK.shape
    groups, keys, _ = k_GMK.shape
    y_HLK = torch.zeros(heads, queries, width, dtype=torch.float64)
    for h in range(heads):
        g = h // (heads // groups)
        for i in range(queries):
            seen = [j for j in range(keys) if allowed(h, i, j)]
            if not seen:
                continue
            query = q_HLK[h, i].tolist()
            weights = plain_softmax([score(query, k_GMK[g, j].tolist(), h, i, j) for j in seen])
            for j, weight in zip(seen, weights, strict=True):
                for a in range(width):
                    y_HLK[h, i, a] += weight * v_GMK[g, j, a].item()
    return y_HLK


def plain_attention(
    attention: MultiHeadAttention,
    x_LD: Tensor,
    score: PlainScore,
    context_MD: Tensor | None = None,
    allowed: Allowed = everywhere,
) -> Tensor:
    """concat_h(y_h) W^O + b for one row of the batch; only the matrices are taken from the module."""
    asked = x_LD if context_MD is None else context_MD
    weight = {name: matrix.detach().double() for name, matrix in attention.matrices().items()}
    bias = _biases(attention)
    q_HLK, k_GMK, v_GMK = (
        _heads(source.double() @ weight[name].T + bias[name], attention.head_width)
        for source, name in ((x_LD, "q"), (asked, "k"), (asked, "v"))
    )
    y_HLK = plain_read(q_HLK, k_GMK, v_GMK, score, allowed)
    return torch.cat(list(y_HLK), dim=-1) @ weight["out"].T + bias["out"]


def _heads(x_LW: Tensor, width: int) -> Tensor:
    return torch.stack(x_LW.split(width, dim=-1))


def _biases(attention: MultiHeadAttention) -> dict[str, Tensor]:
    """Biases by name, zeros where there are none."""
    named = dict(attention.project.named_parameters())
    if "qkv.bias" in named:
        q, k, v = named["qkv.bias"].detach().split(attention.sizes)
    elif "kv.bias" in named:
        q, (k, v) = named["q.bias"].detach(), named["kv.bias"].detach().split(attention.sizes[1:])
    else:
        q, k, v = (torch.zeros(size) for size in attention.sizes)
    out = attention.out.bias
    return {
        "q": q.double(), "k": k.double(), "v": v.double(),
        "out": torch.zeros(attention.width) if out is None else out.detach().double(),
    }  # fmt: skip


def dot(q: Vector, k: Vector) -> float:
    return sum(a * b for a, b in zip(q, k, strict=True))


def _dot(score: nn.Module) -> PlainScore:
    return lambda q, k, h, i, j: dot(q, k)


def _scaled_dot(score: nn.Module) -> PlainScore:
    return lambda q, k, h, i, j: dot(q, k) / math.sqrt(len(q))


def _cosine(score: nn.Module) -> PlainScore:
    return lambda q, k, h, i, j: math.sqrt(len(q)) * dot(q, k) / math.sqrt(dot(q, q) * dot(k, k))


def _general(score: nn.Module) -> PlainScore:
    """qᵀ W k."""
    weight = score.weight_HKK.tolist()
    return lambda q, k, h, i, j: sum(
        q[a] * weight[h][a][b] * k[b] for a in range(len(q)) for b in range(len(k))
    )  # fmt: skip


def _additive(score: nn.Module) -> PlainScore:
    """Σ_a v_a tanh(Σ_b q_b W_ba + Σ_b k_b U_ba)."""
    w, u, v = score.query_HKK.tolist(), score.key_HKK.tolist(), score.vector_HK.tolist()

    def score_of(q: Vector, k: Vector, h: int, i: int, j: int) -> float:
        width = range(len(q))
        return sum(v[h][a] * math.tanh(sum(q[b] * w[h][b][a] + k[b] * u[h][b][a] for b in width)) for a in width)

    return score_of


# The name of a score -> from the module with its parameters to the formula.
PLAIN_SCORES: dict[str, Callable[[nn.Module], PlainScore]] = {
    "dot": _dot,
    "scaled_dot": _scaled_dot,
    "cosine": _cosine,
    "general": _general,
    "additive": _additive,
}
