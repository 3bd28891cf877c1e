"""Attention that is something else: reordered words, heads as one multiplication, a linear layer, a convolution.

Weights and outputs come from the caller: `nn/equivalence.py` builds the attentions, taps show their weights.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from clearhead.draw.canvas import SIZE, SMALL, Canvas
from clearhead.draw.figure import COLUMN, Figure, Sheet
from clearhead.draw.matrix import legend, title
from clearhead.draw.palette import HEADS
from clearhead.draw.parts import block, note, strip
from clearhead.draw.scale import around_zero, as_array, shares
from clearhead.draw.words import fit, number, tokens_for, width_of
from clearhead.errors import ConfigError, ShapeError

__all__ = ["attention_as_convolution", "attention_as_linear", "heads_as_matrices", "reordered"]


def reordered(
    first: Sequence[object],
    second: Sequence[object],
    first_vectors: ArrayLike,
    second_vectors: ArrayLike,
    *,
    heading: str = "",
    on: Sheet = COLUMN,
) -> Figure:
    """The same words in two orders, each word's output beside it, and how far the two outputs of a word differ.

    Without positions the difference is zero: "Susan gave roses to Mary" is "Mary gave roses to Susan".
    """
    a, b = as_array(first_vectors, 2, "first outputs"), as_array(second_vectors, 2, "second outputs")
    left, right = tokens_for(first, len(a), "first words"), tokens_for(second, len(b), "second words")
    if sorted(left) != sorted(right) or a.shape != b.shape:
        raise ShapeError(f"the second sentence must have the words of the first in another order: {left}, {right}")
    if len(left) > 40:
        raise ConfigError(f"there is room for 40 words, not {len(left)}: draw a part")
    waiting: dict[str, list[int]] = {}
    for j, word in enumerate(right):
        waiting.setdefault(word, []).append(j)
    to = [waiting[word].pop(0) for word in left]
    scale = around_zero(np.concatenate([a, b]), "one scale for both; Δ: the largest difference of a word's two outputs")
    c = Canvas(on)
    y = title(c, heading) + 2
    word_room = min(c.width * 0.17, max(width_of(t, SIZE) for t in left) + 4)
    gap = 62.0
    strip_room = (c.width - 2 * word_room - gap) / 2
    x0, x1 = c.left + word_room + strip_room, c.left + word_room + strip_room + gap
    for i, word in enumerate(left):
        at, there = y + i * 14 + 4, y + to[i] * 14 + 4
        c.text((c.left, at), fit(word, word_room - 3, SIZE), align=("left", "center_baseline"))
        strip(c, (c.left + word_room, at - 4), strip_room - 8, a[i], scale)
        colour, width = (HEADS[4], 1.2) if to[i] != i else (c.theme.faint, 0.6)
        c.line([(x0 - 4, at), (x1 - 4, there)], colour=colour, width=width)
        strip(c, (x1, there - 4), strip_room - 8, b[to[i]], scale)
        c.text((x1 + strip_room, there), fit(word, word_room - 3, SIZE), align=("left", "center_baseline"))
    most = float(np.abs(a - b[to]).max())
    y += len(left) * 14 + 4
    y += legend(c, (c.left, y), scale, what=f"Δ = {most:.1e}")
    return c.finish(y, f"{heading or 'two orders of the same words'}: outputs differ by at most {most:.1e}")


def heads_as_matrices(heads_HLK: ArrayLike, w_o: ArrayLike, *, on: Sheet = COLUMN) -> Figure:
    """Many heads as one multiplication: Z₁ … Z_h side by side, times W^O; and the same as a sum over heads."""
    z = as_array(heads_HLK, 3, "heads (heads × positions × width)")
    w = as_array(w_o, 2, "W^O")
    count, length, width = z.shape
    if len(w) != count * width:
        raise ShapeError(f"{count} heads of width {width} need W^O with {count * width} rows, not {w.shape}")
    if count > 16:
        raise ConfigError(f"there is room for 16 heads, not {count}: draw some of them")
    joined = np.moveaxis(z, 0, 1).reshape(length, -1)
    result = joined @ w
    c = Canvas(on)
    third = (c.width - 54) / 3
    scales = [around_zero(v) for v in (joined, w, result)]
    x, low, feet = c.left, 0.0, []
    named = (("Z₁ … Zₕ", joined, None, "×"), ("Wᴼ", w, "output", "="), ("Z", result, "output", ""))
    for (name, values, role, sign), scale in zip(named, scales, strict=True):
        size = block(c, (x, 4), (third, 110.0), values, scale, name=name, role=role)
        feet.append((x, size))
        c.text((x + third + 17, 36), sign, size=9)
        x, low = x + third + 27, max(low, size[1])
    for head in range(count):  # each head's columns of Z and rows of W^O in its own colour
        (x0, (across, down)), (x1, (wide, deep)) = feet[:2]
        colour = HEADS[head % len(HEADS)]
        one, rows = across / count, (deep - 17) / count
        c.box((x0 + head * one, 4 + down), (one, 7.0), fill=colour, label=str(head + 1), type_size=min(SMALL, one))
        c.box((x1 + wide, 21 + head * rows), (7.0, rows), fill=colour, label=str(head + 1), type_size=SMALL)
    says = "side by side and times Wᴼ is the sum over heads of Zᵢ times its own rows of Wᴼ; "
    y = note(c, 4 + low + 10, says + "each matrix has its own scale around zero")
    return c.finish(y, f"{count} heads as one multiplication of matrices")


def attention_as_linear(weights_HLM: ArrayLike, w_o: ArrayLike, *, on: Sheet = COLUMN) -> Figure:
    """A fully connected layer over positions as attention: head i looks at position i alone, and W^O is the layer."""
    weights, w = as_array(weights_HLM, 3, "weights (heads × queries × keys)"), as_array(w_o, 2, "W^O")
    count = len(weights)
    if count > 9:
        raise ConfigError(f"there is room for 9 heads, not {count}: draw a smaller layer")
    c = Canvas(on)
    scale = shares(weights, "each row sums to 1: head i gives position i the weight 1; Wᴼ around zero, by itself")
    across = min(count, 5 if on.width == "column" else 9)
    room = (c.width - 6 * (across - 1)) / across
    y, low = 4.0, 0.0
    for head in range(count):
        if head and head % across == 0:
            y, low = y + low + 6, 0.0
        at = (c.left + (head % across) * (room + 6), y)
        size = block(c, at, (room, room), weights[head], scale, name=f"head {head + 1}")
        low = max(low, size[1])
    y += low + 6
    size = block(c, (c.left, y), (c.width, 80.0), w.T, around_zero(w), name="Wᴼ: the layer's own matrix", role="output")
    y += size[1] + 6
    y += legend(c, (c.left, y), scale, what="weights")
    return c.finish(y, f"a fully connected layer over {weights.shape[2]} positions as {count} heads of attention")


def attention_as_convolution(
    weights_HLM: ArrayLike, height: int, width: int, *, pixel: int | None = None, on: Sheet = COLUMN
) -> Figure:
    """A k × k convolution as attention: where each of the k² heads of one pixel looks, laid out as the kernel."""
    weights = as_array(weights_HLM, 3, "weights (heads × pixels × pixels)")
    k = math.isqrt(len(weights))
    if k * k != len(weights) or weights.shape[1:] != (height * width, height * width):
        raise ShapeError(f"k² heads over {height} × {width} pixels are needed, not weights of shape {weights.shape}")
    centre = (height // 2) * width + width // 2 if pixel is None else pixel
    if not 0 <= centre < height * width:
        raise ShapeError(f"there is no pixel {centre} in {height} × {width}")
    if k > 5:
        raise ConfigError(f"there is room for a kernel of 5 × 5, not of {k} × {k}")
    c = Canvas(on)
    scale = shares(weights, "each row sums to 1, or to 0 where the kernel hangs over the edge")
    room = min((c.width - 8 * (k - 1)) / k, 90.0)
    cell = min(room / width, room / height)
    high = cell * height + 26
    for head in range(len(weights)):
        row, column = divmod(head, k)
        at = (c.left + column * (room + 8), 4 + row * high)
        looks = weights[head, centre].reshape(height, width)
        offset = f"{_signed(row - k // 2)}, {_signed(column - k // 2)}"
        block(c, at, (room, cell * height), looks, scale, name=f"head {head + 1}: {offset}")
        mark = (at[0] + (centre % width) * cell, at[1] + 17 + (centre // width) * cell)
        c.box(mark, (cell, cell), edge=HEADS[4])
    y = 4 + k * high
    y += legend(c, (c.left, y), scale, what="weights of the framed pixel")
    return c.finish(y, f"a {k} × {k} convolution over {height} × {width} pixels as {len(weights)} heads")


def _signed(offset: int) -> str:
    return number(offset).removesuffix(".00") if offset <= 0 else f"+{offset}"
