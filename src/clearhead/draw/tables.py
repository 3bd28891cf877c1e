"""Tables: which columns matter, and how a row becomes a sequence of column tokens."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from clearhead.draw.canvas import SIZE, SMALL, Canvas
from clearhead.draw.figure import COLUMN, Figure, Sheet
from clearhead.draw.matrix import legend, title
from clearhead.draw.palette import HEADS
from clearhead.draw.parts import note, strip
from clearhead.draw.scale import around_zero, as_array
from clearhead.draw.words import fit, number, tokens_for, width_of
from clearhead.errors import ShapeError

__all__ = ["column_importance", "columns_as_tokens"]


def column_importance(
    names: Sequence[object],
    values: ArrayLike,
    *,
    errors: ArrayLike | None = None,
    says: str = "importance",
    on: Sheet = COLUMN,
) -> Figure:
    """A bar for each column, the most important first; `errors` adds a whisker on both sides."""
    array = as_array(values, 1, "importance")
    labels = tokens_for(names, len(array), "columns")
    spread = np.zeros(len(array)) if errors is None else as_array(errors, 1, "errors")
    if spread.shape != array.shape:
        raise ShapeError(f"{len(spread)} errors are given for {len(array)} columns")
    if not (np.isfinite(array).all() and np.isfinite(spread).all()):
        raise ShapeError("the importance of a column must be a finite number")
    c = Canvas(on)
    left = min(c.width * 0.4, max(width_of(t, SIZE) for t in labels) + 5)
    room = c.width - left - 30
    low, high = min(0.0, float((array - spread).min())), max(0.0, float((array + spread).max()))
    span = high - low or 1.0
    zero = c.left + left + room * -low / span
    for row, i in enumerate(np.argsort(-array, kind="stable")):
        y = 5 + row * 11.0
        end = zero + room * float(array[i]) / span
        c.text((c.left + left - 4, y + 4.5), fit(labels[i], left - 5, SIZE), align=("right", "center_baseline"))
        c.box((min(zero, end), y), (abs(end - zero), 9.0), fill=HEADS[0] if array[i] >= 0 else HEADS[4])
        if spread[i]:
            reach = room * float(spread[i]) / span
            c.line([(end - reach, y + 4.5), (end + reach, y + 4.5)], width=0.9)
        at = max(end + room * float(spread[i]) / span, zero) + 3
        c.text((at, y + 4.5), number(float(array[i])), size=SMALL, align=("left", "center_baseline"))
    y = 5 + len(array) * 11.0
    c.line([(zero, 3), (zero, y)], colour=c.theme.faint)
    return c.finish(note(c, y + 2, says), f"{says} of {len(array)} columns")


def columns_as_tokens(
    names: Sequence[object],
    cells: Sequence[object],
    tokens: ArrayLike,
    *,
    kinds: Sequence[str] | None = None,
    on: Sheet = COLUMN,
) -> Figure:
    """One row of a table: each column's name, its cell, and the token that it becomes; `[CLS]` first if it is given.

    tokens   one vector per column, or one more in front for `[CLS]`
    """
    vectors = as_array(tokens, 2, "tokens (columns × width)")
    extra = len(vectors) - len(names)
    if extra not in {0, 1} or len(cells) != len(names) or (kinds is not None and len(kinds) != len(names)):
        raise ShapeError(f"{len(names)} columns, {len(cells)} cells and {len(vectors)} tokens do not fit together")
    labels = ["[CLS]"] * extra + tokens_for(names, len(names), "columns")
    shown = [""] * extra + tokens_for(cells, len(names), "cells")
    what = [""] * extra + ([""] * len(names) if kinds is None else [str(kind) for kind in kinds])
    c = Canvas(on)
    y = title(c, "one row of the table")
    scale = around_zero(vectors, "one scale for all tokens")
    first = min(c.width * 0.3, max(width_of(t, SIZE) for t in labels) + 6)
    second = min(c.width * 0.3, max(width_of(t, SIZE) for t in shown) + 12)
    third = max((width_of(t, SMALL) for t in what), default=0.0) + 6
    for label, cell, kind, vector in zip(labels, shown, what, vectors, strict=True):
        c.text((c.left, y + 5), fit(label, first - 4, SIZE), align=("left", "center_baseline"))
        if cell:
            c.box((c.left + first, y), (second - 6, 10.0), edge=c.theme.faint, label=cell)
        c.text(
            (c.left + first + second, y + 5), kind, size=SMALL, colour=c.theme.faint, align=("left", "center_baseline")
        )
        x = c.left + first + second + third + 8
        c.arrow([(x - 8, y + 5), (x - 1, y + 5)], colour=c.theme.faint)
        strip(c, (x + 1, y + 1), c.right - x - 2, vector, scale)
        y += 13
    y += 4
    y += legend(c, (c.left, y), scale, what="tokens")
    return c.finish(y, f"a row of {len(names)} columns as {len(vectors)} tokens")
