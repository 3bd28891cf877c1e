"""The residual stream: layers upwards, tokens across, what a position takes from others as lines between them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from clearhead.draw.canvas import SIZE, Canvas, Point
from clearhead.draw.figure import COLUMN, Figure, Sheet
from clearhead.draw.matrix import legend, title
from clearhead.draw.palette import ROLES
from clearhead.draw.parts import note
from clearhead.draw.scale import as_array, shares
from clearhead.draw.words import fit, tokens_for, width_of
from clearhead.errors import ConfigError, ShapeError

__all__ = ["TOKENS", "residual_stream"]

TOKENS = {"column": 20, "page": 44}  # of a text, up to which its lines can be told apart
RISE = 26.0


def residual_stream(
    edges_XLL: ArrayLike,
    values_XL: ArrayLike,
    *,
    tokens: Sequence[object] | None = None,
    layers: Sequence[object] | None = None,
    least: float = 0.1,
    heading: str = "",
    says: str = "share of the feed-forward layer in the stream",
    on: Sheet = COLUMN,
) -> Figure:
    """A disc for each position after each layer, and a line for each edge of `least` or more, from below.

    edges    of each layer, how much position i (row) takes from position j (column)
    values   of each layer and position, a number for the disc
    """
    edges, values = as_array(edges_XLL, 3, "edges (layers × positions × positions)"), as_array(values_XL, 2, "values")
    count, length = values.shape
    if edges.shape != (count, length, length):
        raise ShapeError(f"edges {edges.shape} and values {values.shape} do not fit together")
    if length > TOKENS[on.width]:
        raise ConfigError(
            f"the stream of {length} tokens cannot be told apart on a {on.width}, which has room for "
            f"{TOKENS[on.width]}: draw a part, or a matrix"
        )
    names, numbers = tokens_for(tokens, length, "tokens"), tokens_for(layers, count, "layers")
    scale = shares(values, says)
    c = Canvas(on)
    top = title(c, heading) + 6
    left = min(c.width * 0.25, max(width_of(name, SIZE) for name in numbers) + 8)
    step = (c.width - left) / length
    foot = top + count * RISE

    def at(level: int, place: int) -> Point:
        return c.left + left + (place + 0.5) * step, foot - level * RISE

    floor = 0.5 if on.dark else 0.3
    for level in range(count):
        for i, j in np.argwhere(edges[level] >= least):
            part = min(1.0, float(edges[level, i, j]))
            alike = i == j
            colour = c.theme.faint if alike else ROLES["query"].colour
            c.line(
                [at(level, j), at(level + 1, i)],
                colour=colour,
                width=0.4 + 2.2 * part,
                alpha=floor + (1 - floor) * part,
            )
    radius = min(4.0, step * 0.32)
    colours = scale.colours(values)
    for level in range(count + 1):
        if level:
            y = foot - level * RISE
            c.text((c.left + left - 6, y), fit(numbers[level - 1], left - 6, SIZE), align=("right", "center"))
        for place in range(length):
            fill = c.theme.fill if level == 0 else _hex(colours[level - 1, place, :3])
            c.dot(at(level, place), radius, fill=fill, edge=c.theme.faint)
    y = foot + 14 + _feet(c, names, [at(0, place) for place in range(length)], step)
    y = note(c, y, f"lines: {least:.0%} or more of what a layer's attention adds to a position, as wide as the share")
    y += legend(c, (c.left, y + 3), scale, what="discs") + 3
    return c.finish(y, f"{heading or 'the residual stream'}: {count} layers over {length} positions")


def _feet(c: Canvas, names: Sequence[str], places: Sequence[Point], step: float) -> float:
    """The tokens below their places, upright where they are too wide; gives the room that they take."""
    turned = any(width_of(name, SIZE) > step - 2 for name in names)
    for name, (x, y) in zip(names, places, strict=True):
        shown = fit(name, 60 if turned else step - 1, SIZE)
        c.text((x, y + 8), shown, turned=turned, align=("right" if turned else "center", "center"))
    return min(60.0, max(width_of(name, SIZE) for name in names)) if turned else 4.0


def _hex(colour: ArrayLike) -> str:
    from matplotlib.colors import to_hex

    red, green, blue = np.asarray(colour, dtype=np.float64)
    return to_hex((float(red), float(green), float(blue)))
