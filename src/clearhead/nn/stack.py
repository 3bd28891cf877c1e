"""The stack: blocks one after another, and what reaches over several of them."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from clearhead.errors import ShapeError
from clearhead.nn.block import Block
from clearhead.nn.cache import LayerCache, State
from clearhead.nn.masks import EVERYTHING, Mask
from clearhead.tap import Tap

__all__ = ["COMBINATIONS", "DenseCombination", "Latest", "Stack"]


class Latest(nn.Module):
    """A layer reads the layer below it."""

    def forward(self, seen: list[Tensor]) -> Tensor:
        return seen[-1]


class DenseCombination(nn.Module):
    """A layer reads a learned mixture of all layers below it, each normalised: Σ_k W_lk LN(y_k) [wang2019 eq. 8].

    W starts as the plain average.
    """

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers + 1))
        rows = [torch.full((i + 1,), 1 / (i + 1)) for i in range(layers + 1)]
        self.weights = nn.ParameterList(rows)

    def forward(self, seen: list[Tensor]) -> Tensor:
        normed = torch.stack([norm(y) for norm, y in zip(self.norms, seen, strict=False)], dim=-1)
        return normed @ self.weights[len(seen) - 1]


# name -> (width, layers) -> what a layer reads of those below it
COMBINATIONS: dict[str, Callable[[int, int], nn.Module]] = {
    "latest": lambda width, layers: Latest(),
    "dense": DenseCombination,
}


class Stack(nn.Module):
    """`times` rounds of the blocks, then the norm. Block i is the child named `i`, so that its taps read `decoder.2.…`.

    times     more than one where layers share their weights (ALBERT)
    combine   what each layer reads of those below; the latest unless said otherwise
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        *,
        norm: nn.Module | None = None,
        combine: nn.Module | None = None,
        times: int = 1,
    ) -> None:
        super().__init__()
        if not blocks or times < 1:
            raise ShapeError(f"a stack needs at least one block and one round: blocks={len(blocks)}, {times=}")
        for i, block in enumerate(blocks):
            self.add_module(str(i), block)
        self.norm = nn.Identity() if norm is None else norm
        self.combine = Latest() if combine is None else combine
        self.see_output = Tap()
        self.rounds = [str(i) for _ in range(times) for i in range(len(blocks))]

    def __len__(self) -> int:
        return len(self.rounds)

    @property
    def layers(self) -> list[Block]:
        """The blocks in the order in which they run; shared ones occur more than once."""
        return [self._modules[name] for name in self.rounds]  # type: ignore[misc]

    @property
    def branches(self) -> bool:
        """Whether a slot of the cache need not be a position: no layer's score depends on where a key stands."""
        return all(block.attention.positions.bias is None for block in self.layers)

    def forward(
        self,
        x_BLD: Tensor,
        *,
        mask: Mask = EVERYTHING,
        context_BMD: Tensor | None = None,
        context_mask: Mask = EVERYTHING,
        state: State | None = None,
        projected_BLW: Tensor | None = None,
    ) -> tuple[Tensor, State | None]:
        """The stream after the last block and the norm, and the state with what was read in it.

        `projected_BLW` is what the first attention's `project` makes of x, where the caller has it more cheaply.
        """
        seen = [x_BLD]
        own: list[LayerCache] = []
        for i, block in enumerate(self.layers):
            x_BLD, cache = block(
                self.combine(seen),
                mask=mask,
                cache=None if state is None else state.own[i],
                context_BMD=context_BMD,
                context_mask=context_mask,
                context_cache=None if state is None or not state.cross else state.cross[i],
                projected_BLW=None if i else projected_BLW,
            )
            seen.append(x_BLD)
            own.append(cache)
        x_BLD = self.see_output(self.norm(self.combine(seen)))
        return x_BLD, None if state is None else state.after(tuple(own), x_BLD.shape[1])

    def start(self, room: int) -> tuple[LayerCache, ...]:
        """An empty cache for every layer, with that much room reserved at the first step."""
        return tuple(LayerCache(room=room) for _ in self.rounds)

    def remember(self, context_BMD: Tensor, mask: Mask) -> tuple[LayerCache, ...]:
        """Every layer's keys and values of the context."""
        return tuple(block.cross.remember(context_BMD, mask) for block in self.layers if block.cross is not None)

    def flops(self, batch: int, queries: int, keys: int, context: int = 0) -> int:
        """Floating-point operations of one forward pass."""
        return sum(block.flops(batch, queries, keys, context) for block in self.layers)
