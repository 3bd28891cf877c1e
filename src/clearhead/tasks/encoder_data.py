"""Rows for encoders: texts between `<cls>` and `<sep>`, padded to batches, with what is to be told about them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.data.batch import pad
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import ConfigError
from clearhead.train.loss import IGNORE

__all__ = ["SPECIALS", "EncoderBatch", "frame"]

SPECIALS = ("<pad>", "<unk>", "<cls>", "<sep>", "<mask>")


@dataclass(frozen=True)
class EncoderBatch:
    """Rows of tokens, and what is to be told: of some tokens (IGNORE elsewhere), of each row, or of both.

    Targets that nobody asks for are empty; segments are None where all is one.
    """

    token_BL: Tensor
    count_B: Tensor
    label_BL: Tensor
    class_B: Tensor
    segment_BL: Tensor | None

    @staticmethod
    def of(
        rows: Sequence[Sequence[int]],
        *,
        labels: Sequence[Sequence[int]] = (),
        classes: Sequence[int] = (),
        segments: Sequence[Sequence[int]] | None = None,
    ) -> "EncoderBatch":
        token_BL, count_B = map(torch.from_numpy, pad(rows, 0))
        label_BL = torch.from_numpy(pad(labels, IGNORE)[0])
        segment_BL = None if segments is None else torch.from_numpy(pad(segments, 0)[0])
        return EncoderBatch(token_BL, count_B, label_BL, torch.tensor(classes, dtype=torch.int64), segment_BL)

    def to(self, device: torch.device) -> "EncoderBatch":
        segment_BL = None if self.segment_BL is None else self.segment_BL.to(device)
        tensors = (self.token_BL, self.count_B, self.label_BL, self.class_B)
        token_BL, count_B, label_BL, class_B = (tensor.to(device) for tensor in tensors)
        return EncoderBatch(token_BL, count_B, label_BL, class_B, segment_BL)

    @property
    def labels(self) -> int:
        """How many tokens have a target."""
        return int(torch.count_nonzero(self.label_BL != IGNORE))


def frame(first: Sequence[int], tokenizer: Tokenizer, longest: int) -> list[int]:
    """`<cls>`, the ids, `<sep>`, cut to `longest`."""
    if tokenizer.cls is None or tokenizer.sep is None:
        raise ConfigError("an encoder's tokenizer needs the special tokens <cls> and <sep>, and this one lacks them")
    return [tokenizer.cls, *first[: longest - 2], tokenizer.sep]
