import errno
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from clearhead.errors import CheckpointError, ConfigError
from clearhead.nn.weights import distinct, load_weights, read_tensors, save_weights, write_tensors
from clearhead.train import checkpoint as checkpoint_module
from clearhead.train import disk
from clearhead.train.loop import train
from clearhead.train.lora import add_lora, merge_lora
from clearhead.train.run import Run, linked, open_run
from tests.unit.tiny_training import TinyModel, files_below, same_bits, snapshot, tiny_job, tiny_training


def test_a_run_directory_has_what_it_promises(tmp_path: Path) -> None:
    run = tmp_path / "run"
    job = replace(tiny_job(), save_extra=lambda folder: (folder / "config.json").write_text("{}") and None)
    train(TinyModel(), job, tiny_training(checkpoint_every=5), run_directory=run, recipe="a: 1\n")
    assert {path.name for path in run.iterdir()} == {
        "checkpoint-5",
        "checkpoint-10",
        "checkpoint-12",
        "best",
        "last",
        "recipe.yaml",
        "metrics.jsonl",
    }
    assert {path.name for path in (run / "last").iterdir()} == {
        "config.json",
        "model.safetensors",
        "optimizer.safetensors",
        "state.json",
    }
    assert (run / "recipe.yaml").read_text() == "a: 1\n"
    assert os.readlink(run / "last") == "checkpoint-12"
    assert json.loads((run / "last" / "state.json").read_text())["step"] == 12


def test_tied_tensors_are_stored_once_and_stay_tied(tmp_path: Path) -> None:
    model, again = TinyModel(seed=1), TinyModel(seed=2)
    save_weights(model, tmp_path / "w.safetensors")
    assert "out.weight" not in read_tensors(tmp_path / "w.safetensors")
    load_weights(again, tmp_path / "w.safetensors")
    assert same_bits(snapshot(model), snapshot(again))
    assert again.out.weight is again.embed.weight


def test_weights_have_the_rights_of_any_new_file(tmp_path: Path) -> None:
    write_tensors(tmp_path / "w.safetensors", {"w": torch.zeros(2)})
    (tmp_path / "any").touch()
    assert (tmp_path / "w.safetensors").stat().st_mode == (tmp_path / "any").stat().st_mode


def test_a_file_system_without_rights_takes_weights_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", str(path))

    monkeypatch.setattr(Path, "chmod", refuse)
    write_tensors(tmp_path / "w.safetensors", {"w": torch.ones(2)})
    assert read_tensors(tmp_path / "w.safetensors")["w"].tolist() == [1, 1]


def test_views_of_one_storage_are_stored_apart(tmp_path: Path) -> None:
    stacked = torch.randn(4, 3)
    write_tensors(tmp_path / "w.safetensors", {"q": stacked[:2], "k": stacked[2:], "t": stacked.T})
    found = read_tensors(tmp_path / "w.safetensors")
    assert same_bits(found, {"q": stacked[:2], "k": stacked[2:], "t": stacked.T})


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (TinyModel(width=16), r"'embed\.weight' has shape \(11, 16\), here it is \(11, 8\)"),
        (nn.Linear(2, 2), r"it lacks 'blocks\.0\.0\.bias' and 9 more tensors"),
        (nn.ModuleDict({"embed": nn.Linear(8, 11)}), "it lacks"),
    ],
)
def test_another_architecture_is_refused_and_nothing_changes(other: nn.Module, problem: str, tmp_path: Path) -> None:
    save_weights(other, tmp_path / "w.safetensors")
    model = TinyModel()
    before = snapshot(model)
    with pytest.raises(CheckpointError, match=f"w.safetensors is of another architecture than this model: .*{problem}"):
        load_weights(model, tmp_path / "w.safetensors")
    assert same_bits(before, snapshot(model))


def test_more_tensors_than_the_model_has_are_refused(tmp_path: Path) -> None:
    write_tensors(tmp_path / "w.safetensors", {**distinct(TinyModel()), "third.weight": torch.zeros(1)})
    with pytest.raises(CheckpointError, match=r"it has 'third\.weight' besides"):
        load_weights(TinyModel(), tmp_path / "w.safetensors")


