"""The commands that the README shows are run as they stand, with fewer steps and sentences to learn from."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clearhead.cli.main import main

ROOT = Path(__file__).parent.parent.parent
BLOCKS = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
LINES = [(line, shlex.split(line, comments=True)) for block in BLOCKS for line in block.splitlines() if line.strip()]
COMMANDS = [command for _, command in LINES]
SETTINGS = (
    "train.steps=2",
    "train.scored=2",
    "train.validate_every=2",
    "data.sentences=200",
    "data.held_out=5",
    "train.rows=2",
)
SMALLER = {
    "train": [word for setting in SETTINGS for word in ("--set", setting)],
    "fit": ["--epochs", "2", "--layers", "1", "--width", "8"],
}
SERVERS = ("explore", "serve")  # which answer until they are stopped: tried in tests of their own


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    shown = {command[1] for command in COMMANDS if command[0] == "make"}
    assert shown
    assert shown <= targets


def test_every_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn", reason="the README's table is one of scikit-learn's")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    shown = {command[1] for _, command in LINES if command[0] == "clearhead"}
    assert shown >= {"train", "translate", "generate", "score", "fit", "predict", "convert", "look", "prune", *SERVERS}
    for line, command in LINES:
        if command[0] in ("python", "printf"):
            subprocess.run(["bash", "-c", line], check=True, timeout=120)
        if command[0] != "clearhead" or command[1] in SERVERS:
            continue
        with pytest.raises(SystemExit) as leaving:
            main([*command[1:], *SMALLER.get(command[1], [])])
        said = capsys.readouterr()
        assert leaving.value.code == 0, said.err
        assert said.out


def test_every_request_is_answered() -> None:
    serving = pytest.importorskip("tests.unit.serving", reason="the server needs its extra")
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("there is no curl to ask with")
    asked = [command for command in COMMANDS if command[0] == "curl"]
    assert len(asked) == 3
    tiny = serving.tiny()
    with serving.listening(tiny) as (address, _, _):
        commands = [[curl, "-sS", place.replace("localhost:8000", address), *more] for _, place, *more in asked]
        done = [subprocess.run(command, capture_output=True, check=True, timeout=120) for command in commands]
    said = [json.loads(one.stdout) for one in done]
    assert said[0] == {"translatedText": tiny.translator.translate("je suis étudiant")}
    assert said[1]["choices"][0]["text"] == tiny.writer.generate("The cat", longest=20)
    assert [model["id"] for model in said[2]["data"]][:2] == ["demo", "gpt"]


def test_every_figure_it_compares_by_is_among_the_results() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\|.*\|$", text.partition("## How it compares")[2].partition("\n## ")[0], re.MULTILINE)
    figures = {figure for row in rows for figure in re.findall(r"\d+\.\d+", row)}
    results = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert len(figures) > 20
    assert not {figure for figure in figures if not re.search(rf"(?<![\d.]){re.escape(figure)}(?!\d)", results)}
