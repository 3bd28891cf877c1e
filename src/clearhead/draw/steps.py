"""The six steps of self-attention [vaswani2017 §3.2]: vector by vector, as matrices, and all positions at once.

1  q = x W^Q,  k = x W^K,  v = x W^V      4  w = softmax, by rows
2  s = q · k                              5  w · v
3  s / √d_k, −∞ where masked              6  z = the sum
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clearhead.draw.canvas import SIZE, SMALL, Canvas
from clearhead.draw.figure import COLUMN, Figure, Sheet
from clearhead.draw.matrix import LARGEST, Field, legend, put, title, upright
from clearhead.draw.palette import ROLES
from clearhead.draw.parts import block, strip, value_line
from clearhead.draw.scale import Floats, around_zero, as_array, mask_of, shares
from clearhead.draw.words import fit, number, tokens_for, width_of
from clearhead.errors import ConfigError, ShapeError

__all__ = ["SixSteps", "all_at_once", "matrix_steps", "six_steps", "vector_steps"]


@dataclass(frozen=True)
class SixSteps:
    """Every quantity of one head: queries, keys, values, and what becomes of them.

    third   what is done to a score before the softmax, where that is not ÷ √d_k alone
    """

    q: Floats
    k: Floats
    v: Floats
    masked: NDArray[np.bool_]
    scores: Floats
    scaled: Floats
    weights: Floats
    output: Floats
    third: str = ""

    @property
    def scaling(self) -> str:
        """What is done to a score before the softmax."""
        return self.third or f"÷ {number(math.sqrt(self.q.shape[1]))}"


def six_steps(q: ArrayLike, k: ArrayLike, v: ArrayLike, masked: ArrayLike | None = None) -> SixSteps:
    """The steps computed from queries, keys and values of one head; a row that may look at nothing gives zeros."""
    q_LK, k_MK, v_MW = as_array(q, 2, "queries"), as_array(k, 2, "keys"), as_array(v, 2, "values")
    if q_LK.shape[1] != k_MK.shape[1] or len(k_MK) != len(v_MW):
        raise ShapeError(f"queries {q_LK.shape}, keys {k_MK.shape} and values {v_MW.shape} do not fit together")
    scores = q_LK @ k_MK.T
    hidden = mask_of(masked, scores)
    scaled = np.where(hidden, -np.inf, scores / math.sqrt(q_LK.shape[1]))
    most = scaled.max(axis=1, keepdims=True)
    raised = np.exp(scaled - np.where(np.isfinite(most), most, 0.0))
    weights = raised / np.maximum(raised.sum(1, keepdims=True), np.finfo(np.float64).tiny)
    return SixSteps(q_LK, k_MK, v_MW, hidden, scores, scaled, weights, weights @ v_MW)


def vector_steps(
    x: ArrayLike,
    of: SixSteps,
    *,
    tokens: Sequence[object] | None = None,
    position: int = 0,
    on: Sheet = COLUMN,
) -> Figure:
    """The six steps for one position, a column for each token, as a hand would work them out."""
    x_LD = as_array(x, 2, "x")
    count = len(of.k)
    if not len(x_LD) == len(of.q) == count or not 0 <= position < count:
        raise ShapeError(f"no position {position} of {count}, or x is of another length: {x_LD.shape}")
    c = Canvas(on)
    left, wide = 62.0, (c.width - 62.0) / count
    if wide < 24:
        most = int((c.width - left) // 24)
        raise ConfigError(f"step by step there is room for {most} tokens, not {count}: draw the matrices, or a part")
    names = tokens_for(tokens, count, "tokens")
    y = title(c, f"what “{names[position]}” reads")
    scale = around_zero(np.concatenate([a.flatten() for a in (x_LD, of.q, of.k, of.v)]), "one scale for all vectors")
    weighted = of.weights[position][:, None] * of.v
    rows: list[tuple[str, str | None, Floats]] = [
        ("x", None, x_LD), ("1  q = x W^Q", "query", of.q), ("    k = x W^K", "key", of.k),
        ("    v = x W^V", "value", of.v), ("2  q · k", None, of.scores[position]),
        (f"3  {of.scaling}", None, of.scaled[position]), ("4  softmax", None, of.weights[position]),
        ("5  softmax · v", "value", weighted),
    ]  # fmt: skip
    for j, name in enumerate(names):
        c.text((c.left + left + (j + 0.5) * wide, y + 4), fit(name, wide - 3, SIZE), bold=j == position)
    y += 13
    for label, role, values in rows:
        c.text((c.left, y + 4), label, align=("left", "center"), colour=c.tone(role) if role else None)
        for j in range(count):
            at = (c.left + left + j * wide, y)
            if values.ndim == 1:
                value_line(c, at, wide, float(values[j]))
            else:
                shown = 8.0 * min(values.shape[1], int((wide - 11) // 8))
                strip(c, (at[0] + (wide - shown) / 2 - 2, y), wide - 4, values[j], scale, role)
        y += 13
    c.line([(c.left + left, y - 1), (c.right, y - 1)], colour=c.theme.faint)
    c.text((c.left, y + 8), "6  z = the sum", align=("left", "center"), colour=c.tone("output"))
    strip(c, (c.left + left + 4, y + 4), c.width - left - 8, of.output[position], scale, "output")
    y += 18
    y += legend(c, (c.left, y), scale, what="numbers")
    return c.finish(y, f"the six steps of self-attention for token {position + 1} of {count}")


def matrix_steps(
    x: ArrayLike,
    w_q: ArrayLike,
    w_k: ArrayLike,
    w_v: ArrayLike,
    *,
    masked: ArrayLike | None = None,
    on: Sheet = COLUMN,
) -> Figure:
    """The same as matrices: X W^Q = Q and its two sisters, then softmax(Q Kᵀ / √d_k) V = Z."""
    x_LD = as_array(x, 2, "x")
    named = {"query": as_array(w_q, 2, "W^Q"), "key": as_array(w_k, 2, "W^K"), "value": as_array(w_v, 2, "W^V")}
    for name, w in named.items():
        if len(w) != x_LD.shape[1]:
            raise ShapeError(f"x {x_LD.shape} cannot be multiplied with the {name}'s matrix {w.shape}")
    q, k, v = (x_LD @ w for w in named.values())
    of = six_steps(q, k, v, masked)
    c = Canvas(on)
    y, third = 4.0, (c.width - 30) / 3
    high = min(60.0, third)
    for (role, w), made in zip(named.items(), (q, k, v), strict=True):
        letter = ROLES[role].letter
        x0, low = c.left, 0.0
        signs = (("X", x_LD, None, "×"), (f"W^{letter}", w, role, "="), (letter, made, role, ""))
        for name, values, colour, sign in signs:
            size = block(c, (x0, y), (third, high), values, around_zero(values), name=name, role=colour)
            c.text((x0 + third + 7, y + 17 + high / 3), sign, size=9)
            x0, low = x0 + third + 15, max(low, size[1])
        y += low + 8
    y = _formula(c, y, of)
    return c.finish(y, f"self-attention as matrices: {len(x_LD)} positions, {x_LD.shape[1]} to {q.shape[1]} numbers")


def _formula(c: Canvas, y: float, of: SixSteps) -> float:
    """softmax(Q Kᵀ / √d_k) = W, W V = Z, each of them with its numbers."""
    c.text((c.left, y + 4), f"softmax( Q Kᵀ {of.scaling} ) V = Z", align=("left", "center"), size=SIZE)
    y += 12
    third = (c.width - 30) / 3
    scale = shares(of.weights, "each row of the softmax sums to 1; all others around zero, each by itself")
    parts = (
        ("softmax", of.weights, scale, None, "×"),
        ("V", of.v, around_zero(of.v), "value", "="),
        ("Z", of.output, around_zero(of.output), "output", ""),
    )
    x0, low = c.left, 0.0
    for name, values, by, role, sign in parts:
        hidden = of.masked if name == "softmax" else None
        size = block(c, (x0, y), (third, third), values, by, name=name, role=role, masked=hidden)
        c.text((x0 + third + 7, y + 17 + third / 4), sign, size=9)
        x0, low = x0 + third + 15, max(low, size[1])
    y += low + 6
    return y + legend(c, (c.left, y), scale, masked=bool(of.masked.any()))


def all_at_once(
    of: SixSteps,
    *,
    tokens: Sequence[object] | None = None,
    queries: Sequence[object] | None = None,
    on: Sheet = COLUMN,
) -> Figure:
    """All positions at once, laid out as the formula: keys on top, queries left, values below, the result right.

    queries   who asks, where those are not the `tokens` that are asked
    """
    rows, columns, width, wide = len(of.q), len(of.k), of.q.shape[1], of.v.shape[1]
    names = tokens_for(tokens, columns, "tokens")
    asking = names if queries is None and rows == columns else tokens_for(queries, rows, "queries")
    scale = shares(of.weights, "each row sums to 1; Q, K, V and Z around zero, each by itself")
    middle = Field(of.weights, scale, masked=of.masked)
    c = Canvas(on)
    label = min(c.width * 0.22, max(width_of(t, SIZE) for t in asking) + 4)
    room = c.width - label - 16
    cell = min(LARGEST, room * 0.5 / columns)
    inner = min(cell, (room - columns * cell) / (width + wide))
    top = min(c.width * 0.25, max(width_of(t, SIZE) for t in names) + 4)
    turned = upright(Field(of.weights, scale, columns=names), cell)
    x1 = c.left + label + width * inner + 8
    y1 = 14 + (top if turned else SIZE + 4) + width * inner + 8
    for role, values, at, size, row_names, column_names in (
        ("query", of.q, (c.left + label, y1), (inner, cell), asking, ()),
        ("key", of.k.T, (x1, y1 - 8 - width * inner), (cell, inner), (), names),
        ("value", of.v.T, (x1, y1 + rows * cell + 8), (cell, inner), (), ()),
        ("output", of.output, (x1 + columns * cell + 8, y1), (inner, cell), (), ()),
    ):
        field = Field(values, around_zero(values), row_names, column_names)
        across, down = put(c, at, size, field, numbers=False)
        c.box(at, (across, down), edge=ROLES[role].colour)
        letter = ROLES[role].letter + ("ᵀ" if role in {"key", "value"} else "")
        beside = role in {"key", "value"}
        spot = (at[0] + across + 9, at[1] + down / 2) if beside else (at[0] + across / 2, at[1] + down + 6)
        c.text(spot, letter, colour=c.tone(role), bold=True)
    put(c, (x1, y1), (cell, cell), middle)
    y = y1 + rows * cell + 8 + wide * inner + 8
    y += legend(c, (c.left, y), scale, what=f"softmax(Q Kᵀ {of.scaling})", masked=bool(of.masked.any()))
    c.text((c.left, 8), f"Z = softmax(Q Kᵀ {of.scaling}) V", size=SMALL, colour=c.theme.faint, align=("left", "center"))
    return c.finish(y, f"attention of {rows} positions over {columns}, laid out as its formula")
