"""Masks: who may look at whom.

True = may look. A mask is a value with a few fields, not a big tensor: the causal triangle stays a flag for as long
as the kernel can take a flag, and a dense tensor is built only where there is no other way. Masks are joined with `&`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from clearhead.errors import ShapeError
from clearhead.nn.rows import Rows

__all__ = ["EVERYTHING", "MASKS", "Mask", "causal", "graph", "padding", "prefix", "window"]


@dataclass(frozen=True, eq=False)
class Mask:
    """Who may look at whom, and how the rows of the batch lie.

    causal    only at oneself and the past
    window    only at positions less than this far away
    prefix_B  with `causal`: everybody may look at this many first positions all the same
    keys      which keys are real (the others are padding)
    queries   which queries are real; only the layout matters, padding may look wherever it likes
    allowed   any further boolean tensor that broadcasts to (B, H, L, M), such as the adjacency matrix of a graph
    position_BL  where the queries stand, if not one after the other behind what the cache holds (branches of a tree)
    """

    causal: bool = False
    window: int | None = None
    prefix_B: Tensor | None = None
    keys: Rows | None = None
    queries: Rows | None = None
    allowed: Tensor | None = None
    position_BL: Tensor | None = None

    def __and__(self, other: "Mask") -> "Mask":
        """Both must agree that somebody may look."""
        masks = (self, other)
        windows = [m.window for m in masks if m.window is not None]
        prefixes = [m.prefix_B for m in masks if m.causal and m.prefix_B is not None]
        if any(m.causal and m.prefix_B is None for m in masks):
            prefixes = []  # the plain triangle lies within every prefix triangle
        allowed = [m.allowed for m in masks if m.allowed is not None]
        if self.keys is not None and other.keys is not None:
            allowed.append(other.keys.allowed_BM[:, None, None, :])
        return Mask(
            causal=self.causal or other.causal,
            window=min(windows, default=None),
            prefix_B=reduce(torch.minimum, prefixes) if prefixes else None,
            keys=self.keys if self.keys is not None else other.keys,
            queries=self.queries if self.queries is not None else other.queries,
            allowed=reduce(torch.logical_and, allowed) if allowed else None,
            position_BL=self.position_BL if self.position_BL is not None else other.position_BL,
        )

    def resolve(self, position_BL: Tensor, keys: int, aligned: bool) -> tuple[bool, Tensor | None]:
        """The causal flag and the dense remainder (None = nothing more to say), for queries at `position_BL`.

        `aligned` says that the last query stands at the last key in every row, which is what the flag means.
        """
        flag = self.causal and aligned and self.prefix_B is None
        parts = []
        if self.window is not None or (self.causal and not flag):
            position_M = torch.arange(keys, device=position_BL.device)
            distance_BLM = position_BL[:, :, None] - position_M
            if self.causal and not flag:
                past_BLM = distance_BLM >= 0
                if self.prefix_B is not None:
                    past_BLM = past_BLM | (position_M < self.prefix_B[:, None, None])
                parts.append(past_BLM[:, None])
            if self.window is not None:
                parts.append((distance_BLM.abs() < self.window)[:, None])
        if self.keys is not None and not self.keys.full:
            parts.append(self.keys.allowed_BM[:, None, None, :])
        if self.allowed is not None:
            parts.append(self.allowed)
        return flag, reduce(torch.logical_and, parts) if parts else None

    def dense(self, queries: int, keys: int, device: torch.device | None = None) -> Tensor:
        """The whole mask as one boolean tensor that broadcasts to (B, H, queries, keys)."""
        position_BL = torch.arange(keys - queries, keys, device=device)[None]
        _, allowed = self.resolve(position_BL, keys, aligned=False)
        return torch.ones(1, 1, queries, keys, dtype=torch.bool, device=device) if allowed is None else allowed


EVERYTHING = Mask()


def causal() -> Mask:
    """Each position sees itself and what came before.

    >>> causal().dense(3, 3)[0, 0].int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    return Mask(causal=True)


def window(size: int) -> Mask:
    """Each position sees those less than `size` away, on both sides.

    >>> window(2).dense(3, 3)[0, 0].int().tolist()
    [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    """
    if size < 1:
        raise ShapeError(f"a window must hold at least the position itself: {size=}")
    return Mask(window=size)


def prefix(count_B: Tensor) -> Mask:
    """Causal, except that everybody sees the first `count_B` positions (a prefix language model)."""
    return Mask(causal=True, prefix_B=count_B)


def padding(rows: Rows) -> Mask:
    """Only real keys are seen, those that `rows` counts."""
    return Mask(keys=rows)


def graph(adjacency_MM: Tensor) -> Mask:
    """Node i sees node j where there is an edge: attention as message passing."""
    return Mask(allowed=adjacency_MM.bool())


# How to build each kind for `size` positions; the contract tests go through all of them.
MASKS: dict[str, Callable[[int], Mask]] = {
    "everything": lambda size: EVERYTHING,
    "causal": lambda size: causal(),
    "window": lambda size: window(max(1, size // 2)),
    "causal_window": lambda size: causal() & window(max(1, size // 2)),
    "prefix": lambda size: prefix(torch.tensor([size // 2])),
    "padding": lambda size: padding(Rows.of(torch.tensor([max(1, size - 1)]), size)),
    "path_graph": lambda size: graph(torch.eye(size) + torch.diag(torch.ones(size - 1), 1)),
}
