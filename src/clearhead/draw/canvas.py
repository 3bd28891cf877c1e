"""The canvas: one sheet measured in points from its upper left corner, and the few marks that make all figures."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from clearhead.draw.figure import FINE, Figure, Sheet, need_matplotlib
from clearhead.draw.palette import ROLES
from clearhead.draw.words import fit

__all__ = ["BIG", "SIZE", "SMALL", "Canvas", "Point", "ink_on"]

SMALL, SIZE, BIG = 5.5, 6.5, 8.0  # points of type: in cells and legends, for labels, for titles
Point = tuple[float, float]
MARGIN = 4.0
SOLID: Literal["-"] = "-"
DASHES = (0.0, (2.5, 2.0))


class Canvas:
    """Marks are placed at once; `finish` says how high the sheet is. x grows to the right, y downwards."""

    def __init__(self, on: Sheet) -> None:
        need_matplotlib()
        from matplotlib.figure import Figure as Drawing

        self.on, self.theme = on, on.theme
        self.left, self.right = MARGIN, on.points - MARGIN
        self.drawing = Drawing(figsize=(on.points / 72, 1), facecolor=self.theme.paper)
        self.axes = self.drawing.add_axes((0.0, 0.0, 1.0, 1.0))
        self.axes.set_axis_off()

    @property
    def width(self) -> float:
        """What can be drawn on, between the margins."""
        return self.right - self.left

    def tone(self, role: str) -> str:
        """A role's colour for words: mixed with the ink, so that it can be read on its ground."""
        from matplotlib.colors import to_hex, to_rgb

        mixed = 0.55 * np.array(to_rgb(ROLES[role].colour)) + 0.45 * np.array(to_rgb(self.theme.ink))
        return to_hex((mixed[0], mixed[1], mixed[2]))

    def finish(self, height: float, says: str) -> Figure:
        """The figure, `height` points high."""
        height = max(height + MARGIN, 12.0)
        self.drawing.set_size_inches(self.on.points / 72, height / 72)
        self.axes.set(xlim=(0, self.on.points), ylim=(height, 0), autoscale_on=False)
        self.axes.set_aspect("auto")
        return Figure(self.drawing, says)

    def text(
        self,
        at: Point,
        text: str,
        *,
        size: float = SIZE,
        colour: str | None = None,
        align: tuple[str, str] = ("center", "center"),
        bold: bool = False,
        turned: bool = False,
    ) -> None:
        """Words at a point; `align` says which of their sides stands there. Nothing in them is read as mathematics."""
        if not text:
            return
        self.axes.text(
            *at, text, fontsize=size, color=colour or self.theme.ink, ha=align[0], va=align[1], parse_math=False,
            fontweight="bold" if bold else "normal", rotation=90 if turned else 0, family="DejaVu Sans",
            rotation_mode="anchor",
        )  # fmt: skip

    def line(
        self,
        points: Sequence[Point],
        *,
        colour: str | None = None,
        width: float = 0.7,
        alpha: float = 1.0,
        dashed: bool = False,
    ) -> None:
        """Straight from point to point."""
        from matplotlib.lines import Line2D

        xs, ys = zip(*points, strict=True)
        style = DASHES if dashed else SOLID
        self.axes.add_line(
            Line2D(xs, ys, color=colour or self.theme.ink, linewidth=width, alpha=alpha, linestyle=style,
                   zorder=1, solid_capstyle="butt", solid_joinstyle="round")
        )  # fmt: skip

    def arrow(self, points: Sequence[Point], *, colour: str | None = None, width: float = 0.7, bend: float = 0) -> None:
        """A line with a head at its last point; `bend` curves a line of two points."""
        from matplotlib.patches import FancyArrowPatch

        colour = colour or self.theme.ink
        if len(points) > 2:
            self.line(points[:-1], colour=colour, width=width)
        self.axes.add_patch(
            FancyArrowPatch(
                points[-2], points[-1], arrowstyle="-|>,head_width=1.6,head_length=3.2", mutation_scale=1, shrinkA=0,
                shrinkB=0, color=colour, linewidth=width, connectionstyle=f"arc3,rad={bend}",
            )
        )  # fmt: skip

    def box(
        self,
        at: Point,
        size: Point,
        *,
        fill: str | None = None,
        edge: str | None = None,
        label: str = "",
        type_size: float = SIZE,
        dashed: bool = False,
    ) -> None:
        """A rectangle from its upper left corner, with a label in the middle, shortened if it must be."""
        from matplotlib.patches import Rectangle

        self.axes.add_patch(
            Rectangle(at, *size, facecolor=fill or "none", edgecolor=edge or "none", linewidth=0.7,
                      linestyle=DASHES if dashed else SOLID)
        )  # fmt: skip
        if label:
            ink = ink_on(fill) if fill else self.theme.ink
            middle = (at[0] + size[0] / 2, at[1] + size[1] / 2)
            self.text(middle, fit(label, size[0] - 2, type_size), size=type_size, colour=ink)

    def dot(
        self, at: Point, radius: float, *, fill: str | None = None, edge: str | None = None, label: str = ""
    ) -> None:
        """A disc around a point, with a label inside."""
        from matplotlib.patches import Circle

        self.axes.add_patch(
            Circle(at, radius, facecolor=fill or self.theme.paper, edgecolor=edge or "none", linewidth=0.7)
        )
        if label:
            self.text(at, label, size=SMALL, colour=ink_on(fill or self.theme.paper))

    def squares(self, at: Point, cell: Point, colours_LMC: NDArray[Any], *, vector: bool) -> None:
        """A field of cells in given colours (red, green, blue, opacity); one image where they are too many to draw."""
        rows, columns = colours_LMC.shape[:2]
        if vector:
            from matplotlib.collections import PolyCollection

            x, y = np.meshgrid(at[0] + cell[0] * np.arange(columns), at[1] + cell[1] * np.arange(rows))
            corners = np.array([(0, 0), (cell[0], 0), cell, (0, cell[1])])
            outlines = np.stack([x, y], axis=-1).reshape(-1, 1, 2) + corners
            self.axes.add_collection(
                PolyCollection(list(outlines), facecolors=colours_LMC.reshape(-1, 4), edgecolors=self.theme.paper,
                               linewidths=min(0.5, min(cell) / 12)), autolim=False,
            )  # fmt: skip
        else:
            extent = (at[0], at[0] + cell[0] * columns, at[1] + cell[1] * rows, at[1])
            self.axes.imshow(colours_LMC, extent=extent, aspect="auto", interpolation="none", zorder=1)

    def hatch(self, at: Point, cell: Point, masked_LM: NDArray[np.bool_], sign: str) -> None:
        """Hatching over the masked cells, as one path of as few rectangles as there are runs in the rows."""
        import matplotlib as mpl
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path

        pieces = []
        for row, start, end in _runs(masked_LM):
            x, y = at[0] + start * cell[0], at[1] + row * cell[1]
            across, down = (end - start) * cell[0], cell[1]
            pieces.append(Path([(x, y), (x + across, y), (x + across, y + down), (x, y + down), (x, y)], closed=True))
        if pieces:
            path = Path.make_compound_path(*pieces)
            with mpl.rc_context(FINE):
                patch = PathPatch(path, facecolor=self.theme.fill, edgecolor=self.theme.faint, hatch=sign, linewidth=0)
            self.axes.add_patch(patch)


def _runs(masked_LM: NDArray[np.bool_]) -> list[tuple[int, int, int]]:
    """(row, first column, column after the last) of every run of masked cells."""
    edges = np.diff(np.pad(masked_LM.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    rows, starts = np.nonzero(edges == 1)
    _, ends = np.nonzero(edges == -1)
    return list(zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True))


def ink_on(fill: Any) -> str:
    """Black or white, whichever reads better on that colour."""
    from matplotlib.colors import to_rgb

    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(fill)]
    return "#000000" if np.dot(linear, (0.2126, 0.7152, 0.0722)) > 0.18 else "#FFFFFF"
