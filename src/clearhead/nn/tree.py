"""Branches of a row that share its cache: how beam search goes on from several hypotheses without copying any."""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.nn.masks import Mask

__all__ = ["Tree"]

FEW = 64  # slots that are not worth clearing


@dataclass(frozen=True, eq=False)
class Tree:
    """Branches of each row that share its cache: T hypotheses, each of them a path through what was tried.

    The slots after the trunk hold every token that any branch ever read, and a branch sees those on its own path: a
    beam that is reordered moves a few flags, and no key or value at all.

    trunk_B   slots of each row that all its branches see; one number where the rows agree
    seen_BTS  which of the S slots after the trunk lie on each branch's path
    depth     how many these are
    """

    trunk_B: Tensor | int
    seen_BTS: Tensor
    depth: int = 0

    def positions(self, new: int, device: torch.device) -> Tensor:
        """Where each branch's next token stands: all branches of a row at the same place."""
        if isinstance(self.trunk_B, int):
            return torch.full((1, new), self.trunk_B + self.depth, device=device)
        return (self.trunk_B + self.depth)[:, None].expand(-1, new)

    def mask(self, position_BT: Tensor) -> Mask:
        """Each branch sees the trunk, its own path and its own new token."""
        new, device = position_BT.shape[1], position_BT.device
        seen_BTS = self._with_new(new)
        if isinstance(self.trunk_B, int):
            trunk_BTM = seen_BTS.new_ones(*seen_BTS.shape[:2], self.trunk_B)
            allowed_BTM = torch.cat([trunk_BTM, seen_BTS], dim=2)
        else:
            slots = seen_BTS.shape[2]
            slot_BM = torch.arange(int(self.trunk_B.max()) + slots, device=device) - self.trunk_B[:, None]
            place_BTM = slot_BM.clamp(0, slots - 1)[:, None].expand(-1, new, -1)
            inside_B1M = (slot_BM < slots)[:, None]
            allowed_BTM = ((slot_BM < 0)[:, None] | seen_BTS.gather(2, place_BTM)) & inside_B1M
        return Mask(allowed=allowed_BTM[:, None], position_BL=position_BT)

    def grown(self, new: int) -> "Tree":
        """After each branch has read one token."""
        return Tree(self.trunk_B, self._with_new(new), self.depth + 1)

    def descend(self, parent_BT: Tensor) -> "Tree":
        """The branches that go on from these ones, each as often as it is named."""
        paths_BTS = parent_BT[:, :, None].expand(-1, -1, self.seen_BTS.shape[2])
        return Tree(self.trunk_B, self.seen_BTS.gather(1, paths_BTS), self.depth)

    def select(self, row_B: Tensor) -> "Tree":
        """The branches of these rows."""
        trunk_B = self.trunk_B if isinstance(self.trunk_B, int) else self.trunk_B[row_B]
        return Tree(trunk_B, self.seen_BTS[row_B], self.depth)

    def living(self) -> Tensor | None:
        """The slots after the trunk that lie on some path, (B, fewer), where these are less than half of all.

        Rows that have fewer name some that nobody sees.
        """
        slots = self.seen_BTS.shape[2]
        if slots < FEW:
            return None
        alive_BS = self.seen_BTS.any(1)
        most = int(alive_BS.sum(1).max())
        return alive_BS.int().sort(dim=1, descending=True, stable=True).indices[:, :most] if 2 * most < slots else None

    def pruned(self, place_BS: Tensor) -> tuple["Tree", Tensor]:
        """The tree with these slots after the trunk alone, and where the slots of its cache lay before."""
        most = place_BS.shape[1]
        trunk_B = torch.as_tensor(self.trunk_B, device=place_BS.device).expand(len(place_BS))
        slot_BM = torch.arange(int(trunk_B.max()) + most, device=place_BS.device) - trunk_B[:, None]
        after_BM = trunk_B[:, None] + place_BS.gather(1, slot_BM.clamp(0, most - 1))
        seen_BTS = self.seen_BTS.gather(2, place_BS[:, None].expand(-1, self.seen_BTS.shape[1], -1))
        return Tree(self.trunk_B, seen_BTS, self.depth), torch.where(slot_BM < 0, slot_BM + trunk_B[:, None], after_BM)

    def _with_new(self, new: int) -> Tensor:
        own_BTT = torch.eye(new, dtype=torch.bool, device=self.seen_BTS.device).expand(len(self.seen_BTS), -1, -1)
        return torch.cat([self.seen_BTS, own_BTT], dim=2)
