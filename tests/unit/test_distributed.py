import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from clearhead.errors import ConfigError
from clearhead.train.distributed import ALONE, join, pick_device
from clearhead.train.loop import train
from clearhead.train.weights import read_tensors
from tests.unit.tiny_training import TinyModel, tiny_job
from tests.unit.train_in_ranks import TRAINING

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which two ranks, started by torchrun, have played all scenes of `train_in_ranks`."""
    folder = tmp_path_factory.mktemp("ranks")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "OMP_NUM_THREADS": "1"}
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


@pytest.mark.parametrize(("scene", "rows"), [("plain", 8), ("one_row", 1), ("sharded", 8)])
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


def test_sharded_ranks_with_unequal_work_all_say_so(two_ranks: Path) -> None:
    said = [(two_ranks / f"uneven-{rank}.txt").read_text() for rank in (0, 1)]
    assert said == ["with shard=True all ranks need as many micro-batches: one has 1, another 2"] * 2


def test_rank_0_alone_writes(two_ranks: Path) -> None:
    assert (two_ranks / "leader.txt").read_text() == "False 2"
    steps = [json.loads(line)["step"] for line in (two_ranks / "plain" / "metrics.jsonl").read_text().splitlines()]
    assert sorted(steps) == sorted([*range(1, 13), 4, 8, 12])


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
