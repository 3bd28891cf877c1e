"""Word alignments: links drawn from attention weights, and how far they are from gold ones."""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import DataError

__all__ = ["Links", "alignment_error_rate", "links_of"]

Links = AbstractSet[tuple[int, int]]  # (place in the source, place in the target)


def links_of(weights_LM: NDArray[np.floating]) -> set[tuple[int, int]]:
    """Each target word with the source word that it looks at most.

    The last column is what is looked at when nothing is (the source's end): a target word that looks there most has
    no link.
    """
    nothing = weights_LM.shape[1] - 1
    return {(int(source), target) for target, source in enumerate(weights_LM.argmax(axis=1)) if source != nothing}


def alignment_error_rate(predicted: Sequence[Links], gold: Iterable[Links]) -> float:
    """AER = 1 − 2 |A ∩ G| / (|A| + |G|) over all sentences [och2003], where every gold link is a sure one."""
    right = there = 0
    for ours, theirs in zip(predicted, gold, strict=True):
        right += len(ours & theirs)
        there += len(ours) + len(theirs)
    if not there:
        raise DataError("an alignment error rate needs at least one link, predicted or gold")
    return 1 - 2 * right / there
