"""Attention of heads: lines between two columns of tokens, all heads at a glance, an encoder–decoder in one square."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clearhead.draw.canvas import SIZE, SMALL, Canvas
from clearhead.draw.figure import COLUMN, Figure, Sheet
from clearhead.draw.matrix import LARGEST, Field, legend, put, title, upright
from clearhead.draw.palette import HEADS
from clearhead.draw.parts import note
from clearhead.draw.scale import Floats, as_array, shares
from clearhead.draw.words import fit, tokens_for, width_of
from clearhead.errors import ConfigError, ShapeError

__all__ = ["all_heads", "kept", "lines", "one_square", "pooled"]

TOKENS = 64  # on each side, up to which lines can be told apart
THUMBNAIL = 48  # cells on each side of one head in the view of all


def kept(weights_LM: ArrayLike, share: float) -> NDArray[np.bool_]:
    """The fewest weights of each row that together hold that share of its mass, the largest first.

    >>> kept([[0.5, 0.1, 0.4]], 0.8).tolist()
    [[True, False, True]]
    """
    weights = np.nan_to_num(np.asarray(weights_LM, dtype=np.float64))
    order = np.argsort(-weights, axis=1, kind="stable")
    ranked = np.take_along_axis(weights, order, axis=1)
    before = np.cumsum(ranked, axis=1) - ranked
    chosen = (before < share * weights.sum(1, keepdims=True) - 1e-12) & (ranked > 0)
    out = np.zeros(weights.shape, dtype=bool)
    np.put_along_axis(out, order, chosen, axis=1)
    return out


def lines(
    weights_HLM: ArrayLike,
    *,
    queries: Sequence[object] | None = None,
    keys: Sequence[object] | None = None,
    heads: Sequence[int] | None = None,
    only: int | None = None,
    share: float = 0.8,
    heading: str = "",
    on: Sheet = COLUMN,
) -> Figure:
    """Who reads whom: a line for each of the weights that hold the top `share` of a row's mass, a colour per head.

    heads   the numbers of the heads, where they are not 1, 2, 3, …
    only    the one query whose lines are drawn
    """
    weights = as_array(weights_HLM, 3, "weights (heads × queries × keys)")
    count, rows, columns = weights.shape
    if not 0 < share <= 1:
        raise ConfigError(f"the share of a row's mass that is drawn lies above 0 and is at most 1: {share=}")
    if count > len(HEADS):
        raise ConfigError(f"lines can be told apart for up to {len(HEADS)} heads, not {count}: choose some")
    if max(rows, columns) > TOKENS:
        raise ConfigError(
            f"lines can be told apart for up to {TOKENS} tokens, not {max(rows, columns)}: draw a matrix, or a part"
        )
    names = list(range(1, count + 1)) if heads is None else list(heads)
    if len(names) != count:
        raise ShapeError(f"{len(names)} numbers are given for {count} heads")
    if only is not None and not 0 <= only < rows:
        raise ShapeError(f"there is no query {only} among {rows}")
    left, right = tokens_for(queries, rows, "queries"), tokens_for(keys, columns, "keys")
    c = Canvas(on)
    y = _chips(c, names, title(c, heading)) + 6
    step = 10.5
    room = min(c.width * 0.36, max(width_of(t, SIZE) for t in left + right) + 6)
    x0, x1 = c.left + room, min(c.right - room, c.left + room + 190)
    for i, token in enumerate(left):
        place = (x0 - 4, y + (i + 0.5) * step)
        c.text(place, fit(token, room - 5, SIZE, bold=i == only), align=("right", "center_baseline"), bold=i == only)
    for j, token in enumerate(right):
        c.text((x1 + 4, y + (j + 0.5) * step), fit(token, room - 5, SIZE), align=("left", "center_baseline"))
    drawn = weights if only is None else np.where(np.arange(rows)[:, None] == only, weights, 0.0)
    most = float(np.nanmax(drawn, initial=0.0)) or 1.0
    floor = 0.45 if on.dark else 0.25  # a thin line on dark ground needs more
    for head in range(count):
        aside = 0.0 if count == 1 else (head / (count - 1) - 0.5) * step * 0.6
        for i, j in np.argwhere(kept(drawn[head], share)):
            part = drawn[head, i, j] / most
            ends = [(x0, y + (i + 0.5) * step + aside), (x1, y + (j + 0.5) * step + aside)]
            c.line(ends, colour=HEADS[head], width=0.3 + 2.2 * part, alpha=floor + (1 - floor) * part)
    y += max(rows, columns) * step + 4
    whose = "each row's weight" if only is None else f"the weight of “{left[only].strip()}”"
    says = f"lines hold the top {share:.0%} of {whose}; the widest is {most:.2f}"
    return c.finish(note(c, y, says), f"{heading or 'attention'}: {says}")


def _chips(c: Canvas, names: Sequence[int], y: float) -> float:
    """Each head's number on its colour."""
    c.text((c.left, y + 5), "head", size=SMALL, colour=c.theme.faint, align=("left", "center"))
    for i, name in enumerate(names):
        c.box((c.left + 20 + i * 16, y), (14.0, 10.0), fill=HEADS[i], label=str(name), type_size=SMALL)
    return y + 12


