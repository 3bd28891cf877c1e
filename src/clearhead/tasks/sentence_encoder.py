"""Sentence vectors: texts as points that lie near each other where they mean alike [reimers2019]."""

from pathlib import Path
from typing import Self, overload

import numpy as np
import torch
from numpy.typing import NDArray

from clearhead.errors import CheckpointError, DataError
from clearhead.models.encoder_only import EncoderOnlyConfig
from clearhead.tasks.batches import by_length
from clearhead.tasks.directory import ModelParts
from clearhead.tasks.encoder_data import EncoderBatch, frame
from clearhead.tasks.loading import load_model
from clearhead.tasks.pretrained import Pretrained

__all__ = ["SentenceEncoder"]

Vectors = NDArray[np.float32]


class SentenceEncoder(Pretrained):
    """An encoder that gives one vector for a text, pooled as its config says.

    Any encoder can be one; those made for it come from folders of sentence-transformers.
    """

    TASK = "sentence_encoder"

    def __init__(self, parts: ModelParts) -> None:
        if not isinstance(parts.settings.config, EncoderOnlyConfig):
            raise CheckpointError(f"vectors of texts need an encoder, not a model for {parts.settings.task}")
        super().__init__(parts)

    @classmethod
    def from_pretrained(cls, folder: str | Path, *, precision: str = "float32", threads: int | None = None) -> Self:
        """The encoder of a model directory, of a folder of sentence-transformers, or of any other encoder."""
        return cls(load_model(folder, precision=precision, threads=threads))

    @overload
    def encode(self, text: str) -> Vectors: ...

    @overload
    def encode(self, text: list[str]) -> Vectors: ...

    @torch.inference_mode()
    def encode(self, text: str | list[str]) -> Vectors:
        """The vector of a text, or a row for each of several; of a long text, that of its beginning."""
        if isinstance(text, str):
            return self.encode([text])[0]
        read = self.parts.settings.reading
        longest = min(self.config.length, read.longest or self.config.length)
        texts = [f"{read.prompt}{each.lower() if read.lower else each}" for each in text]
        rows = [frame(ids, self.tokenizer, longest) for ids in self.tokenizer.encode_batch(texts)]
        vectors = np.zeros((len(rows), self.config.width), np.float32)
        for which in by_length([len(row) for row in rows]):
            batch = EncoderBatch.of([rows[i] for i in which]).to(self.device)
            hidden = self.model.hidden(batch.token_BL, count_B=batch.count_B)
            vectors[which] = self.model.pooled(*hidden).float().cpu().numpy()
        return vectors

    def similarity(self, first: str | list[str], second: str | list[str]) -> Vectors:
        """The cosine between each of the first texts and each of the second: (first, second)."""
        ours, theirs = (_unit(self.encode([text] if isinstance(text, str) else text)) for text in (first, second))
        similar: Vectors = ours @ theirs.T
        return similar

    def nearest(self, text: str, among: list[str], count: int = 5) -> list[tuple[str, float]]:
        """The texts nearest to one in meaning, with their cosines, best first."""
        if not among:
            raise DataError("there is no text to be near to: `among` is empty")
        similar = self.similarity(text, among)[0]
        return [(among[place], float(similar[place])) for place in np.argsort(-similar, kind="stable")[:count]]


def _unit(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
