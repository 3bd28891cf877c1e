import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clearhead.nn.weights import read_tensors
from clearhead.train.interrupt import InterruptionError
from clearhead.train.loop import train
from clearhead.train.run import Run
from tests.unit.tiny_training import Batch, TinyModel, files_below, same_bits, snapshot, tiny_job, tiny_training

ROOT = Path(__file__).resolve().parents[2]


def records(run: Path) -> list[dict[str, Any]]:
    """The metrics, without what depends on the clock."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.endswith("_per_second")} for line in lines]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"ema": 0.9, "validate_every": 3, "patience": 100},
        {"checkpoint_activations": True, "clip": 0.1},
        {"schedule": "noam", "width": 8, "learning_rate": 1.0, "freeze": ("blocks.0.*",)},
    ],
    ids=str,
)
def test_a_resumed_run_has_the_same_bits_as_an_uninterrupted_one(changes: dict[str, Any], tmp_path: Path) -> None:
    job, training = tiny_job(parts=2), tiny_training(checkpoint_every=5, keep=9, **changes)
    weights = {}
    for name, stops in (("whole", []), ("resumed", [3, 4, 7, 11])):
        run = tmp_path / name
        for stop in stops:
            stopping = replace(job, batches=lambda step, stop=stop: interrupt(step == stop) or job.batches(step))
            with pytest.raises(InterruptionError, match=f"after step {stop};"):
                train(TinyModel(dropout=0.3), stopping, training, run_directory=run, resume=run.exists())
        model = TinyModel(dropout=0.3, seed=len(stops))  # what it starts from must not matter when it resumes
        report = train(model, job, training, run_directory=run, resume=run.exists())
        weights[name] = snapshot(model)
        assert report.step == 12
    assert same_bits(weights["whole"], weights["resumed"])
    assert records(tmp_path / "whole") == records(tmp_path / "resumed")
    assert files_below(tmp_path / "whole" / "last") == files_below(tmp_path / "resumed" / "last")
    assert Run(tmp_path / "resumed").steps() == [3, 4, 5, 7, 10, 11, 12] or "validate_every" in changes


def interrupt(now: bool) -> list[Batch]:
    if now:
        os.kill(os.getpid(), signal.SIGINT)
    return []


def test_metrics_after_the_checkpoint_and_a_torn_line_are_cut(tmp_path: Path) -> None:
    run, job = tmp_path / "run", tiny_job()
    train(TinyModel(), job, tiny_training(checkpoint_every=5, keep=9), run_directory=run)
    expected = records(run)
    for step in (10, 12):
        for path in run.joinpath(f"checkpoint-{step}").iterdir():
            path.unlink()
        run.joinpath(f"checkpoint-{step}").rmdir()
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "step": 13, "los')
    train(TinyModel(), job, tiny_training(checkpoint_every=5, keep=9), run_directory=run, resume=True)
    assert records(run) == expected


def test_a_run_killed_before_its_first_checkpoint_starts_again(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.yaml").write_text("")
    (tmp_path / "run" / "metrics.jsonl").write_text('{"kind": "train", "step": 1, "loss": 9.0}\n')
    (tmp_path / "run" / ".checkpoint-5.tmp").mkdir()
    report = train(TinyModel(), tiny_job(), tiny_training(), run_directory=tmp_path / "run", resume=True)
    assert report.step == 12
    assert [record["step"] for record in records(tmp_path / "run")] == [*range(1, 13)]
    assert not (tmp_path / "run" / ".checkpoint-5.tmp").exists()


def test_resuming_a_finished_run_does_nothing_and_more_steps_extend_it(tmp_path: Path) -> None:
    training = tiny_training(schedule="constant")
    train(TinyModel(), tiny_job(), training, run_directory=tmp_path / "run")
    before = files_below(tmp_path / "run")
    model = TinyModel(seed=5)
    report = train(model, tiny_job(), training, run_directory=tmp_path / "run", resume=True)
    assert (report.step, report.loss, report.folder) == (12, None, tmp_path / "run" / "checkpoint-12")
    assert files_below(tmp_path / "run") == before
    longer, whole = TinyModel(), TinyModel()
    train(longer, tiny_job(), replace(training, steps=20), run_directory=tmp_path / "run", resume=True)
    train(whole, tiny_job(), replace(training, steps=20))
    assert same_bits(snapshot(longer), snapshot(whole))


def test_early_stopping_survives_resuming(tmp_path: Path) -> None:
    """The history is in the checkpoint: patience neither starts anew nor is a finished run taken up again."""
    job = replace(tiny_job(), validate=lambda model: {"loss": 1.0})
    training = tiny_training(validate_every=2, patience=3)
    assert train(TinyModel(), job, training, run_directory=tmp_path / "whole").step == 8
    stopping = replace(job, batches=lambda step: interrupt(step == 5) or job.batches(step))
    with pytest.raises(InterruptionError):
        train(TinyModel(), stopping, training, run_directory=tmp_path / "run")
    for _ in range(2):
        report = train(TinyModel(), job, training, run_directory=tmp_path / "run", resume=True)
        assert (report.step, report.stopped_early, report.best) == (8, True, 2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
@pytest.mark.parametrize("kills", [10, pytest.param(60, marks=pytest.mark.slow)])
def test_killed_at_any_moment_it_ends_in_the_same_bits(kills: int, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    program = [sys.executable, ROOT / "tests" / "unit" / "kill_training.py", tmp_path / "run", str(kills)]
    result = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == {"status": 0, "kills": kills, "inside": kills // 2}
    assert same_bits(read_tensors(tmp_path / "whole.safetensors"), read_tensors(tmp_path / "run.safetensors"))
    assert files_below(tmp_path / "whole" / "last") == files_below(tmp_path / "run" / "last")
    assert files_below(tmp_path / "whole" / "best") == files_below(tmp_path / "run" / "best")
    assert records(tmp_path / "whole") == records(tmp_path / "run")
    assert not [path for path in (tmp_path / "run").iterdir() if path.name.startswith(".")]
