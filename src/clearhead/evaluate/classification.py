"""Accuracy and F1 of labels of texts, and F1 of labelled spans of words."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import DataError

__all__ = ["Classification", "Span", "SpanScore", "classification", "confusion", "span_f1", "spans"]


@dataclass(frozen=True)
class Classification:
    """micro_f1 counts every decision alike; macro_f1 is the mean over the classes that occur on either side."""

    accuracy: float
    macro_f1: float
    micro_f1: float


def confusion(predicted: Sequence[Hashable], gold: Sequence[Hashable], labels: Sequence[Hashable]) -> NDArray[np.int64]:
    """(C, C): how often a text of class `labels[row]` was called `labels[column]`."""
    _check(predicted, gold)
    place = {label: number for number, label in enumerate(labels)}
    unknown = next((label for label in (*gold, *predicted) if label not in place), None)
    if unknown is not None:
        raise DataError(f"the label {unknown!r} is none of the {len(labels)} known ones: {list(labels)[:8]}")
    table = np.zeros((len(labels), len(labels)), dtype=np.int64)
    np.add.at(table, ([place[label] for label in gold], [place[label] for label in predicted]), 1)
    return table


def classification(predicted: Sequence[Hashable], gold: Sequence[Hashable]) -> Classification:
    """Accuracy and F1 of one label for each text."""
    labels = sorted({*predicted, *gold}, key=repr)
    table = confusion(predicted, gold, labels)
    right, called, there = np.diag(table), table.sum(axis=0), table.sum(axis=1)
    accuracy = float(right.sum() / table.sum())
    # With one label on either side of each decision, micro precision, recall and accuracy are the same number.
    return Classification(accuracy, macro_f1=float(np.mean(2 * right / (called + there))), micro_f1=accuracy)


class Span(NamedTuple):
    """Words [start, stop) under one kind of name."""

    kind: str
    start: int
    stop: int


class SpanScore(NamedTuple):
    precision: float
    recall: float
    f1: float


def spans(tags: Sequence[str]) -> set[Span]:
    """The spans of BIO tags; an I without its B opens a span, as CoNLL's own script has it.

    >>> sorted(spans(["B-PER", "I-PER", "O", "I-LOC"]))
    [Span(kind='LOC', start=3, stop=4), Span(kind='PER', start=0, stop=2)]
    """
    found: set[Span] = set()
    kind: str | None = None  # of the span that is open; tags without a kind have the kind ""
    start = 0
    for place, tag in enumerate([*tags, "O"]):
        mark, _, name = tag.partition("-")
        if kind is not None and (mark != "I" or name != kind):
            found.add(Span(kind, start, place))
            kind = None
        if mark in ("B", "I") and kind is None:
            kind, start = name, place
    return found


def span_f1(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> SpanScore:
    """Precision, recall and F1 of whole spans with their kinds, over all sentences."""
    _check(predicted, gold)
    right = called = there = 0
    for ours, theirs in zip(predicted, gold, strict=True):
        _check(ours, theirs)
        right += len(spans(ours) & spans(theirs))
        called += len(spans(ours))
        there += len(spans(theirs))
    return SpanScore(_share(right, called), _share(right, there), _share(2 * right, called + there))


def _share(part: int, whole: int) -> float:
    """A share of nothing is 0, as scikit-learn has it."""
    return part / whole if whole else 0.0


def _check(predicted: Sequence[object], gold: Sequence[object]) -> None:
    if not gold or len(predicted) != len(gold):
        raise DataError(f"as many predictions as labels are wanted: {len(predicted)} and {len(gold)}")