def pooled(weights: Floats, most: int) -> Floats:
    """No more than `most` rows and columns: the largest weight of each block stands for the block."""
    rows, columns = weights.shape[-2:]
    block = math.ceil(max(rows, columns) / most)
    if block == 1:
        return weights
    down, across = -rows % block, -columns % block
    edges = [(0, 0)] * (weights.ndim - 2) + [(0, down), (0, across)]
    padded = np.pad(weights, edges, constant_values=-np.inf)
    shape = (*weights.shape[:-2], (rows + down) // block, block, (columns + across) // block, block)
    return np.asarray(padded.reshape(shape).max(axis=(-3, -1)))


def all_heads(
    weights_NHLM: ArrayLike,
    *,
    heading: str = "",
    top: Sequence[str] | None = None,
    left: Sequence[str] | None = None,
    on: Sheet = COLUMN,
) -> Figure:
    """Every head of every layer as a small matrix, layers downwards; one scale for all of them.

    top, left   the numbers of the heads and of the layers, where they are not 1, 2, 3, …
    """
    weights = as_array(weights_NHLM, 4, "weights (layers × heads × queries × keys)")
    layers, heads, rows, columns = weights.shape
    small = pooled(weights, THUMBNAIL)
    scale = shares(weights, f"each row sums to 1; {rows} queries by {columns} keys in each square")
    c = Canvas(on)
    names, numbers = tokens_for(top, heads, "heads"), tokens_for(left, layers, "layers")
    y = title(c, heading)
    c.text((c.left + 16, y + 3), "head", size=SMALL, colour=c.theme.faint, align=("left", "center"))
    y += 14
    side = min((c.width - 16) / heads, 60.0)
    cell = (side * 0.92) / max(small.shape[-2:])
    pitch = max(cell * small.shape[-2] + side * 0.08, SIZE + 1)
    for layer in range(layers):
        middle_row = y + layer * pitch + cell * small.shape[-2] / 2
        c.text((c.left + 12, middle_row), numbers[layer], align=("right", "center"))
        for head in range(heads):
            if layer == 0:
                middle = (c.left + 16 + (head + 0.46) * side, y - 3)
                c.text(middle, fit(names[head], side, SIZE), align=("center", "baseline"))
            at = (c.left + 16 + head * side, y + layer * pitch)
            c.squares(at, (cell, cell), scale.colours(small[layer, head]), vector=False)
    c.text((c.left + 1, y - 3), "layer", size=SMALL, colour=c.theme.faint, align=("left", "bottom"))
    y += layers * pitch + 4
    blocks = math.ceil(max(rows, columns) / THUMBNAIL)
    what = "weights" if blocks == 1 else f"weights, the largest of each {blocks} × {blocks} block"
    y += legend(c, (c.left, y), scale, what=what)
    return c.finish(y, f"{heading or 'attention'}: {layers} layers of {heads} heads")


def one_square(
    encoder_MM: ArrayLike,
    decoder_LL: ArrayLike,
    cross_LM: ArrayLike,
    *,
    source: Sequence[object] | None = None,
    target: Sequence[object] | None = None,
    heading: str = "",
    on: Sheet = COLUMN,
) -> Figure:
    """An encoder–decoder's three attentions together: source reads source, target reads source and target so far."""
    encoder, decoder = as_array(encoder_MM, 2, "encoder weights"), as_array(decoder_LL, 2, "decoder weights")
    cross = as_array(cross_LM, 2, "cross weights")
    read, written = len(encoder), len(decoder)
    if (encoder.shape, decoder.shape, cross.shape) != ((read, read), (written, written), (written, read)):
        raise ShapeError(
            f"the three attentions do not fit together: encoder {encoder.shape}, decoder {decoder.shape}, "
            f"cross {cross.shape}"
        )
    values = np.block([[encoder, np.zeros((read, written))], [cross, decoder]])
    hidden = np.zeros(values.shape, dtype=bool)
    hidden[:read, read:] = True
    hidden[read:, read:] = np.triu(np.ones((written, written), dtype=bool), 1)
    tokens = tokens_for(source, read, "source tokens") + tokens_for(target, written, "target tokens")
    of = Field(values, shares(values, "each row of each of the three parts sums to 1"), tokens, tokens, hidden)
    c = Canvas(on)
    y = title(c, heading)
    left, top = of.label_widths(c.width)
    cell = min(LARGEST, (c.width - left - 9) / len(values))
    y += top if upright(of, cell) else SIZE + 4
    x = c.left + left
    width, height = put(c, (x, y), (cell, cell), of)
    c.line([(x, y + read * cell), (x + width, y + read * cell)], width=1.4)
    c.line([(x + read * cell, y), (x + read * cell, y + height)], width=1.4)
    for start, span, word in ((0, read, "encoder"), (read, written, "decoder")):
        at = (x + width + 6, y + (start + span / 2) * cell)
        c.text(at, fit(word, span * cell, SMALL), size=SMALL, colour=c.theme.faint, turned=True)
    y += height + 6
    y += legend(c, (c.left, y), of.scale, what="weights", masked=True)
    return c.finish(y, f"{heading or 'attention'}: {read} source and {written} target tokens in one square")
