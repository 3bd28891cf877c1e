"""`clearhead translate`: answers line by line, and how it refuses what cannot be used."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clearhead.tasks.translator import Translator
from tests.unit.command_line import PAIRS, refusal, run

Capture = pytest.CaptureFixture[str]
SOURCES = [source for source, _ in PAIRS]


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Translator]:
    folder = tmp_path_factory.mktemp("translate") / "model"
    model = Translator.fit(PAIRS * 4, preset="transformer-tiny", steps=30, vocabulary=300)
    model.save_pretrained(folder)
    return folder, model


def test_arguments_are_translated_in_their_order(translator: tuple[Path, Translator], capsys: Capture) -> None:
    folder, model = translator
    done = run(capsys, "translate", *SOURCES, "-m", folder)
    assert done == (0, "".join(f"{model.translate(source)}\n" for source in SOURCES), "")


def test_stdin_gives_a_line_for_each_line(translator: tuple[Path, Translator], capsys: Capture) -> None:
    folder, model = translator
    done = run(capsys, "translate", "-m", folder, stdin=f"{SOURCES[0]}\n\n{SOURCES[1]}".encode())
    assert done.out.split("\n") == [model.translate(SOURCES[0]), "", model.translate(SOURCES[1]), ""]


def test_json_has_both_sides(translator: tuple[Path, Translator], capsys: Capture) -> None:
    folder, model = translator
    done = run(capsys, "translate", SOURCES[0], "--json", "--model", folder)
    said = json.loads(done.out)
    assert {name: said[name] for name in ("source", "translation")} == {
        "source": SOURCES[0],
        "translation": model.translate(SOURCES[0]),
    }
    assert said["tokens"][-1][0] == "<eos>"
    assert "alignments" not in said


def test_empty_input_gives_empty_output(translator: tuple[Path, Translator], capsys: Capture) -> None:
    assert run(capsys, "translate", "-m", translator[0]) == (0, "", "")


def test_words_that_nobody_knows_are_no_error(translator: tuple[Path, Translator], capsys: Capture) -> None:
    done = run(capsys, "translate", "日本 🙂 <eos> \u0301 \t x\\n", "-m", translator[0])
    assert done.code == 0
    assert done.out.count("\n") == 1


@pytest.mark.parametrize(("content", "why"), [(b"ok\n\xff\n", "line 2"), (b"ok\nx\0\n", "line 2")])
def test_bad_lines_are_named(content: bytes, why: str, translator: tuple[Path, Translator], capsys: Capture) -> None:
    assert f"stdin, {why}" in refusal(run(capsys, "translate", "-m", translator[0], stdin=content))


def test_half_a_character_is_refused(translator: tuple[Path, Translator], capsys: Capture) -> None:
    assert "surrogate" in refusal(run(capsys, "translate", "caf\udce9", "-m", translator[0]))


@pytest.mark.parametrize("make", ["nothing", "empty folder", "file"])
def test_a_missing_model_is_named(make: str, tmp_path: Path, capsys: Capture) -> None:
    place = tmp_path / "nowhere"
    {"nothing": lambda: None, "empty folder": place.mkdir, "file": place.touch}[make]()
    assert "nowhere" in refusal(run(capsys, "translate", "un", "-m", place))


def spoil_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-9])


def lose_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def widen(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["config"]["hidden"] *= 2
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def rename_architecture(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["architecture"] = "perceptron"
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def spoil_config(folder: Path) -> None:
    (folder / "config.json").write_bytes(b'{"format_version": 1, \xff')


def spoil_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (spoil_weights, "model.safetensors"),
        (lose_weights, "model.safetensors"),
        (widen, "architecture"),
        (rename_architecture, "perceptron"),
        (spoil_config, "config.json"),
        (spoil_tokenizer, "tokenizer.json"),
    ],
)
def test_a_broken_model_is_refused(
    spoil, named: str, translator: tuple[Path, Translator], tmp_path: Path, capsys: Capture
) -> None:
    folder = tmp_path / "broken"
    translator[1].save_pretrained(folder)
    spoil(folder)
    assert named in refusal(run(capsys, "translate", "un", "-m", folder))


def test_a_reader_that_stops_early_gets_no_complaint(translator: tuple[Path, Translator]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "from clearhead.cli.main import main; main()", "translate", "-m", str(translator[0])],
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    with process.stdin, process.stderr:
        process.stdin.write(b"le chat\n" * 50)
        process.stdin.close()
        assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 1
