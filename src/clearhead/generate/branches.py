"""Several hypotheses of each row, as the model sees them: in one shared cache where it can, side by side where not."""

from typing import Any, Protocol

import torch
from torch import Tensor

from clearhead.generate.step import Step

__all__ = ["Branches", "CopiedBranches", "SharedBranches", "branches_of"]


class Branches(Protocol):
    """T hypotheses of each of B rows."""

    def advance(self, parent_BT: Tensor, token_BT: Tensor) -> Tensor:
        """Let T branches go on from these parents with these tokens: the logits of what follows, (B, T, V).

        Before the first call each row has one branch, what it has read.
        """

    def select(self, row_B: Tensor) -> None:
        """Go on with these rows alone."""


class SharedBranches:
    """Branches that share the cache of their row: nothing is copied, and the source is read once for all of them."""

    def __init__(self, model: Step, state: Any) -> None:
        self.model, self.state = model, state

    def advance(self, parent_BT: Tensor, token_BT: Tensor) -> Tensor:
        logits_BTV, self.state = self.model.step(token_BT, self.state.branch(parent_BT))
        return logits_BTV

    def select(self, row_B: Tensor) -> None:
        self.state = self.state.select(row_B)


class CopiedBranches:
    """Each branch a row of its own: for every model whose state can be selected from."""

    def __init__(self, model: Step, state: Any) -> None:
        self.model, self.state = model, state
        self.width = 1

    def advance(self, parent_BT: Tensor, token_BT: Tensor) -> Tensor:
        row_B1 = torch.arange(len(parent_BT), device=parent_BT.device)[:, None]
        self._select((row_B1 * self.width + parent_BT).flatten(), len(parent_BT) * self.width)
        self.width = token_BT.shape[1]
        logits_NTV, self.state = self.model.step(token_BT.reshape(-1, 1), self.state)
        return logits_NTV.view(*token_BT.shape, -1)

    def select(self, row_B: Tensor) -> None:
        branch_T = torch.arange(self.width, device=row_B.device)
        self.state = self.state.select((row_B[:, None] * self.width + branch_T).flatten())

    def _select(self, branch_N: Tensor, before: int) -> None:
        if branch_N.tolist() != list(range(before)):  # where every beam goes on as it was, nothing moves
            self.state = self.state.select(branch_N)


def branches_of(model: Step, state: Any) -> Branches:
    """The cheapest that the model can do."""
    return SharedBranches(model, state) if model.branches else CopiedBranches(model, state)
