"""`clearhead train`: what it leaves behind, and how it refuses what cannot be used."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from clearhead.cli.train import _reading
from tests.unit.command_line import refusal, run, write_pairs, write_recipe

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a folder of the test's own, and keep corpora below it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))


def nothing_was_written(folder: Path) -> bool:
    """Neither a run nor half a corpus."""
    return not (folder / "run").exists() and not any((folder / "cache").glob("*"))


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


@pytest.mark.parametrize("key", ["train.stpes=5", "data.trian=x", "model.widht=8", "tokenizer.vocabluary=9", "mdoel=1"])
def test_a_misspelt_key_names_the_nearest(key: str, tmp_path: Path, capsys: Capture) -> None:
    meant = {"stpes": "steps", "trian": "train", "widht": "width", "vocabluary": "vocabulary", "mdoel": "model"}
    name = key.partition("=")[0]
    said = refusal(run(capsys, "train", write_recipe(tmp_path), "-o", "run", "--set", key))
    assert name in said
    assert repr(meant[name.rpartition(".")[2]]) in said
    assert nothing_was_written(tmp_path)


def test_a_key_misspelt_in_the_file_is_named_with_its_line(tmp_path: Path, capsys: Capture) -> None:
    recipe = write_recipe(tmp_path)
    lines = recipe.read_text(encoding="utf-8").replace("vocabulary:", "vocabluary:").splitlines()
    recipe.write_text("\n".join(lines), encoding="utf-8")
    number = next(number for number, line in enumerate(lines, start=1) if "vocabluary" in line)
    said = refusal(run(capsys, "train", recipe, "-o", "run", "--set", "train.steps=3"))
    assert said.startswith(f"{recipe}, line {number}: tokenizer.vocabluary")
    assert "'vocabulary'" in said
    assert nothing_was_written(tmp_path)


@pytest.mark.parametrize(
    "key", ["model.width=-8", "model.heads=0", "train.steps=-1", "train.tokens=-5", "tokenizer.vocabulary=-2"]
)
def test_a_size_below_one_is_refused(key: str, tmp_path: Path, capsys: Capture) -> None:
    said = refusal(run(capsys, "train", write_recipe(tmp_path), "-o", "run", "--set", key))
    name, _, value = key.partition("=")
    assert name.rpartition(".")[2] in said
    assert value in said
    assert nothing_was_written(tmp_path)


def parallel(tmp_path: Path, source: bytes, target: bytes) -> str:
    (tmp_path / "a.fr").write_bytes(source)
    (tmp_path / "a.en").write_bytes(target)
    return "[a.fr, a.en]"


def single(tmp_path: Path, content: bytes) -> str:
    (tmp_path / "bad.tsv").write_bytes(content)
    return "bad.tsv"


BAD_FILES: dict[str, tuple[Callable[[Path], str], str]] = {
    "unequal": (lambda t: parallel(t, b"un\ndeux\ntrois\n", b"one\ntwo\n"), r"a\.fr has 3, a\.en has 2"),
    "empty": (lambda t: single(t, b""), r"bad\.tsv"),
    "blank": (lambda t: single(t, b"\n\n\n"), r"bad\.tsv"),
    "binary": (lambda t: single(t, b"un\tone\nd\0x\ttwo\n"), r"bad\.tsv, line 2: .*NUL"),
    "picture": (lambda t: single(t, b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"), r"bad\.tsv, line 1"),
    "endless line": (
        lambda t: single(t, b"un\tone\n" + b"deux " * 200_001 + b"\ttwo\n"),
        r"bad\.tsv, line 2: .*longer",
    ),
    "utf-8": (
        lambda t: single(t, b"un\tone\n" + "été\tsummer\n".encode("latin-1")),
        r"bad\.tsv, line 2: byte 7",
    ),
    "no tab": (lambda t: single(t, b"un\tone\ndeux two\n"), r"bad\.tsv, line 2"),
    "missing": (lambda t: "nowhere.tsv", r"nowhere\.tsv"),
}


@pytest.mark.parametrize("what", sorted(BAD_FILES))
def test_a_bad_file_is_named_with_its_line(what: str, tmp_path: Path, capsys: Capture) -> None:
    write, expected = BAD_FILES[what]
    recipe = write_recipe(tmp_path)
    said = refusal(run(capsys, "train", recipe, "-o", "run", "--set", f"data.train={write(tmp_path)}"))
    assert re.search(expected, said)
    assert nothing_was_written(tmp_path)


@pytest.mark.parametrize("content", ["task: [", "- a\n- b\n", "", "task: juggling\n", "\tx: 1"])
def test_a_file_that_is_no_recipe_is_refused(content: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "odd.yaml").write_text(content, encoding="utf-8")
    refusal(run(capsys, "train", "odd.yaml", "-o", "run"))
    assert nothing_was_written(tmp_path)


def test_a_missing_recipe_is_named(capsys: Capture) -> None:
    assert "nowhere.yaml" in refusal(run(capsys, "train", "nowhere.yaml"))


def test_an_output_folder_that_exists_is_left_alone(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "diary.txt").write_text("mine", encoding="utf-8")
    said = refusal(run(capsys, "train", write_recipe(tmp_path), "-o", tmp_path / "run"))
    assert str(tmp_path / "run") in said
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["diary.txt"]


def test_resuming_needs_a_run(tmp_path: Path, capsys: Capture) -> None:
    assert "run" in refusal(run(capsys, "train", write_recipe(tmp_path), "-o", "run", "--resume"))
    assert not (tmp_path / "run").exists()


def test_a_run_is_not_resumed_with_another_architecture(tmp_path: Path, capsys: Capture) -> None:
    recipe = write_recipe(tmp_path)
    assert run(capsys, "train", recipe, "-o", "run").code == 0
    before = (tmp_path / "run" / "last" / "model.safetensors").read_bytes()
    said = refusal(
        run(capsys, "train", recipe, "-o", "run", "--resume", "--set", "model.width=32", "--set", "train.steps=4")
    )
    assert "width" in said
    assert (tmp_path / "run" / "last" / "model.safetensors").read_bytes() == before


def test_training_does_not_start_from_another_architecture(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "text.txt").write_text("to be or not to be " * 20, encoding="utf-8")
    other = write_recipe(tmp_path, "language_model", train="text.txt")
    assert run(capsys, "train", other, "-o", "other").code == 0
    recipe = write_recipe(tmp_path)
    values = yaml.safe_load(recipe.read_text(encoding="utf-8"))
    values["model"] = {"init_from": "other"}
    recipe.write_text(yaml.safe_dump(values), encoding="utf-8")
    assert "other" in refusal(run(capsys, "train", recipe, "-o", "run"))
    assert not (tmp_path / "run").exists()


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


def test_pairs_with_a_blank_side_are_left_out(tmp_path: Path, capsys: Capture) -> None:
    pairs = write_pairs(tmp_path / "gaps.tsv", [("un", "one"), ("deux", ""), ("", "three")])
    done = run(capsys, "train", write_recipe(tmp_path), "-o", "run", "--set", f"data.train={pairs}")
    assert done.code == 0, done.err
