"""The first pictures: notation, the dot product, the attention graph, query–key–value, the soft dictionary."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from clearhead.draw.canvas import SIZE, SMALL, Canvas
from clearhead.draw.figure import COLUMN, Figure, Sheet
from clearhead.draw.matrix import LARGEST, Field, legend, put, upright
from clearhead.draw.palette import ROLES
from clearhead.draw.parts import block, note, strip
from clearhead.draw.scale import around_zero, as_array
from clearhead.draw.steps import SixSteps
from clearhead.draw.words import fit, number, tokens_for, visible, width_of
from clearhead.errors import ConfigError, ShapeError

__all__ = ["attention_graph", "dot_product", "notation", "query_key_value", "soft_dictionary"]

NODES = 16  # of a graph, up to which its edges can be told apart


def notation(symbols: Mapping[str, ArrayLike], *, on: Sheet = COLUMN) -> Figure:
    """What letters stand for: each number, vector and matrix as coloured squares with its name and shape."""
    if not symbols:
        raise ShapeError("a notation needs at least one symbol to draw")
    c = Canvas(on)
    arrays = {visible(name): np.atleast_2d(np.asarray(value, dtype=np.float64)) for name, value in symbols.items()}
    for name, value in arrays.items():
        as_array(value, 2, name)
    every = np.concatenate([value.flatten() for value in arrays.values()])
    scale = around_zero(every, "one scale for all squares")
    x, y, low = c.left, 4.0, 0.0
    for name, value in arrays.items():
        across = max(min(value.shape[1] * 14.0, c.width * 0.45), width_of(name, SIZE), 24.0)
        if x > c.left and x + across > c.right:
            x, y, low = c.left, y + low + 8, 0.0
        size = block(c, (x, y), (across, 14.0 * min(len(value), 8)), value, scale, name=fit(name, across, SIZE))
        x, low = x + max(across, size[0]) + 12, max(low, size[1])
    y += low + 8
    y += legend(c, (c.left, y), scale, what="numbers")
    return c.finish(y, "notation: " + ", ".join(arrays))


def dot_product(
    users: ArrayLike,
    films: ArrayLike,
    *,
    user_names: Sequence[object] | None = None,
    film_names: Sequence[object] | None = None,
    features: Sequence[object] | None = None,
    on: Sheet = COLUMN,
) -> Figure:
    """How well a film fits a user: what it has times what is liked, feature by feature, and added up."""
    users_LK, films_MK = as_array(users, 2, "users"), as_array(films, 2, "films")
    if users_LK.shape[1] != films_MK.shape[1]:
        raise ShapeError(f"users {users_LK.shape} and films {films_MK.shape} have different features")
    product = users_LK @ films_MK.T
    rows, columns = tokens_for(user_names, len(users_LK), "users"), tokens_for(film_names, len(films_MK), "films")
    named = tokens_for(features, users_LK.shape[1], "features")
    inputs = around_zero(np.concatenate([users_LK.flatten(), films_MK.flatten()]))
    left = Field(users_LK, inputs, rows, named)
    top = Field(films_MK.T, inputs, named, columns)
    middle = Field(product, around_zero(product, "user · film, the sum over features"))
    c = Canvas(on)
    label = left.label_widths(c.width)[0]
    cell = min(LARGEST, (c.width - label - 12) / (users_LK.shape[1] + len(films_MK)))
    above = top.label_widths(c.width)[1] if upright(top, cell) else SIZE + 4
    x1, y1 = c.left + label + users_LK.shape[1] * cell + 10, 4 + above + users_LK.shape[1] * cell + 10
    put(c, (c.left + label, y1), (cell, cell), Field(users_LK, inputs, rows))
    put(c, (x1, 4 + above), (cell, cell), top)
    put(c, (x1, y1), (cell, cell), middle)
    for j, name in enumerate(named):
        c.text((c.left + label + (j + 0.5) * cell, y1 + len(rows) * cell + 3), fit(name, 60, SIZE),
               align=("right", "center"), turned=True)  # fmt: skip
    y = y1 + len(rows) * cell + 6 + min(60.0, max(width_of(name, SIZE) for name in named))
    y += legend(c, (c.left, y), middle.scale)
    return c.finish(y, f"dot products of {len(rows)} users and {len(columns)} films")


def attention_graph(
    weights: ArrayLike, *, tokens: Sequence[object] | None = None, least: float = 0.05, on: Sheet = COLUMN
) -> Figure:
    """Attention as a graph: an arrow from who is read to who reads, as wide as its weight; loops read themselves."""
    w_LL = as_array(weights, 2, "weights")
    count = len(w_LL)
    if w_LL.shape != (count, count):
        raise ShapeError(f"a graph needs as many queries as keys, not {w_LL.shape}")
    if count > NODES:
        raise ConfigError(f"a graph can be read for up to {NODES} tokens, not {count}: draw a matrix, or a part")
    names = tokens_for(tokens, count, "tokens")
    c = Canvas(on)
    radius = min(c.width / 2 - 44, 90.0)
    middle = (c.left + c.width / 2, radius + 26)
    angle = [2 * math.pi * i / count - math.pi / 2 for i in range(count)]
    node = [(middle[0] + radius * math.cos(a), middle[1] + radius * math.sin(a)) for a in angle]
    for i, j in np.argwhere(w_LL >= least):
        part = float(w_LL[i, j])
        if i != j:
            (xa, ya), (xb, yb) = node[j], node[i]
            far = math.hypot(xb - xa, yb - ya)
            ends = [(xa + (xb - xa) * t, ya + (yb - ya) * t) for t in (7 / far, 1 - 7 / far)]
            c.arrow(ends, colour=ROLES["query"].colour, width=0.3 + 2.4 * part, bend=0.12)
    for i, name in enumerate(names):
        own = float(w_LL[i, i])
        c.dot(node[i], 6, fill=c.theme.fill, edge=ROLES["query"].colour if own >= least else c.theme.faint)
        c.text(node[i], number(own), size=4.5)
        x, y = (middle[k] + (radius + 11) * f(angle[i]) for k, f in ((0, math.cos), (1, math.sin)))
        side = math.cos(angle[i])
        align = "center" if abs(side) < 0.3 else "left" if side > 0 else "right"
        room = c.width if align == "center" else (c.right - x if align == "left" else x - c.left)
        c.text((x, y), fit(name, room, SIZE), align=(align, "center"))
    says = f"an arrow for each weight of {least:g} or more, from who is read to who reads, as wide as the weight; "
    y = note(c, 2 * radius + 46, says + "each row sums to 1; in the discs what a token reads of itself")
    return c.finish(y, f"attention among {count} tokens as a graph")


def query_key_value(
    x: ArrayLike, of: SixSteps, *, tokens: Sequence[object] | None = None, on: Sheet = COLUMN
) -> Figure:
    """Each token's vector and its three projections: what it asks, what it answers to, what it gives."""
    x_LD = as_array(x, 2, "x")
    if not len(x_LD) == len(of.q) == len(of.k):
        raise ShapeError(f"x {x_LD.shape} and queries {of.q.shape} are of different lengths")
    names = tokens_for(tokens, len(x_LD), "tokens")
    c = Canvas(on)
    scale = around_zero(np.concatenate([a.flatten() for a in (x_LD, of.q, of.k, of.v)]), "one scale for all vectors")
    label = min(c.width * 0.24, max(width_of(name, SIZE) for name in names) + 4)
    wide = (c.width - label) / 4
    heads = (("x", None), ("q asks", "query"), ("k answers", "key"), ("v gives", "value"))
    for i, (word, role) in enumerate(heads):
        c.text((c.left + label + i * wide, 8), word, align=("left", "center"), colour=c.tone(role) if role else None)
    y = 15.0
    for i, name in enumerate(names):
        c.text((c.left + label - 4, y + 4), fit(name, label - 4, SIZE), align=("right", "center_baseline"))
        for j, (values, (_, role)) in enumerate(zip((x_LD, of.q, of.k, of.v), heads, strict=True)):
            strip(c, (c.left + label + j * wide, y), wide - 6, values[i], scale, role)
        y += 12
    y += 4
    y += legend(c, (c.left, y), scale, what="numbers")
    return c.finish(y, f"queries, keys and values of {len(names)} tokens")


