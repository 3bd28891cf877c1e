"""Where a position's term on a score, or on a value, came from."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.nn.positions_absolute import sinusoid
from clearhead.nn.positions_relative import (
    AlibiBias,
    BucketBias,
    DistanceBias,
    DistanceValue,
    SinusoidalDistanceBias,
    bucket,
)
from clearhead.nn.pruning import SomeHeads
from clearhead.tasks.cells import Made, Place, Term, dot, unexplained

__all__ = ["bias_terms", "value_row"]

Vector = tuple[Tensor, Callable[[int], Place | None]]  # its numbers, and where each stands


def bias_terms(
    bias: nn.Module, head: int, where: tuple[int, int, int], query: Vector, key: Vector, scale: float
) -> Made:
    """The term of a query and a key: `where` are their places, and how many keys there are."""
    if isinstance(bias, SomeHeads):
        return bias_terms(bias.bias, bias.heads[head], where, query, key, scale)
    make = BIASES.get(type(bias))
    if make is None:
        return unexplained(f"what a {type(bias).__name__} adds is not taken apart here")
    return make(bias, head, where, query, key, scale)


def _alibi(bias: AlibiBias, head: int, where: tuple[int, int, int], *_: Any) -> Made:
    distance = abs(where[0] - where[1])
    terms = [Term.of("−slope · distance", (-float(bias.slope_H[head]), None), (float(distance), None))]
    return Made(f"a penalty on the distance of {distance}", "−m |i − j|", terms)


def _bucket(bias: BucketBias, head: int, where: tuple[int, int, int], *_: Any) -> Made:
    distance = where[0] - where[1]
    slot = int(bucket(torch.tensor(distance), bias.buckets, bias.farthest, causal=bias.causal))
    value = float(bias.table.weight[slot, head])
    return Made(f"a learned number for the distance {distance}", f"b[{slot}]", [Term.of(f"b[{slot}]", (value, None))])


def _distance(
    bias: DistanceBias, head: int, where: tuple[int, int, int], query: Vector, key: Vector, scale: float
) -> Made:
    slot = max(-bias.clip, min(where[0] - where[1], bias.clip)) + bias.clip
    terms = dot(query[0], bias.table_RK[slot].detach().cpu() * scale, "q·a", query[1])
    return Made("the query meets the vector of the distance, scaled", "scale · Σ_i q_i a_i", terms)


def _sinusoidal(
    bias: SinusoidalDistanceBias, head: int, where: tuple[int, int, int], query: Vector, key: Vector, scale: float
) -> Made:
    distance = torch.tensor([where[0] - where[1]], device=bias.project.weight.device)
    wave = sinusoid(distance, bias.width, bias.base, halves=True).to(bias.project.weight.dtype)
    r_K = bias.project(wave)[0].unflatten(-1, (bias.heads, -1))[head].detach().cpu() * scale
    content_K, position_K = (x[head].detach().cpu() for x in (bias.content_HK, bias.position_HK))
    terms = [
        *dot(query[0], r_K, "q·r", query[1]),
        *dot(position_K, r_K, "v·r", lambda at: None),
        *dot(key[0], content_K * scale, "k·u", key[1]),
    ]
    return Made("terms (b), (c) and (d) of the score, scaled", "scale · ((q + v)ᵀ W r + uᵀ k)", terms)


BIASES: dict[type[nn.Module], Callable[..., Made]] = {
    AlibiBias: _alibi,
    BucketBias: _bucket,
    DistanceBias: _distance,
    SinusoidalDistanceBias: _sinusoidal,
}


def value_row(value: DistanceValue, row: int, keys: int) -> Tensor:
    """What the query of that place reads of each key's distance, besides its value (M, K)."""
    distance_M = (row - torch.arange(keys)).clamp(-value.clip, value.clip) + value.clip
    return value.table_RK.detach().cpu()[distance_M]
