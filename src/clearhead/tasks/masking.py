"""Masked words and next sentences [devlin2019 §3.1]: rows of a text, and what of them is hidden.

Of the tokens that are chosen, 80% become `<mask>`, 10% a random word, 10% stay; all of them are to be told. Everything
here is a pure function of a seed and a number, so that every step hides other words and a resumed run the same ones.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.data.batch import random_windows, sequential_windows
from clearhead.data.token_array import TokenArray
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import ConfigError, DataError
from clearhead.tasks.encoder_data import EncoderBatch, frame
from clearhead.train.loss import IGNORE

__all__ = ["MaskedRow", "MaskedRows", "Masking", "masked_batch", "pair_row"]

Ids = NDArray[np.int64]

CHOSEN, MASKED, REPLACED = 0.15, 0.8, 0.1
ROWS_AT_ONCE = 32
FIXED_SEED = 0  # of what is hidden where a model is judged


@dataclass(frozen=True, eq=False)
class Masking:
    """How tokens are hidden: `mask` is the id of `<mask>`, `ordinary_V` says which ids are no special tokens."""

    mask: int
    ordinary_V: NDArray[np.bool_]

    @staticmethod
    def of(tokenizer: Tokenizer) -> "Masking":
        if tokenizer.mask is None:
            raise ConfigError("a masked model's tokenizer needs the special token <mask>, and this one lacks it")
        ordinary_V = np.ones(tokenizer.vocabulary_size, dtype=np.bool_)
        ordinary_V[[*tokenizer.special_ids]] = False
        return Masking(tokenizer.mask, ordinary_V)

    def __call__(self, token_L: Ids, rng: np.random.Generator) -> tuple[Ids, Ids]:
        """The row with some tokens hidden, and what was there: the target where a token was chosen, else IGNORE.

        Special tokens are never chosen; of the others at least one is.
        """
        can_L = self.ordinary_V[token_L]
        draw_L = np.where(can_L, rng.random(len(token_L)), np.inf)
        chosen_L = (draw_L < CHOSEN) | (can_L & (draw_L == draw_L.min(initial=np.inf)))
        kind_L = rng.random(len(token_L))
        word_L = rng.choice(np.flatnonzero(self.ordinary_V), len(token_L))
        stands_L = np.where(kind_L < MASKED, self.mask, np.where(kind_L < MASKED + REPLACED, word_L, token_L))
        return np.where(chosen_L, stands_L, token_L), np.where(chosen_L, token_L, IGNORE)


class MaskedRow(NamedTuple):
    """A row as the model sees it, and what it is to tell."""

    tokens: Sequence[int]
    targets: Sequence[int]
    segments: Sequence[int]
    follows: int


@dataclass(frozen=True, eq=False)
class MaskedRows:
    """Rows of a text with some words hidden.

    length   of a row, special tokens included
    pairs    a row is two sentences (documents of the text), of which the second follows the first every other time
    """

    text: TokenArray
    tokenizer: Tokenizer
    length: int
    pairs: bool

    def __post_init__(self) -> None:
        if self.pairs and len(self.text) < 2:
            raise DataError(f"next sentences need a text of at least two lines, and there are {len(self.text)}")
        if self.length < 8:
            raise ConfigError(f"a row needs at least 8 tokens to hide some: length={self.length}")

    def drawn(self, rows: int, *, seed: int, number: int) -> list[MaskedRow]:
        """So many rows from random places."""
        rng = np.random.default_rng((seed, number))
        if self.pairs:
            return [*self._pairs(rng.integers(0, len(self.text) - 1, rows).tolist(), rng)]
        length = min(self.length - 2, self.text.size)
        return [*self._windows(random_windows(self.text.size, length=length, rows=rows, seed=seed, step=number), rng)]

    def all(self) -> Iterator[list[MaskedRow]]:
        """The whole text, some rows at a time, with the same words hidden each time."""
        rng = np.random.default_rng(FIXED_SEED)
        windows = sequential_windows(self.text.size, length=min(self.length - 2, self.text.size))
        rows = self._pairs(range(len(self.text) - 1), rng) if self.pairs else self._windows(windows, rng)
        while batch := [*islice(rows, ROWS_AT_ONCE)]:
            yield batch

    @cached_property
    def _masking(self) -> Masking:
        return Masking.of(self.tokenizer)

    def _windows(self, spans: Ids, rng: np.random.Generator) -> Iterator[MaskedRow]:
        for start, stop in spans.tolist():
            (ids,) = self.text.spans([(start, stop)])
            row = frame(ids.tolist(), self.tokenizer, self.length)
            yield self._masked(row, [0] * len(row), 0, rng)

    def _pairs(self, firsts: Sequence[int], rng: np.random.Generator) -> Iterator[MaskedRow]:
        for first in firsts:
            second = first + 1 if rng.random() < 0.5 else int(rng.integers(0, len(self.text)))
            ours, theirs = (ids.tolist() for ids in self.text.documents([first, second]))
            row, segments = pair_row(ours, theirs, self.tokenizer, self.length)
            yield self._masked(row, segments, int(second == first + 1), rng)

    def _masked(self, row: list[int], segments: list[int], follows: int, rng: np.random.Generator) -> MaskedRow:
        token_L, target_L = self._masking(np.array(row), rng)
        return MaskedRow(token_L.tolist(), target_L.tolist(), segments, follows)


def pair_row(
    first: Sequence[int], second: Sequence[int], tokenizer: Tokenizer, longest: int
) -> tuple[list[int], list[int]]:
    """`<cls>` first `<sep>` second `<sep>` with the segment of each; where it is too long, the longer one is cut."""
    room = longest - 3
    kept = min(len(first), max(room - len(second), room // 2))
    front = frame(first[:kept], tokenizer, kept + 2)
    back = frame(second[: room - kept], tokenizer, room - kept + 2)[1:]
    return front + back, [0] * len(front) + [1] * len(back)


def masked_batch(rows: Sequence[MaskedRow], *, pairs: bool) -> EncoderBatch:
    """Rows as tensors."""
    return EncoderBatch.of(
        [row.tokens for row in rows],
        labels=[row.targets for row in rows],
        classes=[row.follows for row in rows] if pairs else (),
        segments=[row.segments for row in rows] if pairs else None,
    )