def test_broken_and_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no weights at .*w\.safetensors"):
        read_tensors(tmp_path / "w.safetensors")
    (tmp_path / "w.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(CheckpointError, match=r"w\.safetensors cannot be read"):
        read_tensors(tmp_path / "w.safetensors")


def test_resuming_another_architecture_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(TinyModel(), tiny_job(), tiny_training(), run_directory=run, recipe="width: 8")
    before = files_below(run)
    with pytest.raises(CheckpointError, match="checkpoint-12 is of another architecture"):
        train(TinyModel(width=16), tiny_job(), tiny_training(), run_directory=run, recipe="width: 16", resume=True)
    assert files_below(run) == before


@pytest.mark.parametrize("content", ["", "{}", '{"format_version": 99, "step": 1, "history": []}', "[1]"])
def test_a_state_that_cannot_be_read_is_refused(content: str, tmp_path: Path) -> None:
    train(TinyModel(), tiny_job(), tiny_training(), run_directory=tmp_path / "run")
    (tmp_path / "run" / "checkpoint-12" / "state.json").write_text(content)
    with pytest.raises(CheckpointError, match="checkpoint-12 has"):
        train(TinyModel(), tiny_job(), tiny_training(), run_directory=tmp_path / "run", resume=True)


def test_a_folder_that_is_not_ours_is_never_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    (tmp_path / ".thesis.tmp").write_text("precious too")
    before = files_below(tmp_path)
    with pytest.raises(ConfigError, match="exists and is not empty"):
        open_run(tmp_path, resume=False)
    with pytest.raises(CheckpointError, match="not a run directory"):
        open_run(tmp_path, resume=True)
    with pytest.raises(ConfigError, match="is a file"):
        open_run(tmp_path / "thesis.txt", resume=False)
    with pytest.raises(CheckpointError, match="no run to resume"):
        open_run(tmp_path / "nowhere", resume=True)
    assert files_below(tmp_path) == before


def test_a_changed_recipe_keeps_the_former(tmp_path: Path) -> None:
    for recipe in ("a: 1", "a: 2"):
        train(TinyModel(), tiny_job(), tiny_training(), run_directory=tmp_path, recipe=recipe, resume=recipe == "a: 2")
    assert (tmp_path / "recipe.yaml").read_text() == "a: 2"
    assert (tmp_path / "recipe-before-12.yaml").read_text() == "a: 1"


def test_links_are_files_where_links_do_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "symlink", refuse)
    report = train(TinyModel(), tiny_job(), tiny_training(), run_directory=tmp_path / "run")
    assert (tmp_path / "run" / "last").read_text() == "checkpoint-12\n"
    assert report.folder == linked(tmp_path / "run", "last") == tmp_path / "run" / "checkpoint-12"
    (tmp_path / "run" / "last").write_text("../../elsewhere")
    with pytest.raises(CheckpointError, match="no 'last' checkpoint"):
        linked(tmp_path / "run", "last")


class Crash(BaseException):
    """As sudden as a power cut: no handler for ordinary errors sees it."""


def crashes_after(calls: int, patch: pytest.MonkeyPatch) -> None:
    """Let the process "die" at the n-th operation on the disk from here."""
    left = iter(range(calls))

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def wrapped(*arguments: object, **options: object) -> object:
            if next(left, None) is None:
                raise Crash
            return function(*arguments, **options)

        return wrapped

    patch.setattr(os, "fsync", counted(lambda handle: None))
    for module, name in ((os, "replace"), (os, "symlink"), (checkpoint_module, "write_tensors")):
        patch.setattr(module, name, counted(getattr(module, name)))
    patch.setattr(disk, "remove", lambda path: None)  # the dead do not tidy up


