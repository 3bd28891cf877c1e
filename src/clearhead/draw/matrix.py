"""A matrix: rows that ask at the left, columns that are asked on top, a colour for each number, and a legend.

`Field` is the same without a sheet of its own; the other figures are put together from it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clearhead.draw.canvas import BIG, SIZE, SMALL, Canvas, Point, ink_on
from clearhead.draw.figure import COLUMN, Figure, Sheet
from clearhead.draw.palette import GLYPHS, MASKED
from clearhead.draw.scale import Floats, Scale, as_array, mask_of, scale_for
from clearhead.draw.words import fit, number, tokens_for, width_of, wrap

__all__ = ["LARGEST", "Field", "legend", "matrix", "put", "title", "upright"]

VECTORS = 1600  # cells up to which each is a shape of its own; more become one image
FINEST = 1.5  # points, of a cell that is such a shape
LARGEST = 22.0  # points, of a cell
LEAST = 4.4  # points of type, below which a number is left out


@dataclass(frozen=True)
class Field:
    """Numbers ready to be placed; labels may be absent on either side."""

    values: Floats
    scale: Scale
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    masked: NDArray[np.bool_] = field(default_factory=lambda: np.zeros((0, 0), dtype=bool))

    @property
    def hidden(self) -> NDArray[np.bool_]:
        return self.masked if self.masked.size else np.zeros(self.values.shape, dtype=bool)

    def label_widths(self, room: float) -> Point:
        """Points that the labels take at the left and on top, at most a third of the room each."""
        left = max((width_of(t, SIZE) for t in self.rows), default=-3.0) + 3
        top = max((width_of(t, SIZE) for t in self.columns), default=-3.0) + 3
        return min(left, room * 0.34), min(top, room * 0.34)


def put(c: Canvas, at: Point, cell: Point, of: Field, *, numbers: bool | None = None) -> Point:
    """The cells at a place, labels outside them at the left and on top; gives the size of the cells together."""
    values, hidden = of.values, of.hidden
    rows, columns = values.shape
    vector = values.size <= VECTORS and min(cell) >= FINEST
    colours = of.scale.colours(values)
    colours[hidden] = 0.0
    odd = ~np.isfinite(values) & ~hidden
    if not vector:
        colours[odd] = (*[0.5] * 3, 1.0)
    c.squares(at, cell, colours, vector=vector)
    c.hatch(at, cell, hidden, MASKED)
    shown = np.argwhere(~hidden) if vector and min(cell) > 5 else np.zeros((0, 2), dtype=int)
    widest = max((width_of(number(values[i, j]), 1.0) for i, j in shown), default=1.0)
    size = min(SMALL, (cell[0] - 2.5) / widest, cell[1] * 0.75)
    numbers = size >= LEAST if numbers is None else numbers
    for i, j in shown:
        middle = (at[0] + (j + 0.5) * cell[0], at[1] + (i + 0.5) * cell[1])
        if odd[i, j]:
            c.text(middle, _glyph(values[i, j]), size=min(SMALL, cell[0] / 2, cell[1] * 0.75))
        elif numbers:
            c.text(middle, number(values[i, j]), size=size, colour=ink_on(colours[i, j, :3]))
    c.box(at, (columns * cell[0], rows * cell[1]), edge=c.theme.faint)
    _labels(c, at, cell, of)
    return columns * cell[0], rows * cell[1]


def _glyph(value: float) -> str:
    return GLYPHS["nan"] if math.isnan(value) else GLYPHS["+inf"] if value > 0 else GLYPHS["-inf"]


def _labels(c: Canvas, at: Point, cell: Point, of: Field) -> None:
    """As many labels as can be read; upright on top where they are wider than the cells."""
    most = c.width * 0.34 - 3
    room, above = min(most, at[0] - 2.5 - c.left), min(most, at[1] - 3.5)
    for i in _readable(of.rows, cell[1]):
        y = at[1] + (i + 0.5) * cell[1]
        c.text((at[0] - 2.5, y), fit(of.rows[i], room, SIZE), align=("right", "center_baseline"))
    turned = upright(of, cell[0])
    for j in _readable(of.columns, cell[0]) if turned else range(len(of.columns)):
        x = at[0] + (j + 0.5) * cell[0]
        if turned:
            c.text((x, at[1] - 2.5), fit(of.columns[j], above, SIZE), align=("left", "center"), turned=True)
        else:
            c.text((x, at[1] - 2.5), of.columns[j], align=("center", "baseline"))


def _readable(names: Sequence[str], room: float) -> Iterator[int]:
    """The places of those names, of all that are not empty, that stand at least a line apart."""
    least = 0.0
    for place, name in enumerate(names):
        if name and place * room >= least:
            yield place
            least = place * room + SIZE + 0.5


def upright(of: Field, cell: float) -> bool:
    """Whether some label on top is wider than its cell."""
    return any(width_of(t, SIZE) > cell - 2 for t in of.columns)


def legend(c: Canvas, at: Point, scale: Scale, *, what: str = "", masked: bool = False, odd: bool = False) -> float:
    """A bar with both ends named, and the words that state the normalisation; gives its height."""
    x, y = at
    steps = np.linspace(scale.low, scale.high, 24)[None]
    c.text((x, y + 3.5), number(scale.low), size=SMALL, align=("left", "center"))
    start = x + width_of(number(scale.low), SMALL) + 3
    c.squares((start, y), (2.5, 7.0), scale.colours(steps), vector=True)
    c.text((start + 63, y + 3.5), number(scale.high), size=SMALL, align=("left", "center"))
    x = start + 63 + width_of(number(scale.high), SMALL) + 8
    for shown, sign, word in ((masked, "", "masked"), (odd, GLYPHS["nan"], "not a number")):
        if shown:
            if sign:
                c.box((x, y), (8.0, 7.0), edge=c.theme.faint, label=sign, type_size=SMALL)
            else:
                c.hatch((x, y), (8.0, 7.0), np.ones((1, 1), dtype=bool), MASKED)
            c.text((x + 10.5, y + 3.5), word, size=SMALL, align=("left", "center"))
            x += 16 + width_of(word, SMALL)
    lines = wrap(f"{what}: {scale.says}" if what else scale.says, c.right - at[0], SMALL)
    for i, line in enumerate(lines):
        c.text((at[0], y + 14 + i * 7.5), line, size=SMALL, colour=c.theme.faint, align=("left", "center"))
    return 11 + len(lines) * 7.5


def title(c: Canvas, text: str, y: float = 4.0, *, x: float | None = None, room: float | None = None) -> float:
    """A heading, wrapped where it must be; gives the y below it."""
    lines = wrap(text, room or c.width, BIG)
    for i, line in enumerate(lines):
        c.text((c.left if x is None else x, y + i * 10), line, size=BIG, bold=False, align=("left", "top"))
    return y + len(lines) * 10 + 3 if lines else y


def matrix(
    values: ArrayLike,
    *,
    rows: Sequence[object] | None = None,
    columns: Sequence[object] | None = None,
    masked: ArrayLike | None = None,
    heading: str = "",
    what: str = "weights",
    says: str = "each row sums to 1",
    on: Sheet = COLUMN,
) -> Figure:
    """A matrix with its tokens and a legend; `says` states how the numbers were normalised."""
    array = as_array(values, 2, what)
    hidden = mask_of(masked, array)
    of = Field(
        array,
        scale_for(np.where(hidden, np.nan, array), says),
        tokens_for(rows, array.shape[0], "rows"),
        tokens_for(columns, array.shape[1], "columns"),
        hidden,
    )
    c = Canvas(on)
    y = title(c, heading)
    left, top = of.label_widths(c.width)
    cell = min(LARGEST, (c.width - left) / array.shape[1])
    y += top if upright(of, cell) else SIZE + 4
    down = max(cell, min(LARGEST, 640 / array.shape[0])) if cell * array.shape[0] < 24 else cell
    down = min(down, 640 / array.shape[0])
    _, height = put(c, (c.left + left, y), (cell, down), of)
    odd = bool((~np.isfinite(array) & ~hidden).any())
    y += height + 6
    y += legend(c, (c.left, y), of.scale, what=what, masked=bool(hidden.any()), odd=odd)
    return c.finish(y, f"{heading or what}: {array.shape[0]} rows by {array.shape[1]} columns, {says}")
