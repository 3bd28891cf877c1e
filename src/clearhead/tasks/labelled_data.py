"""Texts with labels, and sentences with a tag for each word: from files or from Python, split where one file is all."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from clearhead.data.labelled import labelled_texts, tagged_sentences
from clearhead.errors import ConfigError, DataError
from clearhead.tasks.recipe import Data, Files

__all__ = ["Example", "LabelledParts", "Tagged", "label_numbers", "parts_of_labels", "read_labelled", "read_tagged"]

Example = tuple[str, str]  # a text and its label
Tagged = tuple[Sequence[str], Sequence[str]]  # words and their tags
Item = TypeVar("Item", bound=Tagged)  # an `Example` too: a text is a sequence of texts


@dataclass(frozen=True)
class LabelledParts(Generic[Item]):
    """What to learn from, what to watch while learning, and what to be judged by."""

    train: list[Item]
    valid: list[Item] | None = None
    test: list[Item] | None = None


def read_labelled(data: str | Path | Sequence[Example], how: Data | None = None) -> list[Example]:
    """Texts with their labels: of a file, read as the recipe's data section says, or as they are."""
    if isinstance(data, str | Path):
        how = how or Data()
        rows = labelled_texts(Path(data), label=how.label, text=how.text, encoding=how.encoding)
        return [(row.text, row.label) for row in rows]
    if not data:
        raise DataError("texts with labels are wanted, and there is none")
    return [(str(text), str(label)) for text, label in data]


def read_tagged(data: str | Path | Sequence[Tagged], how: Data | None = None) -> list[Tagged]:
    """Words with their tags: of a CoNLL file, or as they are."""
    if isinstance(data, str | Path):
        rows = tagged_sentences(Path(data), encoding=(how or Data()).encoding)
        return [(row.words, row.tags) for row in rows]
    for words, tags in data:
        if len(words) != len(tags):
            raise DataError(f"each word needs one tag: {len(words)} words, {len(tags)} tags in {list(words)!r:.60}")
    if not data:
        raise DataError("sentences with tags are wanted, and there is none")
    return list(data)


def parts_of_labels(data: Data, read: Callable[[Path, Data], list[Item]]) -> LabelledParts[Item]:
    """The parts that a recipe names; with `split`, validation gets a random part of `train`, but of no label all."""
    if data.train is None:
        raise ConfigError("data.train: a file is needed")
    train = read(_file(data.train), data)
    valid, test = (None if files is None else read(_file(files), data) for files in (data.valid, data.test))
    if data.split:
        order = np.random.default_rng(data.seed).permutation(len(train))
        held = _held_out(train, order[::-1].tolist(), len(train) - round(data.split * len(train)))
        train, valid = [train[i] for i in order if i not in held], [train[i] for i in order if i in held]
    return LabelledParts(train, valid, test)


def _held_out(items: Sequence[Tagged], order: Iterable[int], count: int) -> set[int]:
    """So many items, the first in that order, except each that would be the last to have one of its labels."""
    left = Counter(label for item in items for label in _labels(item))
    held: set[int] = set()
    for number in order:
        labels = _labels(items[number])
        if len(held) < count and all(left[label] > 1 for label in labels):
            held.add(number)
            left.subtract(labels)
    return held


def _labels(item: Tagged) -> set[str]:
    return {item[1]} if isinstance(item[1], str) else {*item[1]}


def _file(files: Files) -> Path:
    if not isinstance(files, Path):
        raise ConfigError(f"data: one file is wanted, not {[str(path) for path in files]}")
    return files


def label_numbers(labels: Iterable[str], known: Sequence[str]) -> list[int]:
    """The places of labels among the known ones."""
    places = {label: number for number, label in enumerate(known)}
    numbers = []
    for label in labels:
        if label not in places:
            raise DataError(f"the label {label!r} does not occur in the training data, which has {list(known)!r:.80}")
        numbers.append(places[label])
    return numbers
