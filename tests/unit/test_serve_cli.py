"""`clearhead serve` as a process: what it says, what it serves, how it ends."""

import errno
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.unit.command_line import refusal, run
from tests.unit.tiny_tasks import random_translator

pytest.importorskip("fastapi", reason="the server needs fastapi")
PROGRAM = "from clearhead.cli.main import main; main()"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    random_translator().save_pretrained(tmp_path / "letters")
    return tmp_path / "letters"


def test_from_the_first_line_to_the_signal(model: Path) -> None:
    """At an address that others reach it warns in words; SIGTERM ends it."""
    command = [sys.executable, "-W", "error", "-c", PROGRAM, "serve", "-m", str(model), "-m", f"other={model}"]
    options = ["--host", "0.0.0.0", "--port", "0", "--threads", "1", "--host-name", "box.example"]
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True, env={**os.environ}) as process:
        assert process.stderr is not None
        try:
            warning, line = process.stderr.readline(), process.stderr.readline()
            assert "can be reached from other machines" in warning
            assert "there are no API keys" in warning
            assert line.startswith("letters, other at http://0.0.0.0:")
            port = line.split(":")[2].split(";")[0]
            body = {"q": "a b c", "model": "other"}
            answer = httpx.post(f"http://127.0.0.1:{port}/translate", json=body, timeout=60)
            assert answer.json() == {"translatedText": random_translator().translate("a b c")}
            named = httpx.get(f"http://127.0.0.1:{port}/health", headers={"host": "box.example"})
            assert named.status_code == 200
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM
        assert process.stderr.read() == ""


def test_what_cannot_be_served_is_said_in_a_sentence(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twice = run(capsys, "serve", "-m", model, "-m", model, "--port", "0")
    assert "two models are called 'letters'" in refusal(twice)
    assert "no model directory" in refusal(run(capsys, "serve", "-m", tmp_path / "none", "--port", "0"))
    (tmp_path / "keys").write_text("short")
    keys = run(capsys, "serve", "-m", model, "--port", "0", "--api-keys", tmp_path / "keys")
    assert "shorter than 8 characters" in refusal(keys)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refusal(run(capsys, "serve", "-m", model, "--port", str(port)))
    assert f"nothing can listen at 127.0.0.1, port {port}: it is taken by another program" in said
    nowhere = refusal(run(capsys, "serve", "-m", model, "--host", "203.0.113.7"))
    assert nowhere == f"nothing can listen at 203.0.113.7, port 8000: {os.strerror(errno.EADDRNOTAVAIL)}"
