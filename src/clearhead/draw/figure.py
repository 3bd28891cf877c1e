"""A figure as a value: it shows itself in a notebook, and saves itself as SVG, PDF or PNG with text as text.

The same arrays give the same bytes: no date, no version, no random name is written into a file.
"""

import io
import os
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.draw.palette import DARK, LIGHT, Theme
from clearhead.errors import ConfigError, MissingPackageError, unwritten

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

__all__ = ["COLUMN", "DOTS", "FINE", "FORMATS", "PAGE", "WIDTHS", "Figure", "Sheet", "need_matplotlib"]

WIDTHS = {"column": 3.3, "page": 7.0}  # inches, of a paper in two columns

# Suffix -> the metadata that would otherwise carry dates and versions.
FORMATS: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".png": {"Software": None},
}
FINE: dict[Any, Any] = {"hatch.linewidth": 0.4}
TEXT_AS_TEXT: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "clearhead", "pdf.fonttype": 42}
DOTS = 300  # per inch, of a PNG


@dataclass(frozen=True)
class Sheet:
    """What a figure is drawn on: as wide as a `column` or a `page` of a paper, light or dark."""

    width: str = "column"
    dark: bool = False

    def __post_init__(self) -> None:
        if self.width not in WIDTHS:
            raise ConfigError(f"a figure is as wide as one of {sorted(WIDTHS)}, not {self.width!r}")

    @property
    def points(self) -> float:
        """The width in points, 72 to the inch."""
        return WIDTHS[self.width] * 72

    @property
    def theme(self) -> Theme:
        return DARK if self.dark else LIGHT


COLUMN, PAGE = Sheet("column"), Sheet("page")


@dataclass(frozen=True)
class Figure:
    """A finished drawing and the sentence that describes it to those who cannot see it."""

    drawing: "Drawing"
    says: str

    def svg(self) -> str:
        """The figure as SVG."""
        return self._bytes(".svg").decode()

    def _repr_svg_(self) -> str:
        return self.svg()

    def save(self, path: str | Path) -> Path:
        """Write SVG, PDF or PNG, by the suffix; the file is whole, or what was there before stays."""
        path = Path(path)
        suffix = path.suffix.lower()
        if suffix not in FORMATS:
            raise ConfigError(f"a figure is saved as one of {', '.join(FORMATS)}, not as {path.name!r}")
        if not path.parent.is_dir():
            raise ConfigError(f"no directory {str(path.parent)!r} to save {path.name!r} in: make it first")
        content = self._bytes(suffix)
        try:
            _write(path, content)
        except OSError as error:
            raise ConfigError(unwritten(path, error)) from error
        return path

    def _bytes(self, suffix: str) -> bytes:
        import matplotlib as mpl

        out = io.BytesIO()
        title = {"Description" if suffix == ".png" else "Title": self.says}
        with mpl.rc_context(FINE | TEXT_AS_TEXT), warnings.catch_warnings():
            # A glyph that the font lacks is drawn as a box, and is still there as text in SVG.
            warnings.filterwarnings("ignore", message=".*Glyph.*")
            self.drawing.savefig(out, format=suffix[1:], dpi=DOTS, metadata=FORMATS[suffix] | title)
        return out.getvalue()


def _write(path: Path, content: bytes) -> None:
    handle, beside = tempfile.mkstemp(prefix=f".{path.stem[:40]}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(beside).chmod(0o644)
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


def need_matplotlib() -> None:
    """Refuse in one sentence where the package that draws is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingPackageError("figures need the package matplotlib: pip install 'clearhead[draw]'") from error
