"""Circuits: what a head asks and what it moves, as matrices on the stream; how heads build on heads [elhage2021].

    QK = W_Qᵀ W_K     xᵢᵀ QK xⱼ is the score of query i and key j, without scale, biases and position terms
    OV = W_O W_V      OV xⱼ is what position j would send if it were all that is read

Gains of norms are left out: the matrices act on what the sub-layer is given.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError, ShapeError
from clearhead.look.ablate import attention_at
from clearhead.look.anatomy import anatomy
from clearhead.look.recording import Seen
from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.feedforward import FeedForward
from clearhead.nn.heads import WordHead
from clearhead.nn.tables import pick

__all__ = ["COMPOSITIONS", "Composition", "Excitement", "composition", "excited_by", "ov", "qk", "words_of_neuron"]


@dataclass(frozen=True)
class _Head:
    """The four matrices of one head: q, k, v (K, D), out (D, K)."""

    q_KD: Tensor
    k_KD: Tensor
    v_KD: Tensor
    out_DK: Tensor


@torch.no_grad()
def _heads(attention: MultiHeadAttention) -> list[_Head]:
    matrices = attention.matrices()
    share, each = attention.heads // attention.kv_heads, attention.head_width
    q, k, v = (matrices[name].detach().unflatten(0, (-1, each)) for name in ("q", "k", "v"))
    out = matrices["out"].detach().unflatten(1, (-1, each))
    return [_Head(q[h], k[h // share], v[h // share], out[:, h]) for h in range(attention.heads)]


def _head(model: nn.Module, path: str, head: int) -> _Head:
    attention = attention_at(model, path)
    if not 0 <= head < attention.heads:
        raise ConfigError(f"{path!r} has the heads 0 to {attention.heads - 1}, not {head}")
    return _heads(attention)[head]


def qk(model: nn.Module, path: str, head: int) -> Tensor:
    """W_Qᵀ W_K of one head of the attention `path` (D, D); of cross-attention, the second D is the context's."""
    one = _head(model, path, head)
    return one.q_KD.T @ one.k_KD


def ov(model: nn.Module, path: str, head: int) -> Tensor:
    """W_O W_V of one head of the attention `path` (D, D)."""
    one = _head(model, path, head)
    return one.out_DK @ one.v_KD


# how a head builds on an earlier one -> the two factors of its matrix: what stands outside, and what reads the stream
COMPOSITIONS: dict[str, Callable[[_Head], tuple[Tensor, Tensor]]] = {
    "q": lambda head: (head.k_KD, head.q_KD),
    "k": lambda head: (head.q_KD, head.k_KD),
    "v": lambda head: (head.out_DK.T, head.v_KD),
}


@dataclass(frozen=True)
class Composition:
    """How much head i (row) builds on head j (column), `names` of both; zero where j is not earlier."""

    names: tuple[str, ...]
    score_XX: Tensor


@torch.no_grad()
def composition(model: nn.Module, kind: str) -> Composition:
    """The scores of all pairs by q-, k- or v-composition [elhage2021, "Three kinds of composition"].

        q: ‖QKᵀ₂ OV₁‖ / ‖QK₂‖ ‖OV₁‖        k: ‖QK₂ OV₁‖ / …        v: ‖OV₂ OV₁‖ / …        Frobenius norms

    The query of a cross-attention builds on the decoder, its keys and values on the encoder.
    """
    factors = pick(COMPOSITIONS, kind, "composition")
    paths = [name for name, module in model.named_modules() if isinstance(module, MultiHeadAttention)]
    heads = [(path, h, one) for path in paths for h, one in enumerate(_heads(attention_at(model, path)))]
    score_XX = torch.zeros(len(heads), len(heads), dtype=torch.float64)
    for i, (later, _, second) in enumerate(heads):
        outside_KD, inside_KD = (x.double() for x in factors(second))
        for j, (earlier, _, first) in enumerate(heads):
            if _feeds(earlier, later, kind, paths):
                out_DK, v_KD = first.out_DK.double(), first.v_KD.double()
                both = _norm(outside_KD, inside_KD @ out_DK, v_KD)
                score_XX[i, j] = both / (_product(outside_KD, inside_KD) * _product(out_DK.T, v_KD))
    return Composition(tuple(f"{path}.head.{h}" for path, h, _ in heads), score_XX)


