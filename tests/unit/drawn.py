"""What a figure says, read back from its SVG."""

import re
import warnings
import xml.etree.ElementTree as ET
from functools import lru_cache
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex

from clearhead.draw.figure import DOTS, Figure
from clearhead.draw.scale import Scale

NAMES = {"svg": "http://www.w3.org/2000/svg"}


@lru_cache(maxsize=4)
def _svg(figure: Figure) -> str:
    """Written once, however often a test looks at it."""
    return figure.svg()


def texts(figure: Figure) -> list[str]:
    """Every text of the figure, in the order in which it was written."""
    return ["".join(e.itertext()) for e in ET.fromstring(_svg(figure)).iterfind(".//svg:text", NAMES)]


def fills(figure: Figure) -> list[str]:
    """Every fill of the figure, in order."""
    return re.findall(r"fill: (#[0-9a-f]{6})", _svg(figure))


def colours(scale: Scale, values: object) -> list[str]:
    """What the scale makes of the numbers, row by row."""
    return [to_hex(c) for c in scale.colours(values).reshape(-1, 4)]


def has_cells(figure: Figure, scale: Scale, values: object) -> bool:
    """Whether the numbers' colours follow one another in the figure as they do in the array."""
    wanted, all_of = colours(scale, values), fills(figure)
    return any(all_of[i : i + len(wanted)] == wanted for i in range(len(all_of) - len(wanted) + 1))


def inside(figure: Figure) -> None:
    """No word stands beyond the edge of the sheet, where it would be cut off."""
    drawing = figure.drawing
    drawing.set_dpi(DOTS)
    width, height = drawing.bbox.size
    renderer = FigureCanvasAgg(drawing).get_renderer()
    for text in drawing.axes[0].texts:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*Glyph.*")  # a script that the font does not have
            box = text.get_window_extent(renderer)
        assert box.x0 > -1, text.get_text()
        assert box.x1 < width + 1, text.get_text()
        assert box.y0 > -1, text.get_text()
        assert box.y1 < height + 1, text.get_text()


def saves(figure: Figure, tmp_path: Path) -> None:
    """The figure is a file in each format, and all its words stand on the sheet."""
    inside(figure)
    for suffix, start in ((".svg", b"<?xml"), (".pdf", b"%PDF"), (".png", b"\x89PNG")):
        assert figure.save(tmp_path / f"figure{suffix}").read_bytes().startswith(start)


def softmax(scores: np.ndarray) -> np.ndarray:
    """By rows, in NumPy."""
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
