"""Which positions of a right-padded batch are real, and the way from padded to packed and back.

A quarter of the positions of an ordinary batch is padding. What treats each position by itself (projections, norms,
feed-forward layers, the loss) can run on the N real tokens laid end to end; attention runs on the padded rows.

    padded (B, L, W)   a a a · | b b · · | c c c c        --pack-->    packed (1, N, W)   a a a b b c c c c
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from clearhead.errors import ShapeError

__all__ = ["Rows"]


@dataclass(frozen=True, eq=False)
class Rows:
    """Row b has `count_B[b]` real positions of `longest`; without counts, all are real. Build it by `Rows.of`."""

    longest: int
    count_B: Tensor | None = None
    full: bool = True  # no padding at all
    place_N: Tensor | None = None  # where each packed token stands among the B · L positions; None where nothing moves
    token_P: Tensor | None = None  # which packed token stands at each of these positions; at padding, the first one

    @staticmethod
    def of(count_B: Tensor | None, longest: int, *, batch: int | None = None, pack: bool = False) -> "Rows":
        """The rows of a batch (whose size, where given, is checked); `pack` is done where there is padding.

        While compiling, values cannot be looked at: nothing is packed, and padding is assumed.
        """
        if count_B is None:
            return Rows(longest)
        if count_B.dim() != 1 or batch not in (None, len(count_B)):
            raise ShapeError(f"{batch} rows need as many counts: count_B has shape {tuple(count_B.shape)}")
        if torch.compiler.is_compiling() or not count_B.numel():
            return Rows(longest, count_B, full=False)
        least, most = (int(x) for x in count_B.aminmax())
        if least < 0 or most > longest:
            raise ShapeError(f"a row of {longest} cannot have {least if least < 0 else most} real positions")
        rows = Rows(longest, count_B, full=least == longest)
        if rows.full or most == 0 or not pack:
            return rows
        real_P = rows.allowed_BM.flatten()
        place_N, token_P = real_P.nonzero().squeeze(1), (real_P.cumsum(0) - 1) * real_P
        return Rows(longest, count_B, False, place_N, token_P)

    @property
    def allowed_BM(self) -> Tensor:
        """True at the real positions; one row for all where all are."""
        if self.count_B is None:
            return torch.ones(1, self.longest, dtype=torch.bool)
        return torch.arange(self.longest, device=self.count_B.device) < self.count_B[:, None]

    def positions(self, device: torch.device) -> Tensor:
        """The position of each token in its row: (1, L), or (1, N) where packed."""
        if self.place_N is not None:
            return (self.place_N % self.longest)[None]
        return torch.arange(self.longest, device=device)[None]

    def pack(self, x_BLW: Tensor) -> Tensor:
        """The real tokens end to end: (B, L, …) -> (1, N, …); the identity where these rows are not packed."""
        if self.place_N is None:
            return x_BLW
        x_NW: Tensor = _Pack.apply(x_BLW.flatten(0, 1), self.place_N)
        return x_NW[None]

    def unpack(self, x_1NW: Tensor) -> Tensor:
        """Every token at its place: (1, N, …) -> (B, L, …); the identity where these rows are not packed.

        Padding holds the first real token, as a constant: finite, and without a gradient.
        """
        if self.place_N is None:
            return x_1NW
        x_PW: Tensor = _Unpack.apply(x_1NW[0], self.place_N, self.token_P)
        return x_PW.unflatten(0, (-1, self.longest))

    def last(self, x_BLW: Tensor) -> Tensor:
        """(B, 1, …): what stands at the last real position of each row of a padded batch."""
        if self.count_B is None:
            return x_BLW[:, -1:]
        return x_BLW[torch.arange(len(x_BLW), device=x_BLW.device), self.count_B - 1][:, None]


# Each real token occurs exactly once on both sides. So both gradients are copies too, where PyTorch, which cannot know,
# would add up rows one by one.


class _Pack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_PW: Tensor, place_N: Tensor) -> Tensor:
        ctx.save_for_backward(place_N)
        ctx.shape = x_PW.shape
        return x_PW.index_select(0, place_N)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (place_N,) = ctx.saved_tensors
        return grads[0].new_zeros(ctx.shape).index_copy_(0, place_N, grads[0]), None


class _Unpack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_NW: Tensor, place_N: Tensor, token_P: Tensor) -> Tensor:
        ctx.save_for_backward(place_N)
        return x_NW.index_select(0, token_P)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (place_N,) = ctx.saved_tensors
        return grads[0].index_select(0, place_N), None, None
