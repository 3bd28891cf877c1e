"""The training loop, to be read from `train` downwards."""

import time
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import torch
from torch import nn

from clearhead.errors import ConfigError
from clearhead.nn.init import profile_admin, wants_profile
from clearhead.nn.weights import distinct, load_tensors
from clearhead.train.allocator import keep_freed_memory
from clearhead.train.average import MovingAverage
from clearhead.train.blocks import recomputing
from clearhead.train.checkpoint import Saved, State, read_checkpoint, write_checkpoint
from clearhead.train.distributed import ALONE, ShardedLoss, World, pick_device, refuse_to_shard
from clearhead.train.history import History, kept_steps, out_of_patience, ranking
from clearhead.train.interrupt import InterruptionError, interruptible
from clearhead.train.job import Job
from clearhead.train.log import Log, MetricsFile, Sink, TensorBoard, tensorboard_writer, view
from clearhead.train.optim import build_optimizer, freeze, load_optimizer_state
from clearhead.train.run import Run, linked, open_run
from clearhead.train.seed import derive, seed_everything
from clearhead.train.settings import Training
from clearhead.train.speed import Meter, measure_peak
from clearhead.train.step import DivergenceError, Result, Stepper

__all__ = ["Report", "train"]

Batch = TypeVar("Batch")


@dataclass(frozen=True)
class Report:
    """How a run ended."""

    step: int
    loss: float | None  # of the last step; None where a resumed run had nothing left to do
    history: History  # the figures of each validation, by step
    best: int | None  # the step of the best validation
    stopped_early: bool
    folder: Path | None  # the checkpoint to use: the best where there was validation, else the last
    seconds: float


def train(
    model: nn.Module,
    job: Job[Batch],
    training: Training,
    *,
    run_directory: Path | None = None,
    recipe: str = "",
    resume: bool = False,
    world: World = ALONE,
    fleeting: bool = False,
) -> Report:
    """Train the model in place; with a run directory, so that it can be killed at any moment and resumed.

    Where the caller removes that directory afterwards (`fleeting`), no message says that something is kept there.
    Raises `InterruptionError` after Ctrl-C or SIGTERM (a checkpoint is written), `DivergenceError` when the loss or
    its gradient is not finite, and `CheckpointError` when the disk is full (the last good checkpoint stays) or when
    the directory to resume is another architecture's.
    """
    start = time.monotonic()
    with ExitStack() as stack:
        device = _prepare(model, job, training, run_directory, world)
        run = _open(run_directory, resume=resume, world=world, fleeting=fleeting)
        saved = _load(model, run)
        if saved is None:
            _begin(model, job, training, world, device)
        job = _arranged(model, job, training, world, device=device, stack=stack)
        state = _restore(model, training, saved)
        if run and world.leads:
            run.note_recipe(recipe)
        log = stack.enter_context(_open_log(training, run, world, state.step))
        course = _Course(state, Stepper(state, job, training, world, device=device, say=log.say), run, log)
        course.tidy()
        stop = stack.enter_context(interruptible(course.notice))
        result = None
        while not course.finished:
            result = course.advance()
            if course.validation_is_due:
                course.validate()
            signal_number = world.largest(stop.signal_number, course.device)
            if course.checkpoint_is_due or signal_number:
                course.save()
            if signal_number and not course.finished:
                raise InterruptionError(
                    f"training was stopped after step {course.state.step}; {course.kept}", signal_number
                )
    return course.report(result, time.monotonic() - start)


def _prepare(
    model: nn.Module, job: Job[Batch], training: Training, run_directory: Path | None, world: World
) -> torch.device:
    """Refuse what cannot work before anything is written; the model gets ready on the device that is returned."""
    if training.validate_every and job.validate is None:
        raise ConfigError(f"validate_every={training.validate_every} needs a job that can validate")
    if training.tensorboard and run_directory is None:
        raise ConfigError("tensorboard=True needs a run directory to write to")
    if training.tensorboard:
        tensorboard_writer()
    if training.shard and world.size == 1:
        raise ConfigError("shard=True spreads a model over processes, and this is one alone: start with torchrun")
    if training.shard:
        refuse_to_shard(model)
    job.batches(1)  # data of which no batch can be made
    device = pick_device(training.device, world)
    if device.type == "cpu":
        keep_freed_memory()
    freeze(model, training.freeze)
    model.to(device).train()
    return device


