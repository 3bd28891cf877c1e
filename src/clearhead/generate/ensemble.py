"""Several models that decide together: the mean of their probabilities."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import DecodingError
from clearhead.generate.step import Step

__all__ = ["Ensemble", "EnsembleState"]


@dataclass(frozen=True)
class EnsembleState:
    """The state of each of them."""

    each: tuple[Any, ...]

    def select(self, row_B: Tensor) -> "EnsembleState":
        return self._map(lambda state: state.select(row_B))

    def join(self, other: "EnsembleState") -> "EnsembleState":
        return EnsembleState(tuple(a.join(b) for a, b in zip(self.each, other.each, strict=True)))

    def branch(self, parent_BT: Tensor) -> "EnsembleState":
        return self._map(lambda state: state.branch(parent_BT))

    def rewind(self, length_B: Tensor) -> "EnsembleState":
        return self._map(lambda state: state.rewind(length_B))

    def _map(self, change: Callable[[Any], Any]) -> "EnsembleState":
        return EnsembleState(tuple(map(change, self.each)))


class Ensemble:
    """A `Step` made of several of the same vocabulary: log p = log mean_i p_i."""

    def __init__(self, models: Sequence[Step]) -> None:
        if not models:
            raise DecodingError("an ensemble needs at least one model")
        self.models = tuple(models)

    @property
    def branches(self) -> bool:
        return all(model.branches for model in self.models)

    def step(
        self, token_BT: Tensor, state: EnsembleState, *, count_B: Tensor | None = None, last: bool = False
    ) -> tuple[Tensor, EnsembleState]:
        """The joint log-probabilities, which are their own logits, and the state of each."""
        steps = [
            model.step(token_BT, mine, count_B=count_B, last=last)
            for model, mine in zip(self.models, state.each, strict=True)
        ]
        sizes = {logits_BTV.shape[-1] for logits_BTV, _ in steps}
        if len(sizes) > 1:
            raise DecodingError(f"the models of an ensemble must share a vocabulary: theirs have {sorted(sizes)} words")
        score_NBTV = torch.stack([logits_BTV.float().log_softmax(-1) for logits_BTV, _ in steps])
        mean_BTV = score_NBTV.logsumexp(0) - math.log(len(steps))
        return mean_BTV, EnsembleState(tuple(mine for _, mine in steps))
