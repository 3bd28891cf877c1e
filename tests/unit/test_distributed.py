import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from clearhead.errors import ConfigError
from clearhead.nn.weights import read_tensors
from clearhead.tasks.registry import load, run_recipe
from clearhead.train.distributed import ALONE, World, join, pick_device
from clearhead.train.loop import train
from tests.unit.tiny_training import TinyModel, tiny_job
from tests.unit.train_in_ranks import FILES, TASKS, TRAINING, task_recipe

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which two ranks, started by torchrun, have played all scenes of `train_in_ranks`."""
    folder = tmp_path_factory.mktemp("ranks")
    for name, content in FILES.items():
        (folder / name).write_text(content, encoding="utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "OMP_NUM_THREADS": "1",
        "CLEARHEAD_CACHE": str(folder / "cache"),
    }
    program = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    result = subprocess.run(
        [*program, ROOT / "tests" / "unit" / "train_in_ranks.py", folder],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return folder


def curve(run: Path, kind: str, figure: str = "loss") -> list[float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line[figure] for line in lines if line["kind"] == kind]


@pytest.mark.parametrize(("scene", "rows"), [("plain", 8), ("one_row", 1), ("sharded", 8), ("uneven", 3)])
def test_two_ranks_are_one_process(scene: str, rows: int, two_ranks: Path, tmp_path: Path) -> None:
    train(TinyModel(), tiny_job(rows=rows), TRAINING, run_directory=tmp_path / "one")
    for kind in ("train", "validation"):
        alone, together = curve(tmp_path / "one", kind), curve(two_ranks / scene, kind)
        assert len(alone) == {"train": 12, "validation": 3}[kind]
        assert together == pytest.approx(alone, abs=1e-5)
    norms = [curve(run, "train", "gradient_norm") for run in (tmp_path / "one", two_ranks / scene)]
    assert norms[0] == pytest.approx(norms[1], abs=1e-4)
    for file in ("model.safetensors", "optimizer.safetensors"):
        expected, found = (read_tensors(run / "last" / file) for run in (tmp_path / "one", two_ranks / scene))
        assert expected.keys() == found.keys()
        for name, tensor in expected.items():
            torch.testing.assert_close(found[name], tensor, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("scene", ["sharded", "interrupted"])
def test_a_signal_to_one_rank_stops_all_after_the_same_step(scene: str, two_ranks: Path) -> None:
    said = {(two_ranks / f"{scene}-{rank}.txt").read_text() for rank in (0, 1)}
    assert len(said) == 1
    assert said.pop().startswith("143: training was stopped after step 5; ")


def test_sharded_ranks_of_which_one_has_nothing_to_do_all_say_so(two_ranks: Path) -> None:
    said = {(two_ranks / f"idle-{rank}.txt").read_text() for rank in (0, 1)}
    assert len(said) == 1
    assert "at step 1 one has none" in said.pop()


@pytest.mark.parametrize("task", sorted(TASKS))
def test_a_sharded_task_is_the_task_of_one_process(
    task: str, two_ranks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sharded over two ranks, with a break in the middle: the same curve, and a model directory for one process."""
    monkeypatch.setenv("CLEARHEAD_CACHE", str(two_ranks / "cache"))
    together, alone = two_ranks / f"sharded_{task}", tmp_path / "one"
    run_recipe(task_recipe(task, two_ranks), out=alone)
    for kind, points in {"train": 4, "validation": 2}.items():
        assert len(curve(alone, kind)) == points
        assert curve(together, kind) == pytest.approx(curve(alone, kind), abs=1e-5)
    file = two_ranks / TASKS[task][0]
    ours, theirs = (load(run / "last").evaluate(file) for run in (alone, together))
    assert theirs["loss"] == pytest.approx(curve(together, "validation")[-1], abs=1e-5)
    assert theirs == pytest.approx(ours, abs=1e-4)
    expected, found = (read_tensors(run / "last" / "model.safetensors") for run in (alone, together))
    assert expected.keys() == found.keys()
    assert {name: tensor.shape for name, tensor in expected.items()} == {n: t.shape for n, t in found.items()}


def test_rank_0_alone_writes(two_ranks: Path) -> None:
    assert (two_ranks / "leader.txt").read_text() == "False 2"
    steps = [json.loads(line)["step"] for line in (two_ranks / "plain" / "metrics.jsonl").read_text().splitlines()]
    assert sorted(steps) == sorted([*range(1, 13), 4, 8, 12])


def test_a_parameter_that_cannot_be_cut_is_named_before_anything_is_written(tmp_path: Path) -> None:
    model = TinyModel()
    model.register_parameter("gain", torch.nn.Parameter(torch.tensor(1.0)))
    training = replace(TRAINING, shard=True)
    with pytest.raises(ConfigError, match="'gain' is a single number"):
        train(model, tiny_job(), training, run_directory=tmp_path / "run", world=World(rank=0, size=2))
    assert not (tmp_path / "run").exists()


def test_alone_nothing_is_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with join() as world:
        assert world == ALONE
        assert not torch.distributed.is_initialized()
    values = torch.tensor([1.0, 2.0])
    assert world.sum(values) is values


def test_half_of_the_variables_of_torchrun_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ConfigError, match="RANK is not set"), join():
        pass


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_an_error() -> None:
    assert pick_device("auto") == torch.device("cpu")
    with pytest.raises(ConfigError, match="finds no GPU"):
        pick_device("cuda")
    for name in ("mps", "xpu"):
        with pytest.raises(ConfigError, match=f"device='{name}' was asked for, but this torch cannot use it here"):
            pick_device(name)
    with pytest.raises(ConfigError, match="device=None"):
        pick_device(None)  # type: ignore[arg-type]
