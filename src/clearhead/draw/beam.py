"""Decoding: the beam as a tree, step by step with the probability of each word, and each layer's guess."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from clearhead.draw.canvas import SIZE, SMALL, Canvas, ink_on
from clearhead.draw.figure import COLUMN, Figure, Sheet
from clearhead.draw.matrix import Field, legend, put, title
from clearhead.draw.palette import ROLES
from clearhead.draw.parts import note
from clearhead.draw.scale import Scale, as_array, scale_for
from clearhead.draw.words import fit, number, tokens_for, visible, width_of
from clearhead.errors import ConfigError, ShapeError

__all__ = ["Choice", "Node", "beam_tree", "decoding_steps", "lens"]

LINE = 6.5  # points that a word needs across its direction


@dataclass(frozen=True)
class Node:
    """One token that a beam tried: what it continues, its score so far, whether it lived on, and if not, why."""

    id: int
    parent: int | None
    token: str
    score: float
    alive: bool = True
    reason: str = ""
    winner: bool = False


@dataclass(frozen=True)
class Choice:
    """One step of decoding: the best words with their probabilities, and which of them was taken."""

    tokens: Sequence[str]
    probabilities: Sequence[float]
    taken: int


def beam_tree(nodes: Sequence[Node], *, heading: str = "", on: Sheet = COLUMN) -> Figure:
    """Every token that was tried, a column for each step; the winner is thick, what died is grey with the reason."""
    by_id, children = _family(nodes)
    depth, row = _layout(nodes, children)
    c = Canvas(on)
    columns, leaves = max(depth.values()) + 1, max(row.values()) + 1
    wide = c.width / columns
    if wide < 20:
        raise ConfigError(f"a tree has room for {int(c.width // 20)} steps, not {columns}: draw a part, or on a page")
    top = title(c, heading) + 2
    high = 23.0 if any(node.reason for node in nodes) else 17.0
    places = {at: (c.left + depth[at] * wide, top + row[at] * high + 8.5) for at in row}
    for at, (x, y) in places.items():
        node = by_id[at]
        lives = node.alive or node.winner
        colour = c.theme.ink if lives else c.theme.faint
        if node.parent is not None:
            behind, level = places[node.parent]
            start = (behind + _room(by_id[node.parent], wide), level)
            edge, thick = (ROLES["output"].colour, 1.8) if node.winner else (colour, 0.5)
            c.line([start, (x - 1.5, y)], colour=edge, width=thick, dashed=not lives)
        token = fit(visible(node.token), wide - 7, SIZE, bold=node.winner)
        c.text((x, y - 3), token, align=("left", "center"), colour=colour, bold=node.winner)
        for line, says in enumerate((number(node.score), "" if node.winner else node.reason)):
            at_line = (x, y + 4 + 6 * line)
            c.text(at_line, fit(says, wide - 2, SMALL), size=SMALL, align=("left", "center"), colour=c.theme.faint)
    y = note(c, top + leaves * high + 2, "score below each token; thick: the winner; dashed: given up")
    return c.finish(y, f"{heading or 'a beam'}: {len(nodes)} tokens tried in {columns} steps")


def _layout(nodes: Sequence[Node], children: dict[int, list[int]]) -> tuple[dict[int, int], dict[int, float]]:
    """Each node's column, and its row: leaves one under another, a parent in the middle of its children."""
    depth: dict[int, int] = {}
    todo = [(node.id, 0) for node in reversed(nodes) if node.parent is None]
    while todo:  # not recursive: a text may be long
        at, level = todo.pop()
        depth[at] = level
        todo.extend((child, level + 1) for child in reversed(children.get(at, [])))
    row = {at: float(i) for i, at in enumerate(at for at in depth if at not in children)}
    for at in reversed(depth):
        if at in children:
            row[at] = sum(row[child] for child in children[at]) / len(children[at])
    return depth, row


def _room(node: Node, wide: float) -> float:
    token = width_of(visible(node.token), SIZE, node.winner)
    return min(wide - 7, max(token, width_of(number(node.score), SMALL))) + 2


def _family(nodes: Sequence[Node]) -> tuple[dict[int, Node], dict[int, list[int]]]:
    """The nodes by their numbers, and each one's children; a child comes after its parent."""
    if not nodes:
        raise ShapeError("a beam of no tokens has nothing to draw")
    by_id: dict[int, Node] = {}
    children: dict[int, list[int]] = {}
    for node in nodes:
        if node.id in by_id:
            raise ShapeError(f"two tokens of the beam have the number {node.id}")
        if node.parent is not None:
            if node.parent not in by_id:
                raise ShapeError(f"token {node.id} of the beam continues {node.parent}, which does not come before it")
            children.setdefault(node.parent, []).append(node.id)
        by_id[node.id] = node
    return by_id, children