def soft_dictionary(
    query: ArrayLike,
    keys: ArrayLike,
    values: ArrayLike,
    *,
    names: Sequence[object] | None = None,
    temperature: float = 1.0,
    on: Sheet = COLUMN,
) -> Figure:
    """A dictionary that answers with all its values, each weighed by how well its key fits the query."""
    query_K, keys_MK, values_MW = as_array(query, 1, "query"), as_array(keys, 2, "keys"), as_array(values, 2, "values")
    if keys_MK.shape[1] != len(query_K) or len(values_MW) != len(keys_MK):
        raise ShapeError(f"query {query_K.shape}, keys {keys_MK.shape}, values {values_MW.shape} do not fit together")
    if temperature <= 0:
        raise ConfigError(f"a temperature is above zero: {temperature=}")
    scores = keys_MK @ query_K / temperature
    raised = np.exp(scores - scores.max())
    weights = raised / raised.sum()
    labels = tokens_for(names, len(keys_MK), "names")
    c = Canvas(on)
    scale = around_zero(np.concatenate([query_K, keys_MK.flatten(), values_MW.flatten()]), "one scale for all vectors")
    label = min(c.width * 0.22, max(width_of(name, SIZE) for name in labels) + 5)
    wide = (c.width - label - 54) / 2
    x_key, x_bar = c.left + label, c.left + label + wide
    x_value = x_bar + 54
    c.text((x_key, 8), "query", align=("left", "center"), colour=c.tone("query"))
    strip(c, (x_key, 13), wide - 4, query_K, scale, "query")
    y = 26.0
    for x, word, role in ((x_key, "keys", "key"), (x_bar, "weights", None), (x_value, "values", "value")):
        c.text((x, y + 3), word, align=("left", "center"), colour=c.tone(role) if role else None)
    y += 10
    for i, name in enumerate(labels):
        c.text((x_key - 4, y + 4), fit(name, label - 4, SIZE), align=("right", "center_baseline"))
        strip(c, (x_key, y), wide - 4, keys_MK[i], scale, "key")
        c.box((x_bar, y + 1), (max(0.3, 24 * float(weights[i] / weights.max())), 6.0), fill=ROLES["query"].colour)
        c.text((x_bar + 27, y + 4), number(float(weights[i])), size=SMALL, align=("left", "center"))
        strip(c, (x_value, y), wide - 4, values_MW[i], scale, "value")
        y += 12
    c.text((x_value - 4, y + 6), "answer = Σ weight · value", align=("right", "center"), colour=c.tone("output"))
    strip(c, (x_value, y + 2), wide - 4, weights @ values_MW, scale, "output")
    y += 16
    y += legend(
        c, (c.left, y), scale, what=f"weights = softmax(query · key ÷ {temperature:.4g}), they sum to 1; vectors"
    )
    return c.finish(y, f"a soft dictionary of {len(labels)} entries, asked once")