def _open(directory: Path | None, *, resume: bool, world: World, fleeting: bool) -> Run | None:
    """The run's directory, made or cleaned by rank 0."""
    if directory is None:
        return None
    if world.leads:
        open_run(directory, resume=resume)
    world.wait()
    return Run(directory, fleeting)


def _load(model: nn.Module, run: Run | None) -> Saved | None:
    """The run's last checkpoint, its weights put into the model."""
    steps = run.steps() if run else []
    if run is None or not steps:
        return None
    saved = read_checkpoint(run.folder(steps[-1]))
    load_tensors(model, saved.weights, source=run.folder(steps[-1]))
    return saved


def _begin(model: nn.Module, job: Job[Batch], training: Training, world: World, device: torch.device) -> None:
    """Rank 0's weights on every rank; first values that data decide are set by the first batch."""
    if world.leads and wants_profile(model):
        seed_everything(derive(training.seed, world.rank, 0))
        for batch in job.batches(1)[:1]:
            profile_admin(model, partial(job.loss, model, job.move(batch, device)))
    world.copy_from_leader(distinct(model).values())


def _arranged(
    model: nn.Module, job: Job[Batch], training: Training, world: World, *, device: torch.device, stack: ExitStack
) -> Job[Batch]:
    """The job, its model recomputed or sharded where this is wanted; what must be undone is left to the stack."""
    if training.checkpoint_activations:
        stack.enter_context(recomputing(job.blocks(model)))
    if not training.shard:
        return job
    return replace(job, loss=ShardedLoss(model, job.loss, job.blocks(model), world, device))


def _restore(model: nn.Module, training: Training, saved: Saved | None) -> State:
    """The state at the start, or as the checkpoint has it."""
    state = State(model, build_optimizer(model, training))
    state.average = MovingAverage(model, training.ema) if training.ema else None
    if saved:
        state.step, state.history = saved.step, saved.history
        load_optimizer_state(state.optimizer, model, saved.optimizer)
        if state.average and saved.average:
            state.average.load(saved.average)
    return state


def _open_log(training: Training, run: Run | None, world: World, done: int) -> Log:
    """Rank 0 shows and writes, the others are silent."""
    sinks: list[Sink] = []
    if world.leads:
        sinks.append(view(training.progress, steps=training.steps, done=done))
    if world.leads and run:
        sinks.append(MetricsFile(run.metrics, done))
    if world.leads and run and training.tensorboard:
        sinks.append(TensorBoard(run.directory / "events", done))
    log = Log(sinks, every=training.log_every, steps=training.steps)
    if done:
        log.say(f"Resumed after step {done}.")
    return log


