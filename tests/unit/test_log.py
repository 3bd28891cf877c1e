import json
import math
import random
import sys
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
import torch

from clearhead.errors import CheckpointError, MissingPackageError
from clearhead.train.log import VIEWS, Bar, Lines, Log, MetricsFile, view
from clearhead.train.loop import train
from clearhead.train.seed import derive, seed_everything
from clearhead.train.speed import Meter, measure_peak
from tests.unit.tiny_training import TinyModel, tiny_job, tiny_training

RECORD = {
    "kind": "train",
    "step": 5,
    "loss": 2.5,
    "learning_rate": 3e-4,
    "tokens_per_second": 12_345.0,
    "share_of_peak": 0.38,
}
JOB = replace(tiny_job(), flops=lambda batch: 1e6, samples=lambda model: ["je suis → i am"])


@pytest.mark.parametrize("name", sorted(VIEWS))
def test_every_view_takes_every_record_and_leaves_stdout_alone(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    with Log([view(name, steps=10, done=0)], every=1, steps=10) as log:
        log.record(RECORD)
        log.record({"kind": "validation", "step": 5, "loss": math.nan, "samples": ["[a] → b"]})
        log.say("[b]Something[/b] happened.")
    out, err = capfd.readouterr()
    assert out == ""
    assert (err == "") == (name == "quiet")
    if name != "quiet":
        assert "[b]Something[/b] happened." in err
        assert "[a] → b" in err


def test_a_line_says_loss_rate_speed_share_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(10, 0)
    lines.start -= 100
    lines.record(RECORD)
    line = capsys.readouterr().err
    assert line == "train 5/10  loss 2.5  rate 3.0e-04  12.3k tokens/s  38% of peak  1:40 left\n"


def test_json_lines_are_strict_json(capsys: pytest.CaptureFixture[str]) -> None:
    log = view("json", steps=10, done=0)
    log.record({**RECORD, "loss": math.inf})
    log.say("hello")
    first, second = [json.loads(line, parse_constant=pytest.fail) for line in capsys.readouterr().err.splitlines()]
    assert (first["loss"], first["steps"], first["share_of_peak"]) == (None, 10, 0.38)
    assert second == {"kind": "message", "text": "hello"}


def test_a_terminal_gets_a_bar_and_anything_else_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    assert isinstance(view("auto", steps=2, done=0), Lines)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    bar = view("auto", steps=2, done=0)
    bar.close()
    assert isinstance(bar, Bar)


def test_files_get_each_so_many_steps_and_the_last(tmp_path: Path) -> None:
    train(TinyModel(), JOB, tiny_training(log_every=5, validate_every=4), run_directory=tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "train"] == [5, 10, 12]
    assert [line["step"] for line in lines if line["kind"] == "validation"] == [4, 8, 12]
    assert lines[-1]["samples"] == ["je suis → i am"]
    trained = next(line for line in lines if line["kind"] == "train")
    assert trained["loss"] == pytest.approx(trained["token"] + trained["row"])
    assert trained["share_of_peak"] > 0
    assert trained["tokens_per_second"] > 0


def test_a_bar_shows_every_step_and_resuming_starts_where_it_was(tmp_path: Path) -> None:
    bar = Bar(10, 4)
    with Log([bar, file := MetricsFile(tmp_path / "m", 0)], every=5, steps=10) as log:
        assert bar.progress.tasks[0].completed == 4
        log.record({**RECORD, "step": 7})
        assert bar.progress.tasks[0].completed == 7
    assert file.path.read_text() == ""


def test_metrics_cut_at_the_step_that_is_done(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\nrubbish\n{"step": 3}\n{"ste')
    MetricsFile(path, 2).close()
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'


@pytest.mark.parametrize("odd", ["\u2028", "\u2029", "\u0085", "\x0b", "\x1c", "\r", "\n"])
def test_metrics_keep_samples_with_any_line_end_in_them(odd: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    record = {"kind": "validation", "step": 2, "samples": [f"a{odd}b"]}
    metrics = MetricsFile(path, 0)
    metrics.record(record)
    metrics.close()
    MetricsFile(path, 2).close()
    assert json.loads(path.read_text("utf-8")) == record


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_metrics_that_cannot_be_written_stop_with_one_sentence(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl", 0)
    metrics.close()
    sentence = r"metrics\.jsonl could not be written because the disk is full"
    with Path("/dev/full").open("w", buffering=1) as metrics.file:
        with pytest.raises(CheckpointError, match=f"{sentence}: .*; the checkpoints are as they were"):
            metrics.record(RECORD)
        with pytest.raises(CheckpointError, match=sentence):
            metrics.close()


def test_tensorboard_gets_the_scalars_or_is_said_to_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    train(TinyModel(), tiny_job(), tiny_training(tensorboard=True, validate_every=6), run_directory=tmp_path / "run")
    events = accumulator.EventAccumulator(str(tmp_path / "run" / "events")).Reload()
    assert [event.step for event in events.Scalars("validation/loss")] == [6, 12]
    assert len(events.Scalars("train/learning_rate")) == 12
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingPackageError, match="'tensorboard'"):
        train(TinyModel(), tiny_job(), tiny_training(tensorboard=True), run_directory=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_the_meter_counts_only_timed_work(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 2.0, 10.0, 12.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    meter = Meter("rows", peak=100.0)
    for _ in range(2):
        with meter.timed():
            pass
        meter.add(6, 40.0)
    assert meter.rates() == {"rows_per_second": 3.0, "share_of_peak": 0.2}
    meter.reset()
    assert meter.rates()["rows_per_second"] == 0


def test_a_peak_is_measured() -> None:
    assert 0 < measure_peak(torch.device("cpu"), torch.float32, seconds=0.01, size=64) < math.inf


def test_seeding_repeats_every_generator() -> None:
    def draw() -> tuple[float, float, float]:
        return random.random(), float(numpy.random.rand()), float(torch.rand(()))

    seed_everything(derive(1, 0, 7))
    first = draw()
    seed_everything(derive(1, 0, 8))
    second = draw()
    seed_everything(derive(1, 0, 7))
    assert draw() == first
    assert all(a != b for a, b in zip(first, second, strict=True))
    places = [derive(seed, rank, step) for seed in range(3) for rank in range(4) for step in range(100)]
    assert len(set(places)) == len(places)
    assert all(0 <= place < 2**63 for place in places)
