"""Which attention of a model is meant, by number or by name, and what passes it while a text is read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from clearhead.draw.figure import COLUMN, Sheet
from clearhead.errors import ConfigError, DataError
from clearhead.look.ablate import attention_at
from clearhead.look.recording import Recording
from clearhead.nn.attention import MultiHeadAttention
from clearhead.tasks.viewing import AttentionPlace, View

__all__ = ["LIMIT", "SIDES", "Asked", "Spot", "array", "heads_of", "labels_of", "spot_of", "spots_of", "weights_of"]

# how people call an attention -> what `AttentionPlace` calls it; of several the first that a model has is usual
SIDES = {"cross": "cross", "decoder": "masked", "encoder": "self"}
LIMIT = 2 << 30  # bytes of what may be recorded for one picture


@dataclass(frozen=True)
class Asked:
    """What is to be drawn: of which layer, heads, side and position, where anything is said of them.

    layer      a number, counted from 0, or a name: `decoder.1.cross`, `decoder.1`, any of its taps
    heads      counted from 0
    side       `encoder`, `decoder` or `cross`
    position   counted from 0, or from the end as -1
    """

    layer: int | str | None = None
    heads: tuple[int, ...] = ()
    side: str | None = None
    position: int | None = None
    on: Sheet = COLUMN


class Spot(NamedTuple):
    """One attention in one layer: layers that share an attention pass it in turn."""

    place: AttentionPlace
    layer: int
    turn: int

    @property
    def name(self) -> str:
        return self.place.name


def spots_of(view: View, side: str | None) -> list[Spot]:
    """The attentions of that side, of each layer one; without a side, those that are usual for the model."""
    places = {place.name: place for place in view.viewer.attentions()}
    kinds = {place.kind for place in places.values()}
    if side is not None and side not in SIDES:
        raise ConfigError(f"attention is looked at on one of the sides {', '.join(SIDES)}, not {side!r}")
    kind = next(kind for kind in SIDES.values() if kind in kinds) if side is None else SIDES[side]
    if kind not in kinds:
        there = [name for name, known in SIDES.items() if known in kinds]
        raise ConfigError(f"this model has no {side} attention; it is a {view.viewer.mode} with {', '.join(there)}")
    stack_name, part = next((n.split(".")[0], n.split(".")[-1]) for n, p in places.items() if p.kind == kind)
    found: list[Spot] = []
    for layer, named in enumerate(view.viewer.model.get_submodule(stack_name).rounds):
        name = f"{stack_name}.{named}.{part}"
        if name in places:
            found.append(Spot(places[name], layer, sum(spot.name == name for spot in found)))
    return found


def spot_of(view: View, asked: Asked) -> Spot:
    """The attention that is meant; where no layer is named, that of the last but one."""
    if isinstance(asked.layer, str):
        return _by_name(view, asked.layer, asked.side)
    spots = spots_of(view, asked.side)
    if asked.layer is None:
        return spots[max(0, len(spots) - 2)]
    for spot in spots:
        if spot.layer == asked.layer:
            return spot
    raise ConfigError(f"there are the layers {spots[0].layer} to {spots[-1].layer}, counted from 0, not {asked.layer}")


def _by_name(view: View, name: str, side: str | None) -> Spot:
    """By the name of an attention, of one of its taps, or of a block together with the side."""
    spots = [spot for one in ((side,) if side else _sides(view)) for spot in spots_of(view, one)]
    for spot in spots:
        if name == spot.name or name.startswith(f"{spot.name}.") or spot.name.startswith(f"{name}."):
            return spot
    raise ConfigError(f"no attention is named {name!r}; there are {', '.join(dict.fromkeys(s.name for s in spots))}")


def _sides(view: View) -> list[str]:
    kinds = {place.kind for place in view.viewer.attentions()}
    return [side for side, kind in SIDES.items() if kind in kinds]


def heads_of(spot: Spot, asked: Asked) -> tuple[int, ...]:
    """The heads that were asked for, or all."""
    count = spot.place.heads
    for head in asked.heads:
        if not 0 <= head < count:
            raise ConfigError(f"{spot.name} has the heads 0 to {count - 1}, and no head {head}")
    return asked.heads or tuple(range(count))


def weights_of(view: View, spots: Sequence[Spot]) -> list[NDArray[np.float64]]:
    """The attention weights of each of them, (heads, queries, keys)."""
    seen = view.seen(list(dict.fromkeys(f"{spot.name}.weights" for spot in spots)), limit=LIMIT)
    return [array(seen, f"{spot.name}.weights", spot) for spot in spots]


def array(seen: Recording, name: str, spot: Spot) -> NDArray[np.float64]:
    """What passed that tap in the turn of that layer, of the only row."""
    values: list[Tensor] = seen[name].values
    return np.asarray(values[spot.turn][0].double().numpy())


def labels_of(view: View, spot: Spot) -> tuple[list[str], list[str]]:
    """The tokens that ask, and those that answer; learned slots of memory stand before these."""
    attention: Any = attention_at(view.viewer.model, spot.name)
    slots = 0 if not isinstance(attention, MultiHeadAttention) or attention.memory is None else attention.memory.slots
    queries, keys = (list(view.sides[side].tokens) for side in (spot.place.queries, spot.place.keys))
    if not queries or not (keys or slots):
        raise DataError("there is no token to look at: give a text that is not empty")
    return queries, [*(f"slot {number}" for number in range(slots)), *keys]
