"""Training on a table: a short loop of its own, with early stopping for each member of an ensemble by itself.

The rows are tensors that are indexed by a fresh permutation in every epoch. An ensemble is one model with the members
side by side (`nn/members.py`): each has its own first weights, its own order of rows and its own dropout, is stopped by
its own validation, and learns what it would learn alone.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, SupportsFloat

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.nn.members import InTurn, Linears, member_weights, side_by_side
from clearhead.nn.tables import check_sizes
from clearhead.tasks.table_progress import epochs_bar
from clearhead.train.allocator import keep_freed_memory
from clearhead.train.optim import build_optimizer
from clearhead.train.seed import derive
from clearhead.train.settings import Training
from clearhead.train.step import DivergenceError

__all__ = [
    "Cost",
    "Course",
    "Fitting",
    "Judge",
    "Rows",
    "apart",
    "fit_members",
    "gradients",
    "in_parts",
    "seeded",
    "together",
    "usual_batch",
    "weights_of",
]

CPU = torch.device("cpu")
WEIGHTS = 1 << 26  # attention weights of a backward pass; a batch with more is gone through in parts
WIDE = 1 << 17  # numbers in the stream of one member
TOKENS = 1 << 16  # of a forward pass alone
LEAST = 32  # rows of a forward pass, or a multiple: so the usual widths compute a row alike, to the bit, beside others


@dataclass(frozen=True)
class Fitting:
    """How to train; `patience` counts epochs without a better validation, 0 trains through all epochs."""

    learning_rate: float
    weight_decay: float = 1e-5
    batch_size: int = 256
    epochs: int = 200
    patience: int = 16
    n_ensemble: int = 1
    seed: int = 0
    device: torch.device = CPU
    progress: str = "quiet"

    def __post_init__(self) -> None:
        check_sizes(self, "batch_size", "epochs", "n_ensemble")
        check_sizes(self, "patience", least=0)
        for name in ("learning_rate", "weight_decay"):
            number = getattr(self, name)
            if not (isinstance(number, SupportsFloat) and 0 <= float(number) < math.inf):
                raise ConfigError(f"{name} must be a number, and not negative: {name}={number!r}")
        if self.learning_rate == 0:
            raise ConfigError("learning_rate must be above 0: learning_rate=0")


class Rows(NamedTuple):
    """Rows of a table, encoded, with what is to be learned of each and how much it counts."""

    number_BC: Tensor
    code_BC: Tensor
    target: Tensor
    weight_B: Tensor

    def take(self, index_B: Tensor) -> "Rows":
        return Rows(*(x[index_B] for x in self))

    def to(self, device: torch.device) -> "Rows":
        return Rows(*(x.to(device) for x in self))


class Course(NamedTuple):
    """How training went: the model with the best weights of each member, and the validations."""

    model: nn.Module
    epochs: int
    best: list[float]  # the best validation of each member; infinite where there was none
    history: list[float]  # the mean of the members' validations, epoch by epoch


# What each row costs, given the outputs for it; the mean over rows is what is learned.
Cost = Callable[[nn.Module, Rows], Tensor]
# What validation says of each member, the lower the better: (model, rows, members) -> (S,)
Judge = Callable[[nn.Module, Rows, int], Tensor]


def fit_members(
    build: Callable[[], Any],
    train: Rows,
    valid: Rows | None,
    cost: Cost,
    judge: Judge,
    fitting: Fitting,
    start: Sequence[Mapping[str, Tensor]] | None = None,
) -> Course:
    """Train `fitting.n_ensemble` models that `build` makes, and keep for each the weights of its best epoch.

    `start` has weights to start from for each member, by name, where there are any.
    """
    if fitting.device.type == "cpu":
        keep_freed_memory()
    with seeded(fitting.seed):
        members = []
        for s in range(fitting.n_ensemble):
            torch.default_generator.manual_seed(derive(fitting.seed, s))
            members.append(build())
            if start is not None:
                members[-1].load_state_dict({**members[-1].state_dict(), **start[s]})
        model = together(members, fitting.batch_size).to(fitting.device)
        train = train.to(fitting.device)
        valid = None if valid is None else valid.to(fitting.device)
        optimizer = _optimizer(model, fitting)
        best = _Best(model, fitting)
        parts = _parts(members[0], fitting)
        with epochs_bar(fitting.progress, fitting.epochs) as note:
            for epoch in range(1, fitting.epochs + 1):
                done = best.done if isinstance(model, InTurn) else frozenset[int]()
                loss = _epoch(model.train(), train, cost, optimizer, fitting, parts, done)
                if not math.isfinite(loss):
                    raise DivergenceError(f"the loss is {loss:g} in epoch {epoch}: lower learning_rate")
                figures = {"loss": loss}
                if valid is not None:
                    with torch.no_grad():
                        scores_S = judge(model.eval(), valid, fitting.n_ensemble).double().cpu()
                    best.weigh(scores_S)
                    figures |= {"validation": float(scores_S.mean()), "best": float(best.score_S.mean())}
                note(figures)
                if len(best.done) == fitting.n_ensemble:
                    break
        best.restore()
    if isinstance(model, InTurn):
        model = side_by_side(members)
    return Course(model.eval(), epoch, best.score_S.tolist(), best.history)


def together(members: Sequence[Any], batch_size: int) -> nn.Module:
    """The members as one model: narrow ones side by side, wide ones in turn, which give the same and are faster so."""
    if len(members) == 1:
        alone: nn.Module = members[0]
        return alone
    config = members[0].config
    stream = batch_size * (1 + config.numbers + len(config.categories)) * config.width
    return InTurn(members) if stream > WIDE else side_by_side(members)


def _epoch(
    model: nn.Module,
    train: Rows,
    cost: Cost,
    optimizer: torch.optim.Optimizer,
    fitting: Fitting,
    parts: int,
    done: frozenset[int],
) -> float:
    """Go through all rows once, in an order of each member's own; returns the mean cost of a row."""
    rows = len(train.weight_B)
    order_SB = torch.stack([torch.randperm(rows) for _ in range(fitting.n_ensemble)]).to(fitting.device)
    total = torch.zeros((), dtype=torch.float64)
    for batch_SB in order_SB.split(fitting.batch_size, dim=1):
        total += gradients(model, train, batch_SB, cost, parts, done).cpu()
        optimizer.step()
        optimizer.zero_grad()
    return float(total) / (rows * (fitting.n_ensemble - len(done)))


