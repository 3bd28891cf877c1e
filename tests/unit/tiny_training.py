"""A tiny model and job for the tests of training: unequal lengths, two loss terms, dropout, tied weights."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.train.job import Job
from clearhead.train.loss import IGNORE, Terms, cross_entropy
from clearhead.train.settings import Training

VOCABULARY, WIDTH = 11, 8
Batch = tuple[Tensor, Tensor, Tensor]


class TinyModel(nn.Module):
    """Tags each token and classifies each row."""

    def __init__(self, *, width: int = WIDTH, dropout: float = 0.0, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Dropout(dropout)) for _ in range(2)
        )
        self.norm = nn.LayerNorm(width)
        self.row = nn.Linear(width, 2)
        self.out = nn.Linear(width, VOCABULARY)
        self.out.weight = self.embed.weight

    def forward(self, token_BL: Tensor) -> tuple[Tensor, Tensor]:
        x_BLD = self.embed(token_BL)
        for block in self.blocks:
            x_BLD = x_BLD + block(x_BLD)
        x_BLD = self.norm(x_BLD)
        return self.out(x_BLD), self.row(x_BLD.mean(1))


def tiny_loss(model: nn.Module, batch: Batch) -> Terms:
    token_BL, target_BL, label_B = batch
    logits_BLV, row_BC = model(token_BL)
    return {
        "token": cross_entropy(logits_BLV.flatten(0, 1), target_BL.flatten(), smoothing=0.1),
        "row": cross_entropy(row_BC, label_B),
    }


def tiny_counts(batch: Batch) -> Mapping[str, int]:
    return {"token": int((batch[1] != IGNORE).sum()), "row": len(batch[2])}


def rows_of(step: int, rows: int) -> Batch:
    """The whole batch of a step: rows of 2 to 9 tokens, padded to 9."""
    generator = torch.Generator().manual_seed(step)
    token_BL = torch.randint(VOCABULARY, (rows, 9), generator=generator)
    length_B = torch.randint(2, 10, (rows,), generator=generator)
    target_BL = torch.where(torch.arange(9) < length_B[:, None], (3 * token_BL + 1) % VOCABULARY, IGNORE)
    return token_BL, target_BL, token_BL[:, 0] % 2


def tiny_job(*, rows: int = 8, parts: int = 1, rank: int = 0, size: int = 1) -> Job[Batch]:
    """The same rows in each step, however many parts and ranks they are cut into; empty parts are left out."""

    def batches(step: int) -> list[Batch]:
        whole = rows_of(step, rows)
        pieces = [tuple(x[piece :: parts * size] for x in whole) for piece in range(rank * parts, (rank + 1) * parts)]
        return [(x, y, z) for x, y, z in pieces if len(x)]

    return Job(loss=tiny_loss, counts=tiny_counts, batches=batches, terms=("token", "row"), validate=tiny_validate)


@torch.no_grad()
def tiny_validate(model: nn.Module) -> dict[str, float]:
    logits_BLV, _ = model(rows_of(10_000, 16)[0])
    total, count = cross_entropy(logits_BLV.flatten(0, 1), rows_of(10_000, 16)[1].flatten())
    return {"loss": float(total / count)}


TRAINING = Training(steps=12, learning_rate=0.02, warmup=3, weight_decay=0.1, log_every=1, progress="quiet")


def tiny_training(**changes: Any) -> Training:
    return replace(TRAINING, **changes)


def same_bits(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
