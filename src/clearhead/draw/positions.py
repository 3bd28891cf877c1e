"""Positions, norms and patches: where a number stands, what is normalised together, how an image is a sequence."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from clearhead.draw.canvas import SIZE, SMALL, Canvas
from clearhead.draw.figure import COLUMN, Figure, Sheet
from clearhead.draw.matrix import Field, legend, put, title
from clearhead.draw.palette import HEADS
from clearhead.draw.parts import note
from clearhead.draw.scale import around_zero, as_array
from clearhead.draw.words import fit, number, tokens_for, width_of
from clearhead.errors import ShapeError

__all__ = ["image_patches", "norm_groups", "position_maps", "positions_by_hand"]


def positions_by_hand(
    table: ArrayLike, *, tokens: Sequence[object] | None = None, base: float = 10_000.0, on: Sheet = COLUMN
) -> Figure:
    """Sines and cosines in turn, few enough to check by hand: the formula of each column above its numbers."""
    table_LD = as_array(table, 2, "positional encodings")
    length, width = table_LD.shape
    names = tokens_for(tokens, length, "tokens")
    formulas = [f"{'cos' if i % 2 else 'sin'}(p/{base ** (2 * (i // 2) / width):.4g})" for i in range(width)]
    of = Field(table_LD, around_zero(table_LD, "sines and cosines lie between −1 and 1"))
    c = Canvas(on)
    number_room = width_of(f"  p = {length}", SIZE) + 5
    left = min(c.width * 0.34, max(width_of(name, SIZE) for name in names) + number_room)
    cell = min((c.width - left) / width, 48.0)
    for j, formula in enumerate(formulas):
        c.text((c.left + left + (j + 0.5) * cell, 9), fit(formula, cell - 1, SMALL), size=SMALL)
    put(c, (c.left + left, 15.0), (cell, 14.0), of)
    for i, name in enumerate(names):
        c.text(
            (c.left + left - 3, 15 + (i + 0.5) * 14),
            f"{fit(name, left - number_room + 1, SIZE)}  p = {i}",
            align=("right", "center"),
        )
    y = 15 + 14 * length + 6.0
    y += legend(c, (c.left, y), of.scale)
    return c.finish(y, f"positional encodings of {length} positions in {width} dimensions")


def position_maps(
    tables: Mapping[str, ArrayLike], *, across: str = "dimension", down: str = "position", on: Sheet = COLUMN
) -> Figure:
    """Any scheme as a heat map, several under one another: rows are positions, columns dimensions (or keys)."""
    if not tables:
        raise ShapeError("there is no table of positions to draw")
    c = Canvas(on)
    y = 2.0
    for name, table in tables.items():
        values = as_array(table, 2, name)
        rows, columns = values.shape
        y = title(c, name, y)
        size = (c.width - 22, min(150.0, max(40.0, 4.0 * rows)))
        cell = (size[0] / columns, size[1] / rows)
        of = Field(values, around_zero(values, "as they are, zero is white"))
        put(c, (c.left + 22, y), cell, of, numbers=None if min(cell) > 12 else False)
        for at, text in ((y + 3, "0"), (y + size[1] - 3, str(rows - 1))):
            c.text((c.left + 19, at), text, size=SMALL, align=("right", "center"))
        c.text((c.left + 6, y + size[1] / 2), fit(down, size[1], SMALL), size=SMALL, turned=True, colour=c.theme.faint)
        y += size[1] + 6
        for x, text in ((c.left + 24, "0"), (c.right - 5, str(columns - 1)), ((c.left + c.right) / 2, across)):
            c.text((x, y), text, size=SMALL, colour=c.theme.faint if text == across else None)
        y += 7
        y += legend(c, (c.left, y), of.scale) + 6
    return c.finish(y - 4, "positions: " + ", ".join(tables))


# name -> which numbers of (batch, position, feature) are normalised together with the first one
GROUPS = {
    "layer norm": (slice(0, 1), slice(0, 1), slice(None)),
    "batch norm": (slice(None), slice(None), slice(0, 1)),
    "instance norm": (slice(0, 1), slice(None), slice(0, 1)),
}


def norm_groups(x: ArrayLike, *, on: Sheet = COLUMN) -> Figure:
    """What layer, batch and instance norm normalise together: coloured in x (batch × positions × features)."""
    x_BLD = as_array(x, 3, "x (batch × positions × features)")
    batch, length, width = x_BLD.shape
    if max(x_BLD.shape) > 16:
        raise ShapeError(f"the picture of norms has room for 16 along each side, not for {x_BLD.shape}: draw a part")
    c = Canvas(on)
    third = (c.width - 16) / 3
    shift = 5.0
    cell = min((third - shift * (batch - 1) - 4) / width, 12.0)
    deep = cell * length + shift * (batch - 1)
    for i, (name, group) in enumerate(GROUPS.items()):
        x0 = c.left + i * (third + 8)
        c.text((x0, 8), name, align=("left", "center"))
        chosen = np.zeros(x_BLD.shape, dtype=bool)
        chosen[group] = True
        for b in reversed(range(batch)):
            at = (x0 + b * shift, 16 + shift * (batch - 1) - b * shift)
            for row, column in np.ndindex(length, width):
                fill = HEADS[1] if chosen[b, row, column] else c.theme.fill
                c.box((at[0] + column * cell, at[1] + row * cell), (cell, cell), fill=fill, edge=c.theme.faint)
        together = x_BLD[group]
        c.text((x0, 24 + deep), f"{together.size} numbers", size=SMALL, align=("left", "center"))
        c.text((x0, 32 + deep), f"μ = {number(together.mean())}", size=SMALL, align=("left", "center"))
        c.text((x0, 40 + deep), f"σ = {number(together.std())}", size=SMALL, align=("left", "center"))
    says = f"sheets: batch ({batch}); rows: positions ({length}); columns: features ({width}); coloured: one group"
    return c.finish(note(c, 48 + deep, says), "what layer, batch and instance norm normalise together")


def image_patches(image: ArrayLike, patch: int, *, on: Sheet = COLUMN) -> Figure:
    """An image as a sequence: cut into patches, numbered line by line, and laid end to end behind `[CLS]`.

    image   height × width, or height × width × 3, numbers from 0 to 1
    """
    pixels = np.asarray(image, dtype=np.float64)
    if pixels.ndim == 2:
        pixels = np.repeat(pixels[..., None], 3, axis=2)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or 0 in pixels.shape:
        raise ShapeError(f"an image has shape height × width or height × width × 3, not {pixels.shape}")
    height, width = pixels.shape[:2]
    if patch < 1 or height % patch or width % patch:
        raise ShapeError(f"an image must divide into patches: {height=}, {width=}, {patch=}")
    rows, columns = height // patch, width // patch
    if rows * columns > 1024:
        raise ShapeError(f"there is room for 1024 patches, not {rows * columns}: {patch=}")
    opaque = np.concatenate([np.clip(pixels, 0, 1), np.ones((height, width, 1))], axis=2)
    c = Canvas(on)
    side = min(110.0 / columns, 110.0 / rows)
    c.squares((c.left, 4), (side / patch, side / patch), opaque, vector=False)
    for i in range(rows + 1):
        c.line([(c.left, 4 + i * side), (c.left + columns * side, 4 + i * side)], colour=HEADS[4], width=0.5)
    for j in range(columns + 1):
        c.line([(c.left + j * side, 4), (c.left + j * side, 4 + rows * side)], colour=HEADS[4], width=0.5)
    y = 4 + rows * side + 10
    box = 20.0
    per_line = int(c.width // (box + 3))
    c.box((c.left, y), (box, box), fill=c.theme.fill, edge=c.theme.faint, label="CLS", type_size=SMALL)
    for i in range(rows * columns):
        line, place = divmod(i + 1, per_line)
        at = (c.left + place * (box + 3), y + line * (box + 11))
        a, b = divmod(i, columns)
        part = opaque[a * patch : (a + 1) * patch, b * patch : (b + 1) * patch]
        c.squares(at, (box / patch, box / patch), part, vector=False)
        c.text((at[0] + box / 2, at[1] + box + 5), str(i + 1), size=SMALL)
    y += ((rows * columns) // per_line + 1) * (box + 11)
    numbers = f"{rows * columns} patches of {patch} × {patch} pixels, each flattened and projected, behind [CLS]"
    return c.finish(note(c, y, numbers), numbers)
