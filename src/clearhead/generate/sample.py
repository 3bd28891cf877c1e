"""Sampling: each token drawn from what is left of the distribution when the unlikely ones are cut off."""

from collections.abc import Sequence

import torch
from torch import Tensor

from clearhead.generate.decode import Choose
from clearhead.generate.decoding import Decoding
from clearhead.generate.filters import draw, narrowing

__all__ = ["drawing"]

SEEDS = 1 << 64  # so many PyTorch takes


def drawing(decoding: Decoding, rows: int) -> Choose:
    """Draw as `decoding` says, each row by a source of chance of its own, so that it is drawn alike in any company.

    Of every `decoding.best` rows, which go on with the same prompt, each starts from another seed.
    """
    cuts = narrowing(decoding)
    seeds = (decoding.seed * decoding.best + row % decoding.best for row in range(rows))
    chances = [torch.Generator().manual_seed(seed % SEEDS) for seed in seeds]

    def choose(score_BV: Tensor, rows: Sequence[int]) -> Tensor:
        for cut in cuts:
            score_BV = cut(score_BV)
        uniform = [torch.rand((), generator=chances[row], dtype=torch.float64) for row in rows]
        return draw(score_BV, torch.stack(uniform).to(score_BV.device))

    return choose
