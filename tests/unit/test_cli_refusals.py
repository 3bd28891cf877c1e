"""`clearhead train` and what it cannot use: one sentence that names the file and the line, and nothing half written."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.unit.command_line import refusal, run, write_recipe
from tests.unit.tiny_training import files_below

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a folder of the test's own, and keep corpora below it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))


def nothing_was_written(folder: Path) -> bool:
    """Neither a run nor half a corpus."""
    return not (folder / "run").exists() and not any((folder / "cache").glob("*"))


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


@pytest.mark.parametrize(
    ("section", "name"), [("model", "width"), ("model", "hidden"), ("train", "tokens"), ("train", "keep")]
)
def test_a_size_below_one_in_the_file_is_named_with_its_line(
    section: str, name: str, tmp_path: Path, capsys: Capture
) -> None:
    recipe = write_recipe(tmp_path)
    values = yaml.safe_load(recipe.read_text(encoding="utf-8"))
    values[section][name] = -8
    recipe.write_text(yaml.safe_dump(values), encoding="utf-8")
    (number,) = (n for n, line in enumerate(recipe.read_text(encoding="utf-8").splitlines(), start=1) if "-8" in line)
    said = refusal(run(capsys, "train", recipe, "-o", "run", "--set", "train.steps=3"))
    assert said.startswith(f"{recipe}, line {number}: ")
    assert name in said
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


# Of each task a line as it should be; each of them is the second line of a file that has this fault.
LINES = {
    "language_model": "to be or not to be",
    "masked_model": "to be or not to be",
    "text_classification": "+ good film",
    "token_classification": "Mary B-PER",
    "translation": "un\tone",
}
FAULTS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda line: b"", "'odd.txt' holds no "),
    "binary": (lambda line: line + b"\n" + line[:-1] + b"\0\n", "odd.txt, line 2: a NUL byte"),
    "endless line": (lambda line: line + b"\n" + line * 200_000 + b"\n", "odd.txt, line 2: longer than"),
    "utf-8": (lambda line: line + b"\n" + line + b"\xe9\n", "odd.txt, line 2: byte "),
}


def refused_file(capsys: Capture, folder: Path, task: str, fault: str, part: str) -> str:
    """What a run says of a part of its data that has this fault; the other parts are as they should be."""
    line = LINES[task].encode()
    (folder / "good.txt").write_bytes((line + b"\n") * 20)
    (folder / "odd.txt").write_bytes(FAULTS[fault][0](line))
    names = {"train": "good.txt", "valid": "good.txt", "test": "good.txt", part: "odd.txt"}
    said = refusal(run(capsys, "train", write_recipe(folder, task, **names), "-o", "run"))
    assert not (folder / "run").exists()
    assert not any((folder / "cache").glob(".*"))  # where half a corpus would be
    return said


@pytest.mark.parametrize("fault", sorted(FAULTS))
@pytest.mark.parametrize("task", sorted(LINES))
def test_every_task_refuses_a_bad_file(task: str, fault: str, tmp_path: Path, capsys: Capture) -> None:
    assert refused_file(capsys, tmp_path, task, fault, "train").startswith(FAULTS[fault][1])


@pytest.mark.parametrize("part", ["valid", "test"])
@pytest.mark.parametrize("task", sorted(LINES))
def test_every_file_is_read_before_training_starts(task: str, part: str, tmp_path: Path, capsys: Capture) -> None:
    assert refused_file(capsys, tmp_path, task, "utf-8", part).startswith(FAULTS["utf-8"][1])


@pytest.mark.parametrize("part", ["valid", "test"])
@pytest.mark.parametrize(("task", "strange"), [("text_classification", "? film"), ("token_classification", "Mary B-X")])
def test_a_label_that_training_never_saw_is_refused(
    task: str, strange: str, part: str, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "good.txt").write_text(LINES[task], encoding="utf-8")
    (tmp_path / "odd.txt").write_text(strange, encoding="utf-8")
    recipe = write_recipe(tmp_path, task, **{"train": "good.txt", part: "odd.txt"})
    assert "does not occur in the training data" in refusal(run(capsys, "train", recipe, "-o", "run"))
    assert not (tmp_path / "run").exists()


def test_a_text_shorter_than_a_window_is_refused(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "text.txt").write_text("to be", encoding="utf-8")
    recipe = write_recipe(tmp_path, "language_model", train="text.txt")
    assert "must fit into the text" in refusal(run(capsys, "train", recipe, "-o", "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("content", [b"task: [", b"- a\n- b\n", b"", b"task: juggling\n", b"\tx: 1", b"task: caf\xe9"])
@pytest.mark.parametrize("more", [(), ("--show",)])
def test_a_file_that_is_no_recipe_is_refused(
    content: bytes, more: tuple[str, ...], tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "odd.yaml").write_bytes(content)
    assert "odd.yaml" in refusal(run(capsys, "train", "odd.yaml", "-o", "run", *more))
    assert nothing_was_written(tmp_path)


def test_a_missing_recipe_is_named(capsys: Capture) -> None:
    assert "nowhere.yaml" in refusal(run(capsys, "train", "nowhere.yaml"))


def test_an_output_folder_that_exists_is_left_alone(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "diary.txt").write_text("mine", encoding="utf-8")
    said = refusal(run(capsys, "train", write_recipe(tmp_path), "-o", tmp_path / "run"))
    assert str(tmp_path / "run") in said
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["diary.txt"]
    said = refusal(run(capsys, "train", write_recipe(tmp_path), "-o", tmp_path / "run" / "diary.txt"))
    assert "diary.txt" in said
    assert (tmp_path / "run" / "diary.txt").read_text(encoding="utf-8") == "mine"


def test_resuming_needs_a_run(tmp_path: Path, capsys: Capture) -> None:
    assert "run" in refusal(run(capsys, "train", write_recipe(tmp_path), "-o", "run", "--resume"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("key", ["model.width=32", "model.preset=transformer-small", "tokenizer.vocabulary=61"])
def test_a_run_is_not_resumed_with_another_architecture(key: str, tmp_path: Path, capsys: Capture) -> None:
    recipe = write_recipe(tmp_path)
    assert run(capsys, "train", recipe, "-o", "run").code == 0
    before = files_below(tmp_path / "run")
    said = refusal(run(capsys, "train", recipe, "-o", "run", "--resume", "--set", key, "--set", "train.steps=4"))
    assert key.partition("=")[0] in said
    assert "run/recipe.yaml" in said
    assert files_below(tmp_path / "run") == before


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


def test_training_does_not_start_from_weights_of_another_shape(tmp_path: Path, capsys: Capture) -> None:
    recipe = write_recipe(tmp_path)
    assert run(capsys, "train", recipe, "-o", "other").code == 0
    values = yaml.safe_load(recipe.read_text(encoding="utf-8"))
    values["model"] = {"init_from": "other", "hidden": 24}
    recipe.write_text(yaml.safe_dump(values), encoding="utf-8")
    said = refusal(run(capsys, "train", recipe, "-o", "run"))
    assert re.search(r"other/checkpoint-2 cannot be the start: .* 24\) here", said)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("broken", [b"task: [", b"\0", b"task: juggling\n"])
def test_a_run_whose_recipe_is_broken_is_not_resumed(broken: bytes, tmp_path: Path, capsys: Capture) -> None:
    recipe = write_recipe(tmp_path)
    assert run(capsys, "train", recipe, "-o", "run").code == 0
    (tmp_path / "run" / "recipe.yaml").write_bytes(broken)
    assert "run/recipe.yaml" in refusal(run(capsys, "train", recipe, "-o", "run", "--resume"))
