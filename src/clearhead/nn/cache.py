"""Caches: the keys and values of what has been read, as values that go in and come out.

A cache is append-only storage plus a length per row. Extending writes into spare room, with no copy of the past, and
an older value stays valid because it sees only its own length. The storage knows which value was written last: a
*second* extension of an older value (a fork: beams, a forced word, a kept prompt) copies. Position m of a row lies in
slot m of that row, always: batches are padded on the right and rows of different lengths need no special case.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from clearhead.errors import ShapeError
from clearhead.nn.masks import Mask
from clearhead.nn.tree import Tree

__all__ = ["LayerCache", "State"]


class _Mark:
    """What a storage and the newest value on it have in common; compilers follow it where they stop at `object()`."""


class _Storage:
    """Room for keys and values; `mark` is the one of the value that was written last."""

    def __init__(self, keys_BGMK: Tensor, values_BGMK: Tensor, *, mark: _Mark | None = None) -> None:
        self.keys_BGMK = keys_BGMK
        self.values_BGMK = values_BGMK
        self.mark = mark


@dataclass(frozen=True, eq=False)
class LayerCache:
    """What one attention layer remembers: `length` positions, or `length_B` of them where the rows differ.

    room    positions to reserve at the first extension; a cache that outgrows its room doubles
    """

    room: int = 0
    length: int = 0
    length_B: Tensor | None = None
    storage: _Storage | None = None
    mark: _Mark | None = None

    @staticmethod
    def of(keys_BGMK: Tensor, values_BGMK: Tensor, count_B: Tensor | None = None) -> "LayerCache":
        """A cache that holds just these, as cross-attention keeps of the source."""
        longest = keys_BGMK.shape[2]
        return LayerCache(longest, longest, count_B)._in(keys_BGMK, values_BGMK)

    @property
    def keys_BGMK(self) -> Tensor:
        return self._filled().keys_BGMK[:, :, : self.length]

    @property
    def values_BGMK(self) -> Tensor:
        return self._filled().values_BGMK[:, :, : self.length]

    def positions(self, new: int, device: torch.device) -> Tensor:
        """Where the next `new` positions stand: (1, L), or (B, L) where the rows differ in length."""
        if self.length_B is None:
            return torch.arange(self.length, self.length + new, device=device)[None]
        return self.length_B[:, None] + torch.arange(new, device=device)

    def extend(self, k_BGTK: Tensor, v_BGTK: Tensor, count_B: Tensor | None = None) -> "LayerCache":
        """The cache with T more positions; of row b only the first `count_B[b]` are real, the rest is padding."""
        new = k_BGTK.shape[2]
        storage = self._with_room_for(self.length + new, k_BGTK, v_BGTK)
        if self.length_B is None:
            storage.keys_BGMK.narrow(2, self.length, new).copy_(k_BGTK)
            storage.values_BGMK.narrow(2, self.length, new).copy_(v_BGTK)
        else:
            row_B1 = torch.arange(len(k_BGTK), device=k_BGTK.device)[:, None]
            slot_BT = self.positions(new, k_BGTK.device)
            storage.keys_BGMK[row_B1, :, slot_BT] = k_BGTK.transpose(1, 2)
            storage.values_BGMK[row_B1, :, slot_BT] = v_BGTK.transpose(1, 2)
        storage.mark = mark = _Mark()
        if count_B is None and self.length_B is None:
            return LayerCache(self.room, self.length + new, None, storage, mark)
        before_B = k_BGTK.new_full((len(k_BGTK),), self.length, dtype=torch.long)
        length_B = (before_B if self.length_B is None else self.length_B) + (new if count_B is None else count_B)
        return LayerCache(self.room, max(length_B.tolist(), default=0), length_B, storage, mark)

    def rewind(self, length_B: Tensor) -> "LayerCache":
        """The first `length_B` positions. Later ones will be written over: this value must not be used again."""
        storage = self._filled()
        if storage.mark is not self.mark:  # somebody else went on from here, and keeps what was written
            storage = _Storage(*(_grown(x, self.capacity) for x in (self.keys_BGMK, self.values_BGMK)))
        storage.mark = mark = _Mark()
        return LayerCache(self.room, max(length_B.tolist(), default=0), length_B, storage, mark)

    def view(self, length: int) -> tuple[Tensor, Tensor]:
        """Keys and values of the first `length` slots, padding of the newest extension included."""
        storage = self._filled()
        return storage.keys_BGMK.narrow(2, 0, length), storage.values_BGMK.narrow(2, 0, length)

    def select(self, row_B: Tensor) -> "LayerCache":
        """These rows, in this order, each as often as it is named."""
        if self.storage is None:
            return self
        length_B = None if self.length_B is None else self.length_B[row_B]
        longest = (self.length if length_B is None else int(length_B.max())) if len(row_B) else 0
        selected = (_grown(x.index_select(0, row_B), self.capacity) for x in (self.keys_BGMK, self.values_BGMK))
        return LayerCache(self.room, longest, length_B)._in(*selected)

    def pick(self, slot_BM: Tensor, length_B: Tensor | None) -> "LayerCache":
        """These slots of each row alone, in this order."""
        storage = self._filled()
        slot_BGMK = slot_BM[:, None, :, None].expand(-1, storage.keys_BGMK.shape[1], -1, storage.keys_BGMK.shape[3])
        picked = (_grown(x.gather(2, slot_BGMK), self.capacity) for x in (storage.keys_BGMK, storage.values_BGMK))
        return LayerCache(self.room, slot_BM.shape[1], length_B)._in(*picked)

    def join(self, other: "LayerCache") -> "LayerCache":
        """The rows of both, one batch after the other."""
        if self.storage is None or other.storage is None:
            raise ShapeError("a cache that nothing was written to has no rows to join: extend both first")
        length = max(self.length, other.length)
        capacity = max(self.capacity, other.capacity)
        pairs = ((self.keys_BGMK, other.keys_BGMK), (self.values_BGMK, other.values_BGMK))
        joined = (torch.cat([_grown(a, capacity), _grown(b, capacity)]) for a, b in pairs)
        same = self.length_B is None and other.length_B is None and self.length == other.length
        length_B = None if same else torch.cat([self._lengths(), other._lengths()])
        return LayerCache(max(self.room, other.room), length, length_B)._in(*joined)

    @property
    def capacity(self) -> int:
        return self._filled().keys_BGMK.shape[2]

    def _in(self, keys_BGMK: Tensor, values_BGMK: Tensor) -> "LayerCache":
        """This value, in a storage of its own."""
        return replace(self, storage=_Storage(keys_BGMK, values_BGMK, mark=self.mark))

    def _lengths(self) -> Tensor:
        if self.length_B is not None:
            return self.length_B
        return self.keys_BGMK.new_full((len(self.keys_BGMK),), self.length, dtype=torch.long)

    def _filled(self) -> _Storage:
        if self.storage is None:
            raise ShapeError("this cache is empty: nothing was written to it yet")
        return self.storage

    def _with_room_for(self, length: int, k_BGTK: Tensor, v_BGTK: Tensor) -> _Storage:
        """The own storage where it has room and nobody wrote after us; otherwise a new one with our past in it."""
        if self.storage is None:
            room = max(length, self.room)
            return _Storage(*(_grown(x[:, :, :0], room) for x in (k_BGTK, v_BGTK)))
        if k_BGTK.shape[0] != self.storage.keys_BGMK.shape[0]:
            raise ShapeError(
                f"cache of {len(self.keys_BGMK)} rows cannot take {len(k_BGTK)} new ones: select rows first"
            )
        if self.storage.mark is self.mark and length <= self.capacity:
            return self.storage
        capacity = self.capacity if length <= self.capacity else max(length, 2 * self.capacity)
        return _Storage(*(_grown(x, capacity) for x in (self.keys_BGMK, self.values_BGMK)))


def _grown(x_BGMK: Tensor, capacity: int) -> Tensor:
    """A copy with room for `capacity` positions.

    The room holds zeros, because a shorter row's unwritten slots are read with weight zero beside a longer row, and
    zero times whatever lay in memory may be NaN.
    """
    grown = x_BGMK.new_zeros(*x_BGMK.shape[:2], capacity, x_BGMK.shape[3])
    grown[:, :, : x_BGMK.shape[2]] = x_BGMK
    return grown


@dataclass(frozen=True, eq=False)
class State:
    """What a generating model carries from step to step: a cache per layer, and one per layer of the source."""

    own: tuple[LayerCache, ...]
    cross: tuple[LayerCache, ...] = ()
    tree: Tree | None = None

    def positions(self, new: int, device: torch.device) -> Tensor:
        """Where the next `new` tokens stand."""
        return (self.own[0] if self.tree is None else self.tree).positions(new, device)

    def mask(self, position_BT: Tensor) -> Mask:
        """What the next tokens, which stand at these positions, see: themselves and the past, or each its own path."""
        return Mask(causal=True, position_BL=position_BT) if self.tree is None else self.tree.mask(position_BT)

    def after(self, own: tuple[LayerCache, ...], new: int) -> "State":
        """The state when `new` more tokens were read."""
        return State(own, self.cross, None if self.tree is None else self.tree.grown(new))

    def select(self, row_B: Tensor) -> "State":
        """These rows, in this order: beams that survive, sentences that go on."""
        return State(
            tuple(cache.select(row_B) for cache in self.own),
            tuple(cache.select(row_B) for cache in self.cross),
            None if self.tree is None else self.tree.select(row_B),
        )

    def join(self, other: "State") -> "State":
        """The rows of both: requests that join a running batch."""
        if self.tree is not None or other.tree is not None:
            raise ShapeError("rows with branches cannot be joined: their trees differ in shape")
        return State(
            tuple(a.join(b) for a, b in zip(self.own, other.own, strict=True)),
            tuple(a.join(b) for a, b in zip(self.cross, other.cross, strict=True)),
        )

    def branch(self, parent_BT: Tensor) -> "State":
        """T branches of each row, each going on from the parent named; before the first, each row is its own parent.

        From now on the tokens of a step are one for each branch.
        """
        tree = self.tree
        if tree is None:
            trunk_B = self.own[0].length if self.own[0].length_B is None else self.own[0].length_B
            tree = Tree(trunk_B, torch.ones(len(parent_BT), 1, 0, dtype=torch.bool, device=parent_BT.device))
        tree = tree.descend(parent_BT)
        place_BS = tree.living()
        if place_BS is None:
            return State(self.own, self.cross, tree)
        tree, slot_BM = tree.pruned(place_BS)
        length_B = None if isinstance(tree.trunk_B, int) else tree.trunk_B + place_BS.shape[1]
        return State(tuple(cache.pick(slot_BM, length_B) for cache in self.own), self.cross, tree)

    def rewind(self, length_B: Tensor) -> "State":
        """What was read up to these lengths; the rest is given up: the state itself must not be used any more."""
        return State(tuple(cache.rewind(length_B) for cache in self.own), self.cross)
