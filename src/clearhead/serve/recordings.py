"""What the explorer has seen, under ids that nobody can guess: as much as fits, the oldest given up first."""

import secrets
from collections import OrderedDict
from typing import final

from clearhead.tasks.inspecting import Inspection

__all__ = ["Recordings"]


@final
class Recordings:
    """Inspections by id, of so many bytes and so many in number at most.

    What an inspection has recorded grows with what is asked of it; `trim` after each answer keeps the bound. The last
    one that is left loses its tensors instead, which come again when they are asked for.
    """

    def __init__(self, limit: int, count: int) -> None:
        self.limit, self.count = limit, count
        self._kept: OrderedDict[str, Inspection] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for one in self._kept.values())

    def add(self, inspection: Inspection) -> str:
        """Keep it, and say under which id."""
        id = secrets.token_urlsafe(12)
        self._kept[id] = inspection
        self.trim()
        return id

    def get(self, id: str) -> Inspection | None:
        """The inspection of that id, now the youngest; None where it is not there, or no longer."""
        if id in self._kept:
            self._kept.move_to_end(id)
        return self._kept.get(id)

    def trim(self) -> None:
        """Give up the oldest until the rest fits."""
        while len(self._kept) > self.count or (self.nbytes > self.limit and len(self._kept) > 1):
            self._kept.popitem(last=False)
        if self.nbytes > self.limit:
            next(iter(self._kept.values())).forget()
