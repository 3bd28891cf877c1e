"""The coverage penalty [wu2016]: a translation that never looked at some source word is worth less.

coverage(Y) = β · Σ_i log min(Σ_j a_ij, 1)          a_ij what target word j looked at source word i
"""

from collections.abc import Callable

import torch
from torch import Tensor

from clearhead.errors import DecodingError

__all__ = ["Coverage"]


class Coverage:
    """What each hypothesis has looked at so far; nothing is kept where there is no penalty.

    attention   what each token of the last step looked at, (B, T, source); first comes the prompt, of `count_B` tokens
    """

    def __init__(self, penalty: float, attention: Callable[[], Tensor] | None, count_B: Tensor | None = None) -> None:
        if penalty and attention is None:
            raise DecodingError(f"this model has no source to cover: coverage_penalty={penalty} must be 0")
        self.penalty, self.attention, self.count_B = penalty, attention, count_B
        self.looked_BTM: Tensor | None = None

    def add(self, shape: tuple[int, ...]) -> list[list[float]]:
        """The penalty of each hypothesis, the last step's looks included."""
        if not self.penalty or self.attention is None:
            return [[0.0] * shape[1]] * shape[0]
        looks_BTM = self.attention()
        if self.looked_BTM is None:  # the tokens of a prompt are one hypothesis
            self.looked_BTM = _real(looks_BTM, self.count_B).sum(1, keepdim=True)
        else:
            looks_BTM = looks_BTM.reshape(*self.looked_BTM.shape[:2], -1)
            # Where the longest source has left, so have the positions that were padding to all others.
            self.looked_BTM = self.looked_BTM[..., : looks_BTM.shape[-1]] + looks_BTM
        # Padding was looked at by nobody, and wants to be looked at by nobody.
        real_B1M = self.looked_BTM.amax(1, keepdim=True) > 0
        covered_BTM = torch.where(real_B1M, self.looked_BTM.clamp(max=1), 1.0)
        penalties: list[list[float]] = (self.penalty * covered_BTM.log().sum(-1)).tolist()
        return penalties

    def select(self, row_B: Tensor) -> None:
        self.looked_BTM = None if self.looked_BTM is None else self.looked_BTM[row_B]

    def descend(self, parent_BT: Tensor) -> None:
        if self.looked_BTM is not None:
            row_B1 = torch.arange(len(parent_BT), device=parent_BT.device)[:, None]
            self.looked_BTM = self.looked_BTM[row_B1, parent_BT]


def _real(looks_BTM: Tensor, count_B: Tensor | None) -> Tensor:
    """The looks of padding are none."""
    if count_B is None:
        return looks_BTM
    real_BT = torch.arange(looks_BTM.shape[1], device=looks_BTM.device) < count_B[:, None]
    return torch.where(real_BT[..., None], looks_BTM, 0.0)
