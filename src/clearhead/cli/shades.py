"""Attention in a terminal: a row for each word that reads, shaded under each word that is read."""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.text import Text

__all__ = ["pointed", "shaded", "width_of_shades"]

SHADES = " ░▒▓█"
FAINT, FULL = (70, 80, 130), (255, 200, 60)  # colours of a weight of 0 and of 1
NAMED = 3  # words that a row names where there is no room for shades


def shaded(
    weights_LM: NDArray[np.floating],
    columns: Sequence[str],
    rows: Sequence[str],
    marked: Collection[tuple[int, int]] = (),
) -> list[Text]:
    """The weights as shades; a cell (column, row) that is marked has a • behind it."""
    margin = max(map(cell_len, rows)) + 2
    lines = [Text(" " * (margin + 2) + "  ".join(columns))]
    for j, word in enumerate(rows):
        line = Text(" " * (margin - cell_len(word)) + f"{word}  ")
        for i, column in enumerate(columns):
            weight = float(weights_LM[j, i])
            shade = SHADES[min(int(weight * len(SHADES)), len(SHADES) - 1)]
            line.append(shade * cell_len(column), style=_colour(weight))
            line.append("• " if (i, j) in marked else "  ", style="green")
        lines.append(line)
    return lines


def width_of_shades(columns: Sequence[str], rows: Sequence[str]) -> int:
    """How many columns of a terminal `shaded` needs."""
    return max(map(cell_len, rows)) + 4 + sum(cell_len(word) + 2 for word in columns)


def pointed(weights_LM: NDArray[np.floating], columns: Sequence[str], rows: Sequence[str]) -> list[Text]:
    """For texts that are too wide for shades: for each row the words that it reads most, with their weights."""
    margin = max(map(cell_len, rows)) + 2
    lines = []
    for word, weights_M in zip(rows, weights_LM, strict=True):
        line = Text(" " * (margin - cell_len(word)) + f"{word}  →")
        for i in np.argsort(-weights_M, kind="stable")[:NAMED]:
            line.append(f"  {columns[i]} {weights_M[i]:.2f}", style=_colour(float(weights_M[i])))
        lines.append(line)
    return lines


def _colour(weight: float) -> str:
    red, green, blue = (round(faint + weight * (full - faint)) for faint, full in zip(FAINT, FULL, strict=True))
    return f"rgb({red},{green},{blue})"