def test_a_crash_between_any_two_operations_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it is cut off, resuming ends in the same bits, and no leftover stays."""
    training = tiny_training(steps=2, checkpoint_every=1, keep=1, ema=0.5)

    def run(folder: Path, *, resume: bool = False) -> dict[str, Tensor]:
        model = TinyModel(dropout=0.3)
        train(model, tiny_job(), training, run_directory=folder, resume=resume)
        return snapshot(model)

    whole = run(tmp_path / "whole")
    for calls in count():
        folder = tmp_path / str(calls)
        with monkeypatch.context() as patch:
            crashes_after(calls, patch)
            try:
                run(folder)
                break
            except Crash:
                pass
        assert same_bits(run(folder, resume=True), whole)
        assert not [path for path in folder.iterdir() if path.name.startswith(".")]
        assert files_below(folder / "last") == files_below(tmp_path / "whole" / "last")
        assert Run(folder).steps() == [2]
    assert calls > 25


def test_a_crash_while_the_recipe_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for calls in count():
        run = Run(tmp_path / str(calls))
        run.folder(3).mkdir(parents=True)
        run.note_recipe("old")
        with monkeypatch.context() as patch:
            crashes_after(calls, patch)
            try:
                run.note_recipe("new")
                break
            except Crash:
                pass
        assert open_run(run.directory, resume=True).steps() == [3]
        run.note_recipe("new")
        assert (run.directory / "recipe.yaml").read_text() == "new"
        assert (run.directory / "recipe-before-3.yaml").read_text() == "old"
    assert calls > 4


def test_a_pruned_checkpoint_is_never_seen_half_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (1, 2):
        (tmp_path / f"checkpoint-{step}").mkdir()

    def crash(path: Path) -> None:
        raise Crash

    monkeypatch.setattr("clearhead.train.run.remove", crash)
    with pytest.raises(Crash):
        Run(tmp_path).prune(keep={2})
    assert Run(tmp_path).steps() == [2]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("victim", ["model.safetensors", "optimizer.safetensors"])
def test_a_full_disk_keeps_the_last_checkpoint(
    code: int, victim: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, tensors: object) -> None:
        if path.name == victim and "checkpoint-8" in str(path):
            path.write_bytes(b"half")
            raise OSError(code, "No space left on device")
        write_tensors(path, tensors)

    monkeypatch.setattr(checkpoint_module, "write_tensors", write)
    sentence = r"checkpoint-8 could not be written because the disk is full: .*; .*checkpoint-4 is the last good"
    with pytest.raises(CheckpointError, match=sentence):
        train(TinyModel(), tiny_job(), tiny_training(checkpoint_every=4), run_directory=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "checkpoint-4",
        "best",
        "last",
        "recipe.yaml",
        "metrics.jsonl",
    }


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 128 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", place], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this system does not let the test mount a small tmpfs")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_disk_that_really_is_full_loses_nothing(small_disk: Path, tmp_path: Path) -> None:
    training = tiny_training(checkpoint_every=1, keep=100, log_every=4)
    with pytest.raises(CheckpointError, match="because the disk is full") as caught:
        train(TinyModel(width=32), tiny_job(), training, run_directory=small_disk / "run")
    last = max(Run(small_disk / "run").steps())
    assert f"checkpoint-{last} is the last good" in str(caught.value)
    assert not [path for path in (small_disk / "run").iterdir() if path.name.startswith(".")]

    model, whole = TinyModel(width=32), TinyModel(width=32)
    train(model, tiny_job(), tiny_training(keep=1, log_every=4), run_directory=small_disk / "run", resume=True)
    train(whole, tiny_job(), training, run_directory=tmp_path / "whole")
    assert same_bits(snapshot(whole), snapshot(model))


def test_other_trouble_with_the_disk_is_said_in_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=re.escape(os.strerror(errno.EACCES))), disk.aside(tmp_path / "x"):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))


def test_the_model_file_has_averages_and_merged_adapters(tmp_path: Path) -> None:
    model = TinyModel()
    add_lora(model, rank=2, alpha=4, patterns=["blocks.*"])
    seen = []

    def validate(model: nn.Module) -> dict[str, float]:
        seen.append(model(torch.arange(6)[None])[0])
        return {"loss": 0.0}

    training = tiny_training(ema=0.8, validate_every=12)
    report = train(model, replace(tiny_job(), validate=validate), training, run_directory=tmp_path / "run")
    plain = TinyModel()
    assert report.folder is not None
    load_weights(plain, report.folder / "model.safetensors")
    torch.testing.assert_close(plain(torch.arange(6)[None])[0], seen[0])
    merge_lora(model)
    assert (plain.blocks[0][0].weight - model.blocks[0][0].weight).abs().max() > 1e-4  # the average lags behind
