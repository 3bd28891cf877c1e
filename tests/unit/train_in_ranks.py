"""What each rank does in the tests of training on several ranks; started by torchrun.

torchrun --nproc-per-node 2 train_in_ranks.py FOLDER
"""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from clearhead.errors import ConfigError
from clearhead.tasks.recipe import Recipe
from clearhead.tasks.registry import run_recipe
from clearhead.train.distributed import World, join
from clearhead.train.interrupt import InterruptionError
from clearhead.train.job import Job
from clearhead.train.loop import train
from clearhead.train.settings import Training
from tests.unit.tiny_tasks import ENCODER, PAIR, WRITER, copy_pairs, tiny_recipe
from tests.unit.tiny_training import Batch, TinyModel, tiny_job, tiny_training

FILES = {
    "pairs.tsv": "".join(f"{source}\t{target}\n" for source, target in copy_pairs(30)),
    "text.txt": "to be or not to be that is the question\n" * 9,
}
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "translation": ("pairs.tsv", {**PAIR, "encoder_layers": 2, "decoder_layers": 2}),
    "language_model": ("text.txt", {**WRITER, "layers": 2, "positions": "t5"}),  # whose table all blocks share
    "masked_model": ("text.txt", {**ENCODER, "layers": 2, "next_sentence": True}),
}
TRAINING = tiny_training(ema=0.8, validate_every=4, checkpoint_every=3, device="cpu")


def split(world: World, **changes: int) -> Job[Batch]:
    return tiny_job(rank=world.rank, size=world.size, **changes)


def plain(folder: Path, world: World) -> None:
    train(TinyModel(seed=world.rank), split(world, parts=2), TRAINING, run_directory=folder, world=world)


def one_row(folder: Path, world: World) -> None:
    """Fewer rows than ranks: rank 1 has nothing to do, and no gradients."""
    train(TinyModel(), split(world, rows=1), TRAINING, run_directory=folder, world=world)


def sharded(folder: Path, world: World) -> None:
    """Spread over the ranks, interrupted on one of them, and resumed."""
    training = replace(TRAINING, shard=True)
    interrupted(folder, world, training)
    train(TinyModel(seed=9), split(world, parts=2), training, run_directory=folder, resume=True, world=world)


def interrupted(folder: Path, world: World, training: Training = TRAINING) -> None:
    """A signal to one rank stops all after the same step."""
    job = split(world, parts=2)

    def batches(step: int) -> list[Batch]:
        if step == 5 and world.rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return job.batches(step)

    try:
        train(TinyModel(), replace(job, batches=batches), training, run_directory=folder, world=world)
    except InterruptionError as error:
        folder.with_name(f"{folder.name}-{world.rank}.txt").write_text(f"{error.exit_code}: {error}")


def uneven(folder: Path, world: World) -> None:
    """Sharded, with three rows in four parts: rank 1 has fewer micro-batches than rank 0, which waits for it."""
    job = split(world, rows=3, parts=2)
    train(TinyModel(), job, replace(TRAINING, shard=True), run_directory=folder, world=world)


def idle(folder: Path, world: World) -> None:
    """Sharded, and nothing at all for rank 1."""
    try:
        train(TinyModel(), split(world, rows=1), replace(TRAINING, shard=True), run_directory=folder, world=world)
    except ConfigError as error:
        folder.with_name(f"idle-{world.rank}.txt").write_text(str(error))


def task_recipe(task: str, folder: Path, **train: Any) -> Recipe:
    """The recipe of a task on one of the `FILES` in that folder, validated and saved each second step."""
    file, model = TASKS[task]
    usual = {"steps": 4, "tokens": 64, "schedule": "constant", "validate_every": 2, "ema": 0.5, "log_every": 1}
    data = {"train": folder / file, "valid": folder / file}
    return tiny_recipe(task, model, data=data, train={**usual, "scored": 4, "device": "cpu", **train})


def sharded_task(task: str, folder: Path, world: World) -> None:
    """Half of the steps, and the other half in a resumed run."""
    for steps in (2, 4):
        recipe = task_recipe(task, folder.parent, steps=steps, shard=True)
        run_recipe(recipe, out=folder, resume=steps == 4)


SCENES: dict[str, Callable[[Path, World], None]] = {
    "plain": plain,
    "one_row": one_row,
    "sharded": sharded,
    "interrupted": interrupted,
    "uneven": uneven,
    "idle": idle,
    **{f"sharded_{task}": partial(sharded_task, task) for task in TASKS},
}


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    with join("cpu") as world:
        for name, scene in SCENES.items():
            scene(folder / name, world)
        if world.rank == 1:
            (folder / "leader.txt").write_text(f"{world.leads} {world.size}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