class _Course(Generic[Batch]):
    """A run under way: what a turn of the loop can do, and what is due."""

    def __init__(self, state: State, stepper: Stepper[Batch], run: Run | None, log: Log) -> None:
        self.state = state
        self.stepper = stepper
        self.run = run
        self.lasting = None if run is None or run.fleeting else run
        self.log = log
        self.job, self.training, self.world = stepper.job, stepper.training, stepper.world
        self.device = stepper.device
        self.last_saved = state.step
        peak = measure_peak(self.device, stepper.dtype) if self.job.flops and self.world.leads else None
        self.meter = Meter(self.job.unit, peak)

    @property
    def finished(self) -> bool:
        return self.state.step >= self.training.steps or out_of_patience(self.state.history, self.training)

    @property
    def validation_is_due(self) -> bool:
        every, step = self.training.validate_every, self.state.step
        return every > 0 and (step % every == 0 or step == self.training.steps)

    @property
    def checkpoint_is_due(self) -> bool:
        every, step = self.training.checkpoint_every, self.state.step
        is_among_the_best = step in ranking(self.state.history, self.training)[: self.training.keep]
        return (every > 0 and step % every == 0) or is_among_the_best or self.finished

    @property
    def notice(self) -> str:
        """What is said at once to somebody who wants to stop the run."""
        if self.training.progress in ("json", "quiet"):
            return ""
        done = "finished and saved" if self.lasting else "finished"
        return f"This step is {done} before training stops; a second signal stops at once."

    @property
    def kept(self) -> str:
        """What is safe on the disk, for messages."""
        if self.lasting is None:
            return "nothing is saved, because no run directory was given (`out`)"
        if not self.last_saved:
            return "there is no checkpoint yet"
        return f"{self.lasting.folder(self.last_saved)} is the last good checkpoint, from which the run can be resumed"

    def advance(self) -> Result:
        """Take one optimiser step and log it."""
        step = self.state.step + 1
        try:
            with self.meter.timed():
                result = self.stepper(step)
                if self.state.average:
                    self.state.average.update(step)
        except DivergenceError as error:
            raise DivergenceError(f"{error}: lower learning_rate or lengthen warmup; {self.kept}") from error
        self.state.step = step
        self.meter.add(result.amount, result.flops)
        terms = result.terms if len(result.terms) > 1 else {}
        rates = {"learning_rate": result.learning_rate, "gradient_norm": result.gradient_norm, **self.meter.rates()}
        self.log.record({"kind": "train", "step": step, **terms, "loss": result.loss, **rates})
        if step % self.training.log_every == 0:
            self.meter.reset()
        return result

    def validate(self) -> None:
        """Measure the weights that would be used: the moving average where there is one."""
        model, average, validate = self.state.model, self.state.average, self.job.validate
        if validate is None:
            return
        model.eval()
        loss = self.job.loss
        whole = loss.gathered() if isinstance(loss, ShardedLoss) else nullcontext()
        with torch.no_grad(), average.applied() if average else nullcontext(), whole:
            figures = {name: float(value) for name, value in validate(model).items()}
            samples = self.job.samples(model) if self.job.samples else []
        model.train()
        values = torch.tensor([*figures.values()], dtype=torch.float64, device=self.device)
        self.world.copy_from_leader([values])
        figures = dict(zip(figures, values.tolist(), strict=True))
        self.state.history[self.state.step] = figures
        shown = {"samples": samples} if samples else {}
        self.log.record({"kind": "validation", "step": self.state.step, **figures, **shown})

    def save(self) -> None:
        """Write a checkpoint of this step, once; then let the links follow, and drop what need not stay."""
        if self.run is None or self.last_saved == self.state.step:
            return
        folder = self.run.folder(self.state.step)
        write_checkpoint(folder, self.state, self.training, self.world, save_extra=self.job.save_extra, kept=self.kept)
        self.last_saved = self.state.step
        self.tidy()
        self.world.wait()  # until the checkpoint is there for every rank

    def tidy(self) -> None:
        """Point `last` and `best` at the right checkpoints, then remove those that need not stay."""
        if self.run is None or not self.world.leads or not self.last_saved:
            return
        steps = self.run.steps()
        best = [step for step in ranking(self.state.history, self.training) if step in steps]
        self.run.link("last", steps[-1])
        self.run.link("best", best[0] if best else steps[-1])
        self.run.prune(keep=kept_steps(steps, self.state.history, self.training))

    def report(self, result: Result | None, seconds: float) -> Report:
        return Report(
            step=self.state.step,
            loss=result.loss if result else None,
            history=self.state.history,
            best=next(iter(ranking(self.state.history, self.training)), None),
            stopped_early=self.state.step < self.training.steps,
            folder=linked(self.run.directory, "best") if self.run and self.last_saved else None,
            seconds=seconds,
        )
