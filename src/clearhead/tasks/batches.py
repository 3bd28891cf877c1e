"""Which examples make up each step, as pure functions of the step: nothing to replay when a run is resumed."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clearhead.data.batch import shard, token_batches
from clearhead.errors import DataError
from clearhead.tasks.recipe import TrainSettings
from clearhead.train.distributed import ALONE, World

__all__ = ["Epochs", "by_length"]

Indices = NDArray[np.int64]
Plan = list[Indices]
TOKENS_AT_ONCE = 4_096


def by_length(lengths: Sequence[int], tokens: int = TOKENS_AT_ONCE) -> Iterator[list[int]]:
    """The numbers of all examples, longest first, in batches of at most `tokens` with their padding, or of one.

    >>> list(by_length([1, 3, 2], tokens=4))
    [[1], [2, 0]]
    """
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    start = 0
    while start < len(order):
        rows = max(1, tokens // max(1, lengths[order[start]]))
        yield order[start : start + rows]
        start += rows


class Epochs:
    """The batches of one epoch after another, counted through.

    plan         the batches of an epoch, a pure function of its number
    accumulate   so many consecutive batches make up a step
    lengths      of the examples, so that the ranks' shares of a batch weigh the same
    """

    def __init__(
        self,
        plan: Callable[[int], Plan],
        *,
        accumulate: int = 1,
        lengths: ArrayLike | None = None,
        world: World = ALONE,
    ) -> None:
        self.plan = lru_cache(maxsize=2)(plan)
        self.accumulate = accumulate
        self.lengths = lengths
        self.world = world
        self.starts = [0]  # the number of the first batch of each epoch, as far as known

    @staticmethod
    def by_tokens(lengths: ArrayLike, settings: TrainSettings, world: World = ALONE) -> "Epochs":
        """Batches of examples of similar length, as many as the budget of tokens allows."""

        def plan(epoch: int) -> Plan:
            return token_batches(lengths, tokens=settings.tokens, seed=settings.seed, epoch=epoch)

        return Epochs(plan, accumulate=settings.accumulate, lengths=lengths, world=world)

    def __len__(self) -> int:
        """Steps in the first epoch, the last one rounded up."""
        return -(-len(self.plan(0)) // self.accumulate)

    def at(self, number: int) -> Indices:
        """The batch of that number, counted from 0 over all epochs."""
        while self.starts[-1] <= number:
            batches = len(self.plan(len(self.starts) - 1))
            if not batches:
                raise DataError("there is no example to train on")
            self.starts.append(self.starts[-1] + batches)
        epoch = int(np.searchsorted(self.starts, number, side="right")) - 1
        return self.plan(epoch)[number - self.starts[epoch]]

    def step(self, step: int) -> Plan:
        """This rank's shares of the batches of a step, counted from 1; empty ones are left out."""
        first = (step - 1) * self.accumulate
        batches = [self.at(first + turn) for turn in range(self.accumulate)]
        shares = [shard(batch, self.world.rank, self.world.size, self.lengths) for batch in batches]
        return [share for share in shares if len(share)]
