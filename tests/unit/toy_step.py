"""A model small enough to be followed by hand: what follows depends on all that was read, by a table."""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.generate.decode import Prompts

__all__ = ["EOS", "Read", "Toy", "ragged"]

EOS = 0


@dataclass(frozen=True)
class Read:
    """A state that remembers every token."""

    rows: tuple[tuple[int, ...], ...]

    def select(self, row_B: Tensor) -> "Read":
        return Read(tuple(self.rows[row] for row in row_B.tolist()))

    def join(self, other: "Read") -> "Read":
        return Read(self.rows + other.rows)

    def branch(self, parent_BT: Tensor) -> "Read":
        raise AssertionError("this model has no shared branches")

    def rewind(self, length_B: Tensor) -> "Read":
        assert all(length <= len(row) for row, length in zip(self.rows, length_B.tolist(), strict=True))
        return Read(tuple(row[:length] for row, length in zip(self.rows, length_B.tolist(), strict=True)))


class Toy:
    """A `Step` of that many words; `asked` notes the shape of what each step was given."""

    branches = False

    def __init__(self, words: int, seed: int, *, sharp: float = 1.0) -> None:
        self.logits_WV = sharp * torch.randn(97, words, generator=torch.Generator().manual_seed(seed))
        self.asked: list[tuple[int, int]] = []

    def start(self, rows: int) -> Read:
        return Read(((),) * rows)

    def after(self, row: tuple[int, ...]) -> Tensor:
        """Logits of what follows."""
        return self.logits_WV[sum((place + 3) * (token + 1) for place, token in enumerate(row)) % 97]

    def read(self, texts: list[list[int]]) -> Tensor:
        """Log-probabilities of what follows each text."""
        return torch.stack([self.after(tuple(text)) for text in texts]).log_softmax(-1)

    def step(
        self, token_BT: Tensor, state: Read, *, count_B: Tensor | None = None, last: bool = False
    ) -> tuple[Tensor, Read]:
        self.asked.append((token_BT.shape[0], token_BT.shape[1]))
        counts = [token_BT.shape[1]] * len(token_BT) if count_B is None else count_B.tolist()
        texts = [(*before, *row) for before, row in zip(state.rows, token_BT.tolist(), strict=True)]
        lengths = [len(before) + count for before, count in zip(state.rows, counts, strict=True)]
        rows = tuple(text[:length] for text, length in zip(texts, lengths, strict=True))
        if last:
            return torch.stack([self.after(row) for row in rows])[:, None], Read(rows)
        first = [len(before) + 1 for before in state.rows]
        logits = [
            torch.stack([self.after(text[:end]) for end in range(start, len(text) + 1)])
            for text, start in zip(texts, first, strict=True)
        ]
        return torch.stack(logits), Read(rows)


def ragged(rows: list[list[int]], longest: int | list[int], eos: int | None = EOS) -> Prompts:
    """Prompts of different lengths as one batch."""
    width = max(map(len, rows))
    token_BT = torch.tensor([[*row, *[EOS] * (width - len(row))] for row in rows])
    limits = [longest] * len(rows) if isinstance(longest, int) else longest
    return Prompts(token_BT, limits, eos, torch.tensor([len(row) for row in rows]))
