"""Running text for language models: from files or from Python to one stream of tokens, and windows of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clearhead.data.corpus import Progress, text_corpus
from clearhead.data.sources import TextSource
from clearhead.data.token_array import TokenArray
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import ConfigError, DataError
from clearhead.tasks.recipe import Data, Files

__all__ = [
    "TextData",
    "TextParts",
    "Texts",
    "as_texts",
    "characters",
    "encode_parts",
    "encode_texts",
    "learned",
    "parts_of_text",
]

Texts = TextSource | list[str]
TextData = TextSource | Path | str | Sequence[str]


@dataclass(frozen=True)
class TextParts:
    """What to learn from, what to watch while learning, and what to be judged by.

    split   where there is no `valid`: the share of the stream of `train` that is learned from, the rest is watched
    """

    train: Texts
    valid: Texts | None = None
    test: Texts | None = None
    split: float | None = None


def as_texts(data: TextData) -> Texts:
    """A source to be read, or texts that are there; a string is the path of a file or folder."""
    if isinstance(data, TextSource):
        return data
    if isinstance(data, str | Path):
        return TextSource(Path(data))
    texts = list(data)
    if not texts or not all(isinstance(text, str) for text in texts):
        raise DataError(f"texts are wanted, or a file of them, not {texts!r:.60}")
    return texts


def parts_of_text(data: Data) -> TextParts:
    """The parts that a recipe names."""
    if data.train is None:
        raise ConfigError("data.train: a file or folder of text is needed")
    train = _source(data.train, data)
    valid, test = (None if files is None else _source(files, data) for files in (data.valid, data.test))
    return TextParts(train, valid, test, data.split)


def _source(files: Files, data: Data) -> TextSource:
    if not isinstance(files, Path):
        raise ConfigError(f"data: one file or folder of text is wanted, not {[str(path) for path in files]}")
    return TextSource(files, data.text, data.encoding, data.unit)


def characters(texts: Texts) -> Iterator[str]:
    """The text in pieces, line ends included."""
    return texts.texts() if isinstance(texts, TextSource) else iter(texts)


def learned(data: TextParts) -> Iterator[str]:
    """What a tokenizer is trained on: of a text that is split, its first characters, as large a share as is learned."""
    if data.split is None or data.valid is not None:
        yield from characters(data.train)
        return
    left = round(data.split * sum(map(len, characters(data.train))))
    for piece in characters(data.train):
        yield piece[:left]
        left -= len(piece)
        if left <= 0:
            return


def encode_texts(texts: Texts, tokenizer: Tokenizer, separator: int | None, progress: Progress | None) -> TokenArray:
    """Text as ids, `separator` behind each document: files through the cache of corpora, the rest in memory."""
    if isinstance(texts, TextSource):
        return text_corpus(texts, tokenizer, separator=separator, progress=progress)
    end = [] if separator is None else [separator]
    return TokenArray.of([ids + end for ids in tokenizer.encode_batch(texts)])


def encode_parts(
    data: TextParts, tokenizer: Tokenizer, separator: int | None, progress: Progress | None = None
) -> tuple[TokenArray, TokenArray | None]:
    """The streams to learn from and to watch; where one text is both, lines that are documents stay whole."""
    train = encode_texts(data.train, tokenizer, separator, progress)
    if data.valid is not None:
        return train, encode_texts(data.valid, tokenizer, separator, progress)
    if data.split is None:
        return train, None
    cut, ends = int(data.split * train.size), train.offsets[1:-1]
    if isinstance(data.train, TextSource) and data.train.unit == "line" and len(ends):
        cut = int(ends[np.abs(ends - cut).argmin()])
    return train.part(0, cut), train.part(cut, train.size)