def decoding_steps(steps: Sequence[Choice], *, heading: str = "", on: Sheet = COLUMN) -> Figure:
    """Word by word: at each step the best words with their probabilities as bars, the one that was taken in colour."""
    if not steps:
        raise ShapeError("a decoding of no steps has nothing to draw")
    c = Canvas(on)
    wide = max(62.0, c.width / len(steps)) if len(steps) * 62 <= c.width else 62.0
    across = max(1, int(c.width // wide))
    wide = c.width / across
    y, low = title(c, heading), 0.0
    for i, step in enumerate(steps):
        if len(step.tokens) != len(step.probabilities) or not 0 <= step.taken < len(step.tokens):
            raise ShapeError(f"step {i + 1}: {len(step.tokens)} words, {len(step.probabilities)} probabilities, "
                             f"number {step.taken} taken")  # fmt: skip
        if i and i % across == 0:
            y, low = y + low + 6, 0.0
        x = c.left + (i % across) * wide
        c.text((x, y + 4), f"step {i + 1}", size=SMALL, colour=c.theme.faint, align=("left", "center"))
        for j, (token, p) in enumerate(zip(step.tokens, step.probabilities, strict=True)):
            at = y + 10 + j * 10
            taken = j == step.taken
            fill = ROLES["output"].colour if taken else c.theme.fill
            c.box((x, at), (max(0.3, (wide - 26) * float(p)), 8.5), fill=fill)
            inside = ink_on(fill) if taken and p * (wide - 26) > 20 else None
            c.text((x + 1.5, at + 4.2), fit(visible(token), wide - 28, SIZE), align=("left", "center_baseline"),
                   bold=taken, colour=inside)  # fmt: skip
            c.text((x + wide - 7, at + 4.2), number(float(p)), size=SMALL, align=("right", "center_baseline"))
        low = max(low, 12 + len(step.tokens) * 10)
    y = note(c, y + low + 3, "bars: the probability of each word, at that step; in colour: the word that was taken")
    return c.finish(y, f"{heading or 'decoding'}: {len(steps)} steps")


def lens(
    guesses: Sequence[Sequence[object]],
    values: ArrayLike,
    *,
    tokens: Sequence[object] | None = None,
    layers: Sequence[object] | None = None,
    says: str = "probability of the layer's best guess",
    on: Sheet = COLUMN,
) -> Figure:
    """Each layer's own guess at each position, coloured by its value; the last layer on top, as the stream runs."""
    array = as_array(values, 2, "values (layers × positions)")
    rows, columns = array.shape
    if len(guesses) != rows or any(len(line) != columns for line in guesses):
        raise ShapeError(f"guesses and values do not fit together: values have shape {array.shape}")
    names, below = tokens_for(layers, rows, "layers"), tokens_for(tokens, columns, "tokens")
    scale: Scale = scale_for(array, says)
    c = Canvas(on)
    left = min(c.width * 0.25, max(width_of(name, SIZE) for name in names) + 4)
    words = [[visible(guess) for guess in line] for line in guesses[::-1]]
    across = (c.width - left) / columns
    longest = max(width_of(word, SMALL) for line in words for word in line)
    upright = longest > across - 2  # then words run upwards, in higher cells
    cell = (across, min(48.0, longest + 4) if upright and across >= LINE else 12.0)
    flipped = array[::-1]
    _, height = put(c, (c.left + left, 4.0), cell, Field(flipped, scale, names[::-1]), numbers=False)
    fills = scale.colours(flipped)
    for i, j in np.ndindex(rows, columns) if across >= LINE else ():
        if np.isfinite(flipped[i, j]):
            word = fit(words[i][j], cell[1 if upright else 0] - 2, SMALL)
            at = (c.left + left + (j + 0.5) * cell[0], 4 + (i + 0.5) * cell[1])
            c.text(at, word, size=SMALL, colour=ink_on(fills[i, j, :3]), turned=upright)
    every = max(1, int(np.ceil(7 / cell[0])))
    turned = any(width_of(name, SIZE) > cell[0] - 2 for name in below)
    for j in range(0, columns, every):
        at = (c.left + left + (j + 0.5) * cell[0], 4 + height + (2.5 if turned else 6))
        c.text(at, fit(below[j], 60, SIZE), turned=turned, align=("right" if turned else "center", "center"))
    y = 10 + height + (min(60.0, max(width_of(name, SIZE) for name in below)) if turned else 8)
    y += legend(c, (c.left, y), scale)
    return c.finish(y, f"guesses of {rows} layers at {columns} positions")