def _feeds(earlier: str, later: str, kind: str, paths: list[str]) -> bool:
    """Whether what the one attention adds to the stream is read there by the other."""
    crossing = later.endswith(".cross") and kind != "q"
    if crossing or earlier.split(".")[0] != later.split(".")[0]:
        return crossing and earlier.split(".")[0] != later.split(".")[0]
    return paths.index(earlier) < paths.index(later)


def _norm(a_KD: Tensor, middle_KK: Tensor, b_KD: Tensor) -> Tensor:
    """‖Aᵀ M B‖ by way of K × K matrices alone: tr(Mᵀ AAᵀ M BBᵀ)."""
    return ((a_KD @ a_KD.T @ middle_KK) * (middle_KK @ (b_KD @ b_KD.T))).sum().clamp(min=0).sqrt()


def _product(a_KD: Tensor, b_KD: Tensor) -> Tensor:
    return ((a_KD @ a_KD.T) * (b_KD @ b_KD.T)).sum().clamp(min=1e-60).sqrt()


@dataclass(frozen=True)
class Excitement:
    """Where a neuron was excited, how much, and the text up to there."""

    value: float
    row: int
    position: int
    text: tuple[str, ...]


def excited_by(seen: Seen, tokens: list[list[str]], neuron: int, count: int = 5) -> list[Excitement]:
    """The places where a neuron of a feed-forward layer was excited most: the texts that are its key [geva2021 §3].

    Where layers share a neuron (ALBERT), the one in which it is excited most counts.

    seen     what passed the tap `….feedforward.hidden` in one pass over these texts
    tokens   of each row, its real tokens; padding beyond them does not count
    """
    if seen.axes != "BLF":
        raise ShapeError(f"neurons are seen at a tap `hidden` with the axes BLF, not at {seen.name!r} ({seen.axes})")
    value_BL = _strongest(seen).whole()[:, :, neuron]
    if len(tokens) != len(value_BL) or any(len(text) > value_BL.shape[1] for text in tokens):
        raise ShapeError(f"{len(tokens)} texts do not lie on a recording of {tuple(value_BL.shape)} positions")
    places = [
        Excitement(float(value_BL[row, place]), row, place, tuple(text[: place + 1]))
        for row, text in enumerate(tokens)
        for place in range(len(text))
    ]
    return sorted(places, key=lambda place: -place.value)[:count]


def _strongest(seen: Seen) -> Seen:
    """What passed once in each step: of what passed several times, the largest."""
    rounds: dict[int, list[Tensor]] = {}
    for step, value in zip(seen.steps, seen.values, strict=True):
        rounds.setdefault(step, []).append(value)
    return replace(seen, values=[torch.stack(values).amax(0) for values in rounds.values()], steps=list(rounds))


@torch.no_grad()
def words_of_neuron(model: nn.Module, path: str, neuron: int, count: int = 5) -> list[tuple[int, float]]:
    """The words that a neuron's value speaks for most: E v_i, with v_i its column of W₂ [geva2021 §4].

    In an encoder the word head's dense layer stands between the two.
    """
    layer = model.get_submodule(path)
    if not isinstance(layer, FeedForward):
        raise ConfigError(f"{path!r} is no feed-forward layer with neurons, but a {type(layer).__name__}")
    parts = anatomy(model)
    value_D = layer.narrow.weight[:, neuron]
    if isinstance(parts.head, WordHead):
        value_D = parts.head.dense.weight @ value_D
    best = (parts.words.linear.weight @ value_D).topk(count)
    return [(int(word), float(value)) for value, word in zip(best.values, best.indices, strict=True)]
