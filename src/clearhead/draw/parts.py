"""Parts of pictures: a vector as a strip of squares, a matrix in a frame of its role, a word between two of them."""

import numpy as np
from numpy.typing import NDArray

from clearhead.draw.canvas import SIZE, SMALL, Canvas, Point
from clearhead.draw.matrix import Field, put
from clearhead.draw.palette import ROLES
from clearhead.draw.scale import Floats, Scale
from clearhead.draw.words import fit, number, width_of, wrap

__all__ = ["block", "note", "strip", "value_line"]


def strip(c: Canvas, at: Point, room: float, values: Floats, scale: Scale, role: str | None = None) -> float:
    """A vector as a row of squares, as many of its numbers as the room holds and then an ellipsis; gives its width."""
    side, whole = 8.0, len(values)
    fits = int(room // side) if whole * side <= room else max(1, int((room - 7) // side))
    shown = values[:fits]
    c.squares(at, (side, side), scale.colours(shown[None]), vector=True)
    c.box(at, (side * len(shown), side), edge=ROLES[role].colour if role else c.theme.faint)
    if len(shown) < whole:
        c.text((at[0] + side * len(shown) + 1, at[1] + side / 2), "…", size=SMALL, align=("left", "center"))
    return side * len(shown)


def block(
    c: Canvas,
    at: Point,
    room: Point,
    values: Floats,
    scale: Scale,
    *,
    name: str,
    role: str | None = None,
    masked: NDArray[np.bool_] | None = None,
) -> Point:
    """A matrix as large as the room allows, its name and shape above it, framed in the colour of its role."""
    rows, columns = values.shape
    side = min(room[0] / columns, room[1] / rows, 20.0)
    cell = (max(side, min(room[0] / columns, 5.0)), max(side, min(room[1] / rows, 8.0)))
    size = (cell[0] * columns, cell[1] * rows)
    shape = f"{rows} × {columns}"
    middle = at[0] + max(size[0], width_of(name, SIZE), width_of(shape, SMALL)) / 2
    c.text((middle, at[1] + 4), name, size=SIZE, colour=c.tone(role) if role else None)
    c.text((middle, at[1] + 12), shape, size=SMALL, colour=c.theme.faint)
    place = (at[0], at[1] + 17)
    hidden = np.zeros(values.shape, dtype=bool) if masked is None else masked
    put(c, place, cell, Field(values, scale, masked=hidden))
    if role:
        c.box(place, size, edge=ROLES[role].colour)
    return size[0], size[1] + 17


def note(c: Canvas, y: float, text: str) -> float:
    """Small words over the whole width; gives the y below them."""
    lines = wrap(text, c.width, SMALL)
    for i, line in enumerate(lines):
        c.text((c.left, y + 4 + i * 7.5), line, size=SMALL, colour=c.theme.faint, align=("left", "center"))
    return y + len(lines) * 7.5


def value_line(c: Canvas, at: Point, room: float, value: float, *, bold: bool = False) -> None:
    """One number, centred in its room."""
    c.text((at[0] + room / 2, at[1] + 4), fit(number(value), room, SIZE), bold=bold)
