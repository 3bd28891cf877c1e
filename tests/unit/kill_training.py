"""A program that trains, kills its training with SIGKILL again and again, and resumes it each time.

    python kill_training.py FOLDER KILLS

One process imports torch and trains undisturbed; each attempt is a fork of it, because an import takes longer than
the training.
Every second kill waits until a checkpoint is being written, the others strike at any moment.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from clearhead.nn.weights import distinct, write_tensors
from clearhead.train.loop import train
from clearhead.train.optim import build_optimizer
from tests.unit.tiny_training import TinyModel, tiny_job, tiny_training

TRAINING = tiny_training(steps=60, checkpoint_every=2, validate_every=7, ema=0.9, keep=2)


def attempt(folder: Path, *, resume: bool) -> None:
    model = TinyModel(width=64, dropout=0.3)
    train(model, tiny_job(parts=2), TRAINING, run_directory=folder, resume=resume)
    write_tensors(folder.with_suffix(".safetensors"), distinct(model))


def fork(folder: Path, *, resume: bool) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            attempt(folder, resume=resume)
            code = 0
        finally:
            os._exit(code)
    return pid


def is_writing(folder: Path) -> bool:
    return any(folder.glob(".checkpoint-*.tmp"))


def kill_inside_a_write(pid: int, folder: Path) -> bool:
    """Stop the process, look whether it is inside a write, and only then kill it."""
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if is_writing(folder):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.001)
            if is_writing(folder):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return True
            os.kill(pid, signal.SIGCONT)
    return False


def kill_at_any_moment(pid: int, longest: float) -> bool:
    time.sleep(random.uniform(0, longest))
    os.kill(pid, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def main(folder: Path, kills: int) -> None:
    torch.set_num_threads(1)
    build_optimizer(TinyModel(), TRAINING)  # imports much of torch, once for all forks
    start = time.monotonic()
    attempt(folder.with_name("whole"), resume=False)
    longest = (time.monotonic() - start) / kills / 3  # so that the run cannot end before it is killed so often
    done = inside = 0
    while done < kills:
        pid = fork(folder, resume=folder.exists())
        if done % 2:
            killed = kill_inside_a_write(pid, folder)
            inside += killed
        else:
            killed = kill_at_any_moment(pid, longest)
        if not killed:
            sys.exit(f"the training ended before it could be killed {kills} times")
        done += 1
    status = os.waitpid(fork(folder, resume=folder.exists()), 0)[1]
    json.dump({"status": status, "kills": done, "inside": inside}, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
