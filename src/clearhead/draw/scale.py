"""Scales: from numbers to colours, with the words that say how."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clearhead.draw.palette import HIGH, LOW, MIDDLE, SEQUENTIAL
from clearhead.errors import ShapeError

__all__ = ["Floats", "Scale", "around_zero", "as_array", "mask_of", "scale_for", "shares"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Scale:
    """Numbers from `low` to `high` as colours: cividis, or blue–white–orange where zero lies in the middle."""

    low: float
    high: float
    says: str
    diverging: bool = False

    def colours(self, values: ArrayLike) -> NDArray[Any]:
        """Red, green, blue and opacity of each number; what is not finite is clear."""
        from matplotlib import colormaps
        from matplotlib.colors import LinearSegmentedColormap

        array = np.asarray(values, dtype=np.float64)
        finite = np.isfinite(array)
        span = self.high - self.low or 1.0
        part = np.clip((np.where(finite, array, self.low) - self.low) / span, 0, 1)
        if self.diverging:
            rgba = np.asarray(LinearSegmentedColormap.from_list("diverging", [LOW, MIDDLE, HIGH], N=512)(part))
        else:
            rgba = np.asarray(colormaps[SEQUENTIAL](part))
        return np.where(finite[..., None], rgba, 0.0)


def shares(values: Floats, says: str = "rows sum to 1") -> Scale:
    """For weights: from 0 to the largest."""
    finite = values[np.isfinite(values)]
    return Scale(0.0, float(finite.max(initial=0.0)) or 1.0, says)


def around_zero(values: Floats, says: str = "as they are") -> Scale:
    """For numbers of both signs: as far below zero as above it."""
    finite = values[np.isfinite(values)]
    most = float(np.abs(finite).max(initial=0.0)) or 1.0
    return Scale(-most, most, says, diverging=True)


def scale_for(values: Floats, says: str) -> Scale:
    """From 0 where nothing is negative, around zero otherwise."""
    finite = values[np.isfinite(values)]
    return around_zero(values, says) if bool((finite < 0).any()) else shares(values, says)


def as_array(values: ArrayLike, dimensions: int, name: str) -> Floats:
    """The numbers in float64, with the number of dimensions that a picture needs, and none of them empty."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()  # a tensor that remembers how it was made does not become an array
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != dimensions:
        raise ShapeError(f"{name} must have {dimensions} dimensions to be drawn, not shape {array.shape}")
    if 0 in array.shape:
        raise ShapeError(f"{name} has nothing to draw: shape {array.shape}")
    return array


def mask_of(masked: ArrayLike | None, like: Floats) -> NDArray[np.bool_]:
    """Which cells are masked: none unless said; of the shape of the numbers."""
    if masked is None:
        return np.zeros(like.shape, dtype=bool)
    array = np.asarray(masked, dtype=bool)
    if array.shape != like.shape:
        raise ShapeError(f"the mask has shape {array.shape}, the numbers {like.shape}")
    return array
