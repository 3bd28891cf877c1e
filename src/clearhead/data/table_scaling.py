"""Bringing numbers to a common size, by what the training data shows; missing ones stay missing.

| name | becomes |
|---|---|
| quantile | the normal quantile of the value's rank in its column [gorishniy2021 §4.3] |
| standard | (x − mean) / standard deviation |
| none | itself |
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from clearhead.data.tables import Cells

__all__ = ["SCALINGS", "Scaling", "ScalingKind", "fit_scaling"]

LEAST, MOST = 10, 1000
EDGE = 1e-7  # ranks are kept this far from 0 and 1, whose normal quantiles are infinite


@dataclass(frozen=True, eq=False)
class Scaling:
    """One way of scaling with what it knows of the training data, columns last in each array."""

    name: str
    arrays: Mapping[str, Cells] = field(default_factory=dict)

    def apply(self, number_BC: Cells) -> Cells:
        """The scaled numbers as float32."""
        return SCALINGS[self.name].apply(number_BC, self.arrays).astype(np.float32)


@dataclass(frozen=True)
class ScalingKind:
    """A row of the table: what is learned from the training data, and how it is used."""

    fit: Callable[[Cells], dict[str, Cells]]
    apply: Callable[[Cells, Mapping[str, Cells]], Cells]


def fit_scaling(name: str, number_BC: Cells) -> Scaling:
    """The scaling of that name, fitted to these rows."""
    return Scaling(name, SCALINGS[name].fit(number_BC))


def _fit_quantiles(number_BC: Cells) -> dict[str, Cells]:
    # DIFF[gorishniy2021 §4.3]: the authors' code adds noise, so that values that repeat come apart; it grows as the
    # spread of a column shrinks, and drowns small numbers. The middle of a value's ranks (below) needs none.
    rows = len(number_BC)
    rank_W = np.linspace(0, 1, min(rows, max(min(rows // 30, MOST), LEAST)))
    quantile_WC = np.nanquantile(number_BC, rank_W, axis=0)
    return {"quantiles": np.maximum.accumulate(quantile_WC, axis=0)}


def _apply_quantiles(number_BC: Cells, arrays: Mapping[str, Cells]) -> Cells:
    quantile_WC = arrays["quantiles"]
    rank_W = np.linspace(0, 1, len(quantile_WC))
    rank_BC = np.empty(number_BC.shape)
    for c, known_W in enumerate(quantile_WC.T):
        # Where a value fills several quantiles, the middle of the ranks that it has from below and from above.
        below = np.interp(number_BC[:, c], known_W, rank_W)
        above = -np.interp(-number_BC[:, c], -known_W[::-1], -rank_W[::-1])
        rank_BC[:, c] = (below + above) / 2
    bounded_BC = torch.from_numpy(rank_BC.clip(EDGE, 1 - EDGE))
    normal: Cells = torch.special.ndtri(bounded_BC).numpy()
    return normal


def _fit_standard(number_BC: Cells) -> dict[str, Cells]:
    deviation_C = np.nanstd(number_BC, axis=0)
    return {"mean": np.nanmean(number_BC, axis=0), "deviation": np.where(deviation_C > 0, deviation_C, 1.0)}


SCALINGS: dict[str, ScalingKind] = {
    "quantile": ScalingKind(_fit_quantiles, _apply_quantiles),
    "standard": ScalingKind(
        _fit_standard, lambda number_BC, arrays: (number_BC - arrays["mean"]) / arrays["deviation"]
    ),
    "none": ScalingKind(lambda number_BC: {}, lambda number_BC, arrays: number_BC),
}
