"""Attention over many layers: how much of an input reaches an output, by rollout and by flow (Abnar & Zuidema 2020).

Each layer's weights, the mean of its heads, are mixed with the identity for the residual: Ã = ½ A + ½ I. Rollout adds
up over all paths the product of their weights; flow asks how much can flow at most if the weights are capacities. In an
encoder–decoder an output reaches what was written through self-attention, and the source through cross-attention and
the encoder below it.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.look.recording import Recording
from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.stack import Stack

__all__ = ["Reach", "attention_flow", "attention_rollout"]

Node = tuple[str, int, int]  # side, level, position
Graph = dict[Node, dict[Node, float]]


@dataclass(frozen=True)
class Reach:
    """How much of each input reaches each output: own inputs (L, L) and, where there is a source, that (L, M)."""

    own_LL: Tensor
    source_LM: Tensor | None = None


def attention_rollout(model: nn.Module, seen: Recording, *, row: int = 0, residual: float = 0.5) -> Reach:
    """Rollout of one row from the recorded `….weights` of every attention.

    residual   the share of what a position keeps of itself; the rest is read
    """
    source_MM = None
    if _sides(model) == ("encoder", "decoder"):
        source_MM = _rolled(model, seen, "encoder", row, residual, None)[0]
    side = _sides(model)[-1]
    return Reach(*_rolled(model, seen, side, row, residual, source_MM))


def _sides(model: nn.Module) -> tuple[str, ...]:
    return tuple(name for name, module in model.named_children() if isinstance(module, Stack))


def _rolled(
    model: nn.Module, seen: Recording, side: str, row: int, residual: float, source_MM: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    layers = list(_layers(model, seen, side, row))
    length = len(layers[0][1])
    own_LL = torch.eye(length, dtype=torch.float64)
    source_LM = None if source_MM is None else own_LL.new_zeros(length, len(source_MM))
    for part, weights in layers:
        if source_LM is not None and source_MM is not None and part == "cross":
            own_LL, source_LM = residual * own_LL, residual * source_LM + (1 - residual) * weights @ source_MM
        else:
            mixed_LL = residual * torch.eye(length, dtype=torch.float64) + (1 - residual) * weights
            own_LL = mixed_LL @ own_LL
            source_LM = None if source_LM is None else mixed_LL @ source_LM
    return own_LL, source_LM


def _layers(model: nn.Module, seen: Recording, side: str, row: int) -> Iterator[tuple[str, Tensor]]:
    """Of each sub-layer with attention, which it is and its weights, the mean of its heads, memory left out."""
    stack = model.get_submodule(side)
    if not isinstance(stack, Stack):
        raise ConfigError(f"{side!r} is no stack of layers")
    coming: dict[str, Iterator[Tensor]] = {}
    for layer, block in zip(stack.rounds, stack.layers, strict=True):
        for part, attention in (("attention", block.attention), ("cross", block.cross)):
            if attention is None:
                continue
            name = f"{side}.{layer}.{part}.weights"
            weights_BHLM = next(coming.setdefault(name, iter(seen[name].values)))
            memory = attention.memory if isinstance(attention, MultiHeadAttention) else None
            slots = 0 if memory is None else memory.slots
            yield part, weights_BHLM[row].double().mean(0)[:, slots:]


def attention_flow(model: nn.Module, seen: Recording, *, row: int = 0, residual: float = 0.5) -> Reach:
    """The greatest flow from each output to each input, of one row; for short texts, as it takes L² searches."""
    graph: Graph = {}
    tops: dict[str, tuple[int, int]] = {}
    for side in _sides(model):
        level, length = 0, 0
        for part, weights in _layers(model, seen, side, row):
            length = len(weights)
            for i, row_M in enumerate(weights.tolist()):
                edges = graph.setdefault((side, level + 1, i), {})
                edges[side, level, i] = residual
                below = ("encoder", tops["encoder"][0]) if part == "cross" else (side, level)
                for j, weight in enumerate(row_M):
                    if weight > 0:
                        edges[*below, j] = edges.get((*below, j), 0.0) + (1 - residual) * weight
            level += 1
        tops[side] = (level, length)
    side = _sides(model)[-1]
    level, length = tops[side]

    def flows(to: str, count: int) -> Tensor:
        return torch.tensor(
            [[_greatest(graph, (side, level, i), (to, 0, j)) for j in range(count)] for i in range(length)],
            dtype=torch.float64,
        ).view(length, count)

    other = next((name for name in tops if name != side), None)
    return Reach(flows(side, length), None if other is None else flows(other, tops[other][1]))


def _greatest(graph: Graph, start: Node, end: Node, least: float = 1e-12) -> float:
    """The greatest flow from start to end, always along a shortest path with room (Edmonds & Karp 1972)."""
    room: Graph = {}
    for node, edges in graph.items():
        for other, capacity in edges.items():
            room.setdefault(node, {})[other] = capacity
            room.setdefault(other, {}).setdefault(node, 0.0)
    total = 0.0
    while path := _path(room, start, end, least):
        amount = min(room[a][b] for a, b in path)
        for a, b in path:
            room[a][b] -= amount
            room[b][a] += amount
        total += amount
    return total


def _path(room: Graph, start: Node, end: Node, least: float) -> list[tuple[Node, Node]]:
    """The edges of a shortest path with room; none where there is no such path."""
    before: dict[Node, Node] = {start: start}
    queue = deque([start])
    while queue and end not in before:
        node = queue.popleft()
        for other, capacity in room.get(node, {}).items():
            if capacity > least and other not in before:
                before[other] = node
                queue.append(other)
    if end not in before:
        return []
    edges, node = [], end
    while node != start:
        edges.append((before[node], node))
        node = before[node]
    return edges
