"""The frame of the command line: what it lists, what it loads, and how it leaves."""

import importlib
import inspect
import io
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
import typer

from clearhead import __version__
from clearhead.cli import main as frame
from clearhead.cli.main import VERBS, main
from clearhead.errors import DataError

HEAVY = ("torch", "numpy", "pandas", "transformers", "matplotlib", "rich")


def leave(*arguments: str) -> int:
    with pytest.raises(SystemExit) as leaving:
        main(arguments)
    return int(leaving.value.code or 0)


def in_subprocess(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60)


@pytest.fixture
def add_verb(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[..., None]], None]:
    def add(name: str, function: Callable[..., None]) -> None:
        module = types.ModuleType(f"clearhead.cli.{name}")
        setattr(module, name, function)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(VERBS, name, inspect.getdoc(function) or "")

    return add


def shout(word: str, times: int = 1) -> None:
    """Say a word, loudly."""
    sys.stdout.write(word.upper() * times)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert leave("--version") == 0
    assert capsys.readouterr().out == f"clearhead {__version__}\n"


def test_a_called_verb_gets_its_arguments(add_verb, capsys: pytest.CaptureFixture[str]) -> None:
    add_verb("shout", shout)
    assert leave("shout", "ha", "--times", "2") == 0
    assert capsys.readouterr().out == "HAHA"


def test_help_lists_verbs_without_loading_them(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(VERBS, "nowhere", "Its module does not even exist.")
    assert leave("--help") == 0
    shown = capsys.readouterr().out
    assert "nowhere  " in shown
    assert "Its module does not even exist." in shown
    with pytest.raises(ModuleNotFoundError):
        main(["nowhere"])


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_of_a_verb_is_its_own(option: str, add_verb, capsys: pytest.CaptureFixture[str]) -> None:
    add_verb("shout", shout)
    assert leave("shout", option) == 0
    shown = capsys.readouterr().out
    assert "Say a word, loudly." in shown
    assert "--times" in shown


def test_the_package_can_be_run() -> None:
    done = subprocess.run([sys.executable, "-m", "clearhead", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"clearhead {__version__}\n"


@pytest.mark.parametrize("option", ["--help", "-h", "--version"])
def test_help_and_version_load_nothing_heavy(option: str) -> None:
    done = in_subprocess(
        "import sys\n"
        "from clearhead.cli.main import main\n"
        f"try: main([{option!r}])\n"
        f"finally: print(*sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)"
    )
    assert done.returncode == 0
    assert done.stdout
    assert done.stderr.strip() == ""


def test_what_is_heavy_would_be_seen() -> None:
    done = in_subprocess(f"import sys, numpy\nprint(*sorted(set({HEAVY!r}) & set(sys.modules)))")
    assert done.stdout.split() == ["numpy"]


def test_a_typo_names_the_nearest_verb(add_verb, capsys: pytest.CaptureFixture[str]) -> None:
    add_verb("shout", shout)
    assert leave("shuot") == 2
    said = capsys.readouterr()
    assert "'shuot'" in said.err
    assert "'shout'" in said.err
    assert said.out == ""


@pytest.mark.parametrize("arguments", [(), ("shout",), ("shout", "ha", "--times", "many"), ("--nonsense",)])
def test_wrong_usage_leaves_with_2(add_verb, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    add_verb("shout", shout)
    assert leave(*arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "Usage: clearhead" in said.err


def test_a_refusal_is_one_sentence_and_leaves_with_1(add_verb, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse() -> None:
        raise DataError("pairs.tsv, line 3: one tab expected, found 2")

    add_verb("refuse", refuse)
    assert leave("refuse") == 1
    said = capsys.readouterr()
    assert said.err == "clearhead: pairs.tsv, line 3: one tab expected, found 2\n"
    assert said.out == ""


def test_a_missing_file_is_one_sentence_too(add_verb, tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    def read() -> None:
        (tmp_path / "missing").read_text()

    add_verb("read", read)
    assert leave("read") == 1
    assert capsys.readouterr().err == f"clearhead: No such file or directory: {tmp_path / 'missing'}\n"


def test_a_terminal_without_a_character_is_one_sentence(
    add_verb, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add_verb("point", lambda: typer.echo("→"))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="cp1252"))
    assert leave("point") == 1
    said = capsys.readouterr().err
    assert said == "clearhead: stdout is in cp1252, which has no '→': set PYTHONIOENCODING=utf-8\n"


def test_a_bug_keeps_its_traceback(add_verb) -> None:
    def stumble() -> None:
        raise ZeroDivisionError("ours")

    add_verb("stumble", stumble)
    with pytest.raises(ZeroDivisionError, match="ours"):
        main(["stumble"])


def test_an_interruption_leaves_with_130(add_verb, capsys: pytest.CaptureFixture[str]) -> None:
    def wait() -> None:
        raise KeyboardInterrupt

    add_verb("wait", wait)
    assert leave("wait") == frame.INTERRUPTED == 130
    assert "Traceback" not in capsys.readouterr().err


def talking(lines: int, stdout: IO[bytes] | int) -> "subprocess.Popen[bytes]":
    """A verb that says so many lines as soon as its stdin is closed."""
    program = (
        "import sys, types\n"
        "from clearhead.cli.main import VERBS, main\n"
        "module = types.ModuleType('clearhead.cli.talk')\n"
        f"module.talk = lambda: sys.stdout.write('word\\n' * {lines})\n"
        "sys.modules[module.__name__] = module\n"
        "VERBS['talk'] = 'Talk.'\n"
        "sys.stdin.read()\n"
        "main(['talk'])\n"
    )
    # Buffered, as it is by default: then the first failing write is the last flush.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_reader_that_stops_early_gets_no_complaint(lines: int) -> None:
    process = talking(lines, subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    process.stdin.close()
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_full_disk_is_one_sentence(lines: int) -> None:
    with Path("/dev/full").open("wb") as full:
        process = talking(lines, full)
    _, said = process.communicate(timeout=60)
    assert said.decode() == (
        "clearhead: stdout could not be written because the disk is full: make room, or write elsewhere\n"
    )
    assert process.returncode == 1


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_a_listed_verb_exists_and_says_what_is_listed(verb: str) -> None:
    function = getattr(importlib.import_module(f"clearhead.cli.{verb}"), verb)
    assert (inspect.getdoc(function) or "").splitlines()[0] == VERBS[verb]
    assert len(VERBS[verb]) <= 66, "more would be cut short in a terminal of 80 columns"


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_help_of_each_verb_loads_no_torch(verb: str) -> None:
    done = in_subprocess(
        "import sys\n"
        "from clearhead.cli.main import main\n"
        f"try: main([{verb!r}, '--help'])\n"
        "finally: print('torch' in sys.modules, file=sys.stderr)"
    )
    assert done.returncode == 0
    assert done.stderr.strip() == "False"
