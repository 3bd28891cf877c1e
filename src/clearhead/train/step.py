"""One optimiser step: gradients over micro-batches and ranks, normalised by real counts; clip; update."""

import math
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from clearhead.errors import ClearheadError, ConfigError
from clearhead.train.checkpoint import State
from clearhead.train.distributed import World
from clearhead.train.job import Job
from clearhead.train.loss import Terms
from clearhead.train.optim import set_learning_rate
from clearhead.train.schedule import SCHEDULES
from clearhead.train.seed import derive, seed_everything
from clearhead.train.settings import Training

__all__ = ["DivergenceError", "Result", "Stepper", "can_bf16"]

Batch = TypeVar("Batch")
Value = TypeVar("Value")

BF16_TRIAL = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); x @ x"


class DivergenceError(ClearheadError):
    """The loss or its gradient is no longer a number."""


@dataclass(frozen=True)
class Result:
    """What one step did: each term's mean over the whole effective batch, and how much work it was here."""

    terms: dict[str, float]
    gradient_norm: float
    learning_rate: float
    amount: int  # targets of the first term, over all ranks
    flops: float  # on this rank

    @property
    def loss(self) -> float:
        return sum(self.terms.values())


class Stepper(Generic[Batch]):
    """Takes optimiser steps on a model; the step's number decides data, randomness and learning rate."""

    def __init__(
        self,
        state: State,
        job: Job[Batch],
        training: Training,
        world: World,
        *,
        device: torch.device,
        say: Callable[[str], None],
    ) -> None:
        self.model, self.optimizer = state.model, state.optimizer
        self.job = job
        self.training = training
        self.world = world
        self.device = device
        self.say = say
        self.parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        self.dtype = torch.bfloat16 if training.precision == "bf16" and can_bf16(device) else torch.float32
        if training.precision == "bf16" and self.dtype is torch.float32:
            say(f"This {device.type} has no bf16 arithmetic: training goes on in float32.")
        # The loss, not the model, is what is called: it may ask the model for more than its `forward`.
        self.loss = self._compiled() if training.compile else job.loss

    def __call__(self, step: int) -> Result:
        self._seed(step)
        batches = self.job.batches(step)
        counts = self._count(batches)
        turns = [(batch, 1.0) for batch in batches] + self._stand_ins(batches, step)
        sums, counted = self.world.sum(self._differentiate(turns, counts, step))
        if not torch.equal(counted, counts):
            raise ConfigError(f"the loss counted {counted.tolist()} at step {step}, but counts gave {counts.tolist()}")
        if not self.training.shard:
            self.world.sum_gradients(self.parameters)
        means = (sums / counts.clamp(min=1)).tolist()
        norm = self._clip()
        if not (math.isfinite(norm) and all(map(math.isfinite, means))):
            raise DivergenceError(f"the loss is {sum(means):g} and its gradient norm {norm:g} at step {step}")
        rate = self.training.learning_rate * SCHEDULES[self.training.schedule](step, self.training.timing)
        set_learning_rate(self.optimizer, rate)
        self.optimizer.step()
        self.optimizer.zero_grad()
        flops = sum(map(self.job.flops, batches)) if self.job.flops else 0.0
        return Result(dict(zip(self.job.terms, means, strict=True)), norm, rate, int(counts[0]), flops)

    def _compiled(self) -> Callable[[nn.Module, Batch], Terms]:
        try:
            return torch.compile(self.job.loss)
        except Exception as error:
            self._say_uncompiled(error)
            return self.job.loss

    def _say_uncompiled(self, error: Exception) -> None:
        reason = str(error).strip().partition("\n")[0]
        self.say(f"torch.compile does not work here ({type(error).__name__}: {reason}); training goes on without.")

    def _seed(self, step: int) -> None:
        seed_everything(derive(self.training.seed, self.world.rank, step))

    def _count(self, batches: list[Batch]) -> Tensor:
        """Each term's count over all micro-batches and ranks: needed before the first backward pass."""
        local = [self._named(self.job.counts(batch), "counts") for batch in batches]
        totals = [sum(counts[term] for counts in local) for term in self.job.terms]
        return self.world.sum(torch.tensor(totals, dtype=torch.float64, device=self.device))

    def _stand_ins(self, batches: list[Batch], step: int) -> list[tuple[Batch, float]]:
        """Sharded, all ranks gather together: one that has fewer micro-batches than another adds some of weight 0."""
        if not self.training.shard:
            return []
        missing = self.world.largest(len(batches), self.device) - len(batches)
        spare = (batches or self.job.batches(1))[-1:]
        if self.world.largest(int(missing > 0 and not spare), self.device):
            raise ConfigError(
                f"with shard=True every rank needs a share of the first batch, and at step {step} one has none: "
                "let a batch be larger, or start fewer processes"
            )
        return [(batch, 0.0) for batch in spare * missing]

    def _differentiate(self, turns: list[tuple[Batch, float]], counts: Tensor, step: int) -> Tensor:
        """Gradients of all micro-batches; where the compiled loss cannot do it, the plain one does."""
        try:
            return self._backward(turns, counts)
        except Exception as error:
            if self.loss is self.job.loss:
                raise
            self._say_uncompiled(error)
            self.loss = self.job.loss
        self.optimizer.zero_grad()
        self._seed(step)
        return self._backward(turns, counts)

    def _backward(self, turns: list[tuple[Batch, float]], counts: Tensor) -> Tensor:
        """Gradients of Σ_terms weight · sum / count, as they add up; returns this rank's sums and counts, by term."""
        divisors = counts.clamp(min=1).tolist()
        tally = torch.zeros(2, len(self.job.terms), dtype=torch.float64, device=self.device)
        for batch, weight in turns:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype is torch.bfloat16):
                terms = self._named(self.loss(self.model, self.job.move(batch, self.device)), "loss")
            sums = [terms[term][0] for term in self.job.terms]
            normalised = [weight * total / divisor for total, divisor in zip(sums, divisors, strict=True)]
            torch.autograd.backward(torch.stack(normalised).sum())
            counted = [torch.as_tensor(terms[term][1], device=self.device) for term in self.job.terms]
            tally[0] += weight * torch.stack(sums).detach()
            tally[1] += weight * torch.stack(counted)
        return tally

    def _named(self, given: Mapping[str, Value], source: str) -> Mapping[str, Value]:
        if set(given) != set(self.job.terms):
            raise ConfigError(f"the terms of this job are {self.job.terms}, but its {source} gave {tuple(given)}")
        return given

    def _clip(self) -> float:
        """The global gradient norm, scaled down to `clip` where it is above."""
        norm = get_total_norm([p.grad for p in self.parameters if p.grad is not None])
        if self.training.clip:
            clip_grads_with_norm_(self.parameters, self.training.clip, norm)
        return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)


def can_bf16(device: torch.device) -> bool:
    """Whether the device multiplies in bf16 itself; emulated, it is slower than float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        promised = any(present for name, present in torch.cpu.get_capabilities().items() if "bf16" in name)
        return promised and _survives(BF16_TRIAL)
    return False


def _survives(program: str) -> bool:
    """Whether Python runs the program to its end: some virtual machines promise instructions that kill a process."""
    try:
        return subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
