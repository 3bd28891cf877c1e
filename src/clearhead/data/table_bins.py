"""Bins for piecewise-linear embeddings [gorishniy2022 §3.2]: edges at equal ranks, or where the target turns."""

from collections.abc import Callable

import numpy as np

from clearhead.data.tables import Cells
from clearhead.errors import MissingPackageError

__all__ = ["BINS", "Edges", "quantile_edges", "tree_edges"]

LEAF = 64  # rows of a leaf at least, as the authors recommend
GAIN = 1e-4

Edges = list[Cells]  # of each column, rising


def quantile_edges(number_BC: Cells, target: Cells, bins: int, classes: bool) -> Edges:
    """As many values in each bin, as far as they differ; the target does not matter."""
    rank_W = np.linspace(0, 1, bins + 1)
    return [_rising(np.quantile(_present(column), rank_W)) for column in number_BC.T]


def tree_edges(number_BC: Cells, target: Cells, bins: int, classes: bool) -> Edges:
    """For each column alone, the thresholds of a decision tree with `bins` leaves that predicts the target."""
    try:
        from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
    except ImportError as error:
        raise MissingPackageError("bins by trees need 'scikit-learn': install clearhead[tables]") from error
    kind = DecisionTreeClassifier if classes else DecisionTreeRegressor
    edges = []
    for column in number_BC.T:
        there = ~np.isnan(column)
        leaf = max(1, min(LEAF, there.sum() // bins))
        tree = kind(max_leaf_nodes=max(2, bins), min_samples_leaf=leaf, min_impurity_decrease=GAIN, random_state=0)
        inner = tree.fit(column[there, None], target[there]).tree_
        cuts = inner.threshold[inner.children_left != inner.children_right]
        edges.append(_rising(np.concatenate([[column[there].min()], cuts, [column[there].max()]])))
    return edges


def _present(column: Cells) -> Cells:
    present: Cells = column[~np.isnan(column)]
    return present


def _rising(edges: Cells) -> Cells:
    """Sorted float32, each once; one bin at least, however narrow the column."""
    rising = np.unique(edges.astype(np.float32))
    return rising if len(rising) > 1 else np.array([rising[0], rising[0] + 1], dtype=np.float32)


# name -> (scaled numbers, target, how many bins, whether the target is one of classes) -> edges of each column
BINS: dict[str, Callable[[Cells, Cells, int, bool], Edges]] = {"quantiles": quantile_edges, "trees": tree_edges}
