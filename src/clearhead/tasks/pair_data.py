"""Sentence pairs for translation: from files, from Python or built in, to batches of tensors."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead.data.batch import pad
from clearhead.data.corpus import PairCorpus, Progress, pair_corpus
from clearhead.data.pairs import PairSource
from clearhead.data.phrasebook.corpus import splits
from clearhead.data.token_array import TokenArray
from clearhead.data.tokenizers import Tokenizer
from clearhead.data.typed import hasty, is_chosen
from clearhead.errors import ConfigError, DataError
from clearhead.tasks.directory import Settings
from clearhead.tasks.recipe import Data, Files
from clearhead.train.loss import IGNORE

__all__ = [
    "Frame",
    "PairBatch",
    "PairData",
    "PairParts",
    "Pairs",
    "as_pairs",
    "encode_pairs",
    "fitting",
    "head",
    "parts_of",
    "texts_of",
]

Pairs = PairSource | list[tuple[str, str]]
PairData = PairSource | str | Path | tuple[Path, Path] | Sequence[tuple[str, str]]


@dataclass(frozen=True)
class PairParts:
    """What to learn from, what to watch while learning, and what to be judged by."""

    train: Pairs
    valid: Pairs | None = None
    test: Pairs | None = None


@dataclass(frozen=True)
class Frame:
    """The special tokens around what an encoder–decoder reads and writes.

    before, after   around a source: nothing and `eos`, or what another project's tokenizer puts there
    begin           with which a target begins: `bos`, and what some models (BART) have to write first
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    begin: tuple[int, ...]
    eos: int

    @staticmethod
    def of(tokenizer: Tokenizer, settings: Settings) -> "Frame":
        before, after = tokenizer.around
        first, config = settings.generation.get("begin", ()), settings.config
        return Frame(before, after if before or after else (config.eos,), (config.bos, *first), config.eos)

    @property
    def room(self) -> int:
        """So many tokens come to the longer side of a pair."""
        return max(len(self.before) + len(self.after), len(self.begin))


@dataclass(frozen=True)
class PairBatch:
    """Pairs as the model reads them: source in its frame, target after its start, and the target to be told."""

    source_BM: Tensor
    source_count_B: Tensor
    target_BL: Tensor
    target_count_B: Tensor
    label_BL: Tensor

    @staticmethod
    def of(source: Sequence[Iterable[int]], target: Sequence[Iterable[int]], frame: Frame) -> "PairBatch":
        """Pad rows of plain ids; a real token stands for padding, which nobody ever reads."""
        source_BM, source_count_B = pad([[*frame.before, *row, *frame.after] for row in source], frame.eos)
        target_BL, target_count_B = pad([[*frame.begin, *row] for row in target], frame.eos)
        label_BL, _ = pad([[*frame.begin[1:], *row, frame.eos] for row in target], IGNORE)
        return PairBatch(*map(torch.from_numpy, (source_BM, source_count_B, target_BL, target_count_B, label_BL)))

    def to(self, device: torch.device) -> "PairBatch":
        tensors = (self.source_BM, self.source_count_B, self.target_BL, self.target_count_B, self.label_BL)
        return PairBatch(*(tensor.to(device) for tensor in tensors))

    @property
    def tokens(self) -> int:
        """Targets, ends included."""
        return int(self.target_count_B.sum())


def as_pairs(data: PairData) -> Pairs:
    """A source to be read, or pairs that are there."""
    if isinstance(data, PairSource):
        return data
    if isinstance(data, str | Path):
        return PairSource(Path(data))
    pairs: list[Any] = list(data)
    if len(pairs) == 2 and all(isinstance(path, Path) for path in pairs):
        return PairSource(*pairs)
    for pair in pairs or [None]:
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
            raise DataError(f"pairs of texts are wanted, or a file of them, not {pair!r}")
    return [(source, target) for source, target in pairs]


def parts_of(data: Data) -> PairParts:
    """The parts that a recipe names."""
    if data.builtin:
        built = splits(data.sentences, data.held_out, data.held_out, data.seed)
        learned, *held_out = ([(pair.source, pair.target) for pair in part] for part in built)
        return PairParts(_also_typed(learned, data.as_typed), *held_out)
    if data.train is None:
        raise ConfigError("data.train: a file of pairs, two parallel files, or data.builtin is needed")
    train = _source(data.train, data)
    test = None if data.test is None else _source(data.test, data)
    if data.split:
        pairs = list(head(train))
        np.random.default_rng(data.seed).shuffle(pairs)
        cut = round(data.split * len(pairs))
        return PairParts(_also_typed(pairs[:cut], data.as_typed), pairs[cut:], test)
    return PairParts(
        replace(train, as_typed=data.as_typed), None if data.valid is None else _source(data.valid, data), test
    )


def _also_typed(pairs: list[tuple[str, str]], share: float) -> list[tuple[str, str]]:
    return pairs + [(hasty(source), target) for source, target in pairs if is_chosen(source, share)]


def _source(files: Files, data: Data) -> PairSource:
    path, target = (files, None) if isinstance(files, Path) else files
    return PairSource(path, target, data.fields, data.columns, data.encoding)


def texts_of(pairs: Pairs) -> Iterator[str]:
    """Both sides, for a tokenizer."""
    return chain.from_iterable(head(pairs))


def head(pairs: Pairs, count: int | None = None) -> Iterator[tuple[str, str]]:
    """The first pairs, as text; all of them without a count."""
    if isinstance(pairs, PairSource):
        return ((pair.source, pair.target) for pair in islice(pairs.pairs(), count))
    return iter(pairs[:count])


def encode_pairs(
    pairs: Pairs, reader: Tokenizer, writer: Tokenizer | None = None, progress: Progress | None = None
) -> PairCorpus:
    """Pairs as plain ids: files through the cache of corpora, the rest in memory; `writer` is that of the targets."""
    readers = (reader, reader if writer is None else writer)
    if isinstance(pairs, PairSource):
        return pair_corpus(pairs, readers, progress=progress)
    sides = zip(readers, zip(*pairs, strict=True), strict=True)
    source, target = (TokenArray.of(tokenizer.encode_batch(side)) for tokenizer, side in sides)
    return PairCorpus(source, target, skipped=0, first_skipped="")


def fitting(corpus: PairCorpus, longest: int, frame: Frame) -> NDArray[np.int64]:
    """The numbers of the pairs of which no side, with its frame, has more than `longest` tokens; 0: all."""
    within = corpus.lengths.max(axis=1) + frame.room <= (longest or np.iinfo(np.int64).max)
    return np.flatnonzero(within)
