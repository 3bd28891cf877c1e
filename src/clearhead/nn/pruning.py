"""Pruning: an attention with some of its heads taken out, its matrices smaller.

Head h owns K rows each of W^Q, W^K, W^V and of their biases, K columns of W^O, and its share of a score, a position
term or a memory that has parameters for each head. Where heads share keys and values, they go or stay by whole groups.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.nn.attention import CrossProjection, MultiHeadAttention, PartialBias
from clearhead.nn.positions_relative import AlibiBias, BucketBias, SinusoidalDistanceBias

__all__ = ["Pruned", "SomeHeads", "keep_heads", "prune"]

# the name of an attention, and which of its heads are kept
Pruned = tuple[tuple[str, tuple[int, ...]], ...]

# What parts of an attention have for each head, in their first dimension.
PER_HEAD = ("weight_HKK", "query_HKK", "key_HKK", "vector_HK", "content_HK", "position_HK")
PER_GROUP = ("keys_GPK", "values_GPK")


def prune(model: nn.Module, pruned: Pruned) -> None:
    """Take all other heads out of the attentions named, in place."""
    for path, heads in pruned:
        try:
            attention = model.get_submodule(path)
        except AttributeError as error:
            raise ConfigError(f"no part of this model is named {path!r}: nothing to prune there") from error
        if not isinstance(attention, MultiHeadAttention):
            raise ConfigError(f"{path!r} is no attention, and has no heads to keep {list(heads)} of")
        keep_heads(attention, heads, path)


@torch.no_grad()
def keep_heads(attention: MultiHeadAttention, heads: Sequence[int], name: str = "the attention") -> None:
    """Take all heads but these out of the attention, in place; the width of a head stays as it is."""
    groups = _groups(attention, heads, name)
    each = attention.head_width
    q_rows, kv_rows = _rows(heads, each), _rows(groups, each)
    sizes = attention.sizes
    if isinstance(attention.project, CrossProjection):
        _keep_outputs(attention.project.q, [q_rows], sizes[:1])
        _keep_outputs(attention.project.kv, [kv_rows, kv_rows], sizes[1:])
    else:
        _keep_outputs(attention.project.qkv, [q_rows, kv_rows, kv_rows], sizes)
    attention.out.weight = _smaller(attention.out.weight, 1, q_rows)
    attention.out.in_features = len(q_rows)
    for part in (attention.score, attention.memory):
        if isinstance(part, nn.Module):
            _keep_parameters(part, PER_HEAD, heads)
            _keep_parameters(part, PER_GROUP, groups)
    attention.positions.bias = _keep_bias(attention.positions.bias, heads, each)
    attention.heads, attention.kv_heads = len(heads), len(groups)


def _groups(attention: MultiHeadAttention, heads: Sequence[int], name: str) -> list[int]:
    """The key-value heads that are kept; refused unless each is kept with all heads that read it."""
    if not heads or sorted(set(heads)) != list(heads) or heads[0] < 0 or heads[-1] >= attention.heads:
        raise ConfigError(
            f"{name} has the heads 0 to {attention.heads - 1}; at least one stays, in order, not {list(heads)}"
        )
    share = attention.heads // attention.kv_heads
    groups = sorted({head // share for head in heads})
    if len(heads) != share * len(groups):
        raise ConfigError(f"{name} has heads in groups of {share} that stay or go together: {list(heads)} breaks one")
    return groups


def _rows(heads: Iterable[int], each: int) -> list[int]:
    return [head * each + row for head in heads for row in range(each)]


def _smaller(parameter: Tensor, dim: int, kept: Sequence[int]) -> nn.Parameter:
    index = torch.tensor(kept, dtype=torch.long, device=parameter.device)
    return nn.Parameter(parameter.index_select(dim, index), requires_grad=parameter.requires_grad)


def _keep_outputs(stacked: nn.Module, kept: Sequence[list[int]], sizes: Sequence[int]) -> None:
    """Of several projections that lie side by side, these outputs of each."""
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    rows = [start + row for start, some in zip(starts, kept, strict=True) for row in some]
    linear = stacked[0] if isinstance(stacked, nn.Sequential) else stacked
    if not isinstance(linear, nn.Linear):
        raise ConfigError(f"only plain weights can be pruned, not those of {type(linear).__name__}: prune first")
    linear.weight, linear.out_features = _smaller(linear.weight, 0, rows), len(rows)
    if linear.bias is not None:
        linear.bias = _smaller(linear.bias, 0, rows)
    if isinstance(stacked, nn.Sequential) and isinstance(stacked[1], PartialBias):
        _keep_partial(stacked[1], kept)


def _keep_partial(partial: PartialBias, kept: Sequence[list[int]]) -> None:
    rows, start = [], 0
    for size, has, some in zip(partial.sizes, partial.biases, kept, strict=True):
        if has:
            rows += [start + row for row in some]
            start += size
    partial.bias = _smaller(partial.bias, 0, rows)
    partial.sizes = tuple(len(some) for some in kept)


def _keep_parameters(part: nn.Module, names: Iterable[str], kept: Sequence[int]) -> None:
    for name in names:
        parameter = getattr(part, name, None)
        if isinstance(parameter, nn.Parameter):
            setattr(part, name, _smaller(parameter, 0, kept))


def _keep_bias(bias: nn.Module | None, heads: Sequence[int], each: int) -> nn.Module | None:
    """The position term of these heads alone; a term that layers share is chosen from, one of its own is cut."""
    if isinstance(bias, SomeHeads):
        return SomeHeads(bias.bias, [bias.heads[head] for head in heads])
    if isinstance(bias, BucketBias | AlibiBias):
        return SomeHeads(bias, heads)
    if isinstance(bias, SinusoidalDistanceBias):
        rows = _rows(heads, each)
        bias.project.weight, bias.project.out_features = _smaller(bias.project.weight, 0, rows), len(rows)
        _keep_parameters(bias, PER_HEAD, heads)
        bias.heads = len(heads)
    return bias  # Shaw's is one for all heads


class SomeHeads(nn.Module):
    """A position term that several layers share, of which this one has some heads only."""

    def __init__(self, bias: BucketBias | AlibiBias, heads: Sequence[int]) -> None:
        super().__init__()
        self.bias, self.heads, self.inside = bias, list(heads), bias.inside

    def forward(self, q_BHLK: Tensor, k_BGMK: Tensor, position_BL: Tensor) -> Tensor:
        return self.bias(q_BHLK, k_BGMK, position_BL)[:, self.heads]
