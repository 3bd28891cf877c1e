"""`clearhead train`: what it leaves behind and what it shows."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from clearhead.cli.train import _reading
from tests.conftest import ROOT
from tests.unit.command_line import refusal, run, write_pairs, write_recipe

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a folder of the test's own, and keep corpora below it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))


def test_stdout_is_the_path_of_a_model_directory(tmp_path: Path, capsys: Capture) -> None:
    done = run(capsys, "train", write_recipe(tmp_path), "--out", tmp_path / "run")
    assert done.code == 0, done.err
    folder = Path(done.out.removesuffix("\n"))
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md"} <= {
        path.name for path in folder.iterdir()
    }
    assert (tmp_path / "run" / "recipe.yaml").is_file()


def test_without_out_the_run_is_named_after_the_recipe(tmp_path: Path, capsys: Capture) -> None:
    assert run(capsys, "train", write_recipe(tmp_path)).code == 0
    assert (tmp_path / "runs" / "translation" / "last").is_dir()


def test_sets_override_the_recipe(tmp_path: Path, capsys: Capture) -> None:
    recipe = write_recipe(tmp_path)
    sets = ["train.steps=3", "model.dropout=0.25", "data.languages=[fr, en]"]
    done = run(capsys, "train", recipe, "-o", "run", *(word for text in sets for word in ("--set", text)))
    assert done.code == 0, done.err
    resolved = yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text(encoding="utf-8"))
    assert resolved["train"]["steps"] == 3
    assert resolved["model"]["dropout"] == 0.25
    assert resolved["data"]["languages"] == ["fr", "en"]


def test_progress_is_on_stderr_alone(tmp_path: Path, capsys: Capture) -> None:
    done = run(capsys, "train", write_recipe(tmp_path), "-o", "run", "--set", "train.progress=lines")
    assert "train 2/2" in done.err
    assert done.out.count("\n") == 1


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(tmp_path: Path, capsys: Capture) -> None:
    recipe = write_recipe(tmp_path, steps=4)
    whole = run(capsys, "train", recipe, "-o", "whole")
    # The rate is constant: with another number of steps a cosine would be another one.
    for steps, further in (("2", []), ("4", ["--resume"])):
        parts = run(capsys, "train", recipe, "-o", "parts", "--set", f"train.steps={steps}", *further)
        assert parts.code == 0, parts.err
    assert whole.code == 0
    weights = [Path(done.out.strip(), "model.safetensors").read_bytes() for done in (whole, parts)]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_the_step_and_leaves_with_its_code(number: int, code: int, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, steps=1_000_000)
    command = [sys.executable, "-c", "from clearhead.cli.main import main; main()", "train", str(recipe), "-o", "run"]
    process = subprocess.Popen(
        [*command, "--set", "train.progress=lines"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr
    assert process.stdout
    with process.stdout, process.stderr:
        assert process.stderr.readline().startswith("train 1/")
        process.send_signal(number)
        said = process.stderr.read()
        assert process.stdout.read() == ""
    assert process.wait(timeout=60) == code
    assert "checkpoint-" in said.splitlines()[-1]
    assert (tmp_path / "run" / "last" / "model.safetensors").is_file()


def test_a_bar_shows_what_is_read(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("FORCE_COLOR", "TTY_INTERACTIVE"):  # by which rich takes any stream for a terminal
        monkeypatch.setenv(variable, "1")
    with _reading(shown=True) as tell:
        assert tell
        for read in (500_000, 1_000_000):
            tell(read, 1_000_000)
    assert "reading" in capsys.readouterr().err
    with _reading(shown=False) as tell:
        assert tell is None


@pytest.mark.parametrize(("view", "shown"), [("auto", True), ("quiet", False)])
def test_a_terminal_sees_a_bar_while_files_are_read(
    view: str, shown: bool, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("train", write_recipe(tmp_path), "--set", f"train.progress={view}", "-o")
    assert "reading" not in run(capsys, *arguments, "elsewhere").err
    shutil.rmtree(tmp_path / "cache")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert ("reading" in run(capsys, *arguments, "run").err) == shown


def test_pairs_with_a_blank_side_are_left_out(tmp_path: Path, capsys: Capture) -> None:
    pairs = write_pairs(tmp_path / "gaps.tsv", [("un", "one"), ("deux", ""), ("", "three")])
    done = run(capsys, "train", write_recipe(tmp_path), "-o", "run", "--set", f"data.train={pairs}")
    assert done.code == 0, done.err


SMALL = ["--set", "train.steps=1", "--set", "data.sentences=60", "--set", "data.held_out=5", "--set", "model.width=16"]


def test_a_recipe_that_comes_with_it_is_known_by_its_name(tmp_path: Path, capsys: Capture) -> None:
    shown = run(capsys, "train", "phrasebook", *SMALL)
    assert shown.code == 0, shown.err
    assert shown.out.startswith(str(Path("runs") / "phrasebook"))


def test_a_recipe_is_shown_as_it_stands(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "multi30k-de-en").mkdir()  # a folder of that name is no recipe
    shown = run(capsys, "train", "multi30k-de-en", "--show")
    assert shown.out == (ROOT / "recipes" / "multi30k-de-en.yaml").read_text(encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["multi30k-de-en"]


@pytest.mark.parametrize(
    ("name", "hint"), [("phrasebok", "did you mean 'phrasebook'?"), ("qqq", "name a file, or one of multi30k-de-en, ")]
)
def test_a_name_that_is_none_is_refused_with_the_nearest(name: str, hint: str, capsys: Capture) -> None:
    said = refusal(run(capsys, "train", name))
    assert said.startswith(f"no recipe is called '{name}': {hint}")