def gradients(
    model: nn.Module, train: Rows, batch_SB: Tensor, cost: Cost, parts: int, done: frozenset[int] = frozenset()
) -> Tensor:
    """Those of the mean cost of a batch, added over the members; returns the sum of all costs.

    Each part of the batch, and each member that has its turn, goes forward and backward before the next one comes;
    members that are done have no turn any more.
    """
    total = torch.zeros((), device=batch_SB.device)
    for part_SB in batch_SB.split(parts, dim=1):
        turns = [(model, part_SB.flatten())]
        if isinstance(model, InTurn):
            turns = [(one, part_SB[s]) for s, one in enumerate(model.members) if s not in done]
        for one, index_B in turns:
            loss = cost(one, train.take(index_B)).sum()
            torch.autograd.backward(loss / batch_SB.shape[1])
            total += loss.detach()
    return total


def _parts(model: Any, fitting: Fitting) -> int:
    """So many rows of a batch at a time that the attention weights of all columns and members have room."""
    config = model.config
    tokens = 1 + config.numbers + len(config.categories)
    return max(1, WEIGHTS // (config.layers * config.heads * tokens**2 * fitting.n_ensemble))


def apart(model: nn.Module, rows: Rows, members: int, tokens: int) -> Iterator[Tensor]:
    """The outputs for some rows at a time, (S, B, outputs): each member's for the same rows, in bounded memory."""
    at_once = max(1, TOKENS // (members * tokens * LEAST)) * LEAST
    for start in range(0, len(rows.weight_B), at_once):
        parts = [x[start : start + at_once] for x in rows[:2]]
        spare = -len(parts[0]) % LEAST
        number_BC, code_BC = (F.pad(x, (0, 0, 0, spare)).repeat(members, 1) for x in parts)
        yield model(number_BC, code_BC).unflatten(0, (members, -1))[:, : len(parts[0])]


def in_parts(model: nn.Module, rows: Rows, members: int) -> Tensor:
    """The outputs for all rows, (S, B, outputs)."""
    tokens = 1 + rows.number_BC.shape[1] + rows.code_BC.shape[1]
    return torch.cat(list(apart(model, rows, members, tokens)), dim=1)


class _Best:
    """The best weights of each member so far, until all of them are out of patience."""

    def __init__(self, model: nn.Module, fitting: Fitting) -> None:
        self.model, self.members, self.patience = model, fitting.n_ensemble, fitting.patience
        self.score_S = torch.full((fitting.n_ensemble,), math.inf, dtype=torch.float64)
        self.since_S = torch.zeros(fitting.n_ensemble, dtype=torch.long)
        self.kept: dict[int, dict[str, Tensor]] = {}
        self.history: list[float] = []

    @property
    def done(self) -> frozenset[int]:
        """The members that are out of patience."""
        return frozenset((self.since_S >= self.patience).nonzero().flatten().tolist() if self.patience else ())

    def weigh(self, score_S: Tensor) -> None:
        """Keep the weights of those members that are better than ever, and not yet out of patience."""
        self.history.append(float(score_S.mean()))
        better_S = score_S < self.score_S
        better_S[list(self.done)] = False
        self.since_S = torch.where(better_S, 0, self.since_S + 1)
        self.score_S = torch.where(better_S, score_S, self.score_S)
        for s in better_S.nonzero().flatten().tolist():
            self.kept[s] = {name: weight.clone() for name, weight in weights_of(self.model, s, self.members).items()}

    def restore(self) -> None:
        """Put the best weights back; without validation the last ones stay."""
        for s, kept in self.kept.items():
            for name, weight in weights_of(self.model, s, self.members).items():
                weight.copy_(kept[name])


def weights_of(model: nn.Module, s: int, members: int) -> dict[str, Tensor]:
    """The live weights of one of so many members, by name."""
    return dict(model.state_dict()) if members == 1 else member_weights(model, s)


def _optimizer(model: nn.Module, fitting: Fitting) -> torch.optim.AdamW:
    """AdamW; the matrices of linear layers decay, while column tokens, norms and biases do not."""
    matrices = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear | Linears)}
    training = Training(
        steps=1, learning_rate=fitting.learning_rate, weight_decay=fitting.weight_decay, betas=(0.9, 0.999), eps=1e-8
    )
    return build_optimizer(model, training, lambda name, parameter: id(parameter) in matrices)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """PyTorch's generator under a seed, and afterwards as it was: fitting is nobody else's business."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def usual_batch(rows: int) -> int:
    """256 rows, and fewer where an epoch would have less than some fifty steps."""
    return 2 ** max(3, min(8, int(math.log2(max(rows, 1) / 50)) if rows > 50 else 3))
