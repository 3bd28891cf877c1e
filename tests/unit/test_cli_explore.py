"""`clearhead explore`: the page is served, the browser is opened at it, and what cannot be served is refused."""

import socket
import webbrowser
from pathlib import Path
from typing import Any

import pytest

from tests.unit.command_line import refusal, run
from tests.unit.tiny_tasks import random_translator

pytest.importorskip("uvicorn")
httpx = pytest.importorskip("httpx")

import clearhead.serve.run as serving  # noqa: E402


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "letters"
    random_translator().save_pretrained(folder)
    return folder


def test_the_browser_is_opened_at_a_page_that_answers(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, make = [], serving.make_server
    seen: dict[str, Any] = {}

    def keep(*given: Any) -> Any:
        made.append(make(*given))
        return made[0]

    def look(address: str) -> None:
        home = address.partition("#")[0]
        try:
            seen["page"] = httpx.get(home, timeout=60).text
            seen["model"] = httpx.get(f"{home}api/model", timeout=60).json()
            seen["other"] = httpx.get(home, headers={"host": "evil.example"}, timeout=60).status_code
        finally:
            made[0].should_exit = True

    monkeypatch.setattr(serving, "make_server", keep)
    monkeypatch.setattr(webbrowser, "open", look)
    done = run(capsys, "explore", "-m", model, "--port", "0", "--text", "a b&c", "--longest", "40")
    assert done.code == 0
    address = done.out.strip()
    assert address.startswith("http://127.0.0.1:")
    assert address.endswith("/#text=a+b%26c")
    assert seen["page"].startswith("<!doctype html>")
    assert seen["model"]["name"] == "letters"
    assert seen["model"]["longest"] == 40
    assert seen["other"] == 421


def test_a_port_that_is_taken_and_a_model_that_is_not_there_are_refused(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refusal(run(capsys, "explore", "-m", model, "--no-browser", "--port", str(port)))
    listening = f"nothing can listen at 127.0.0.1, port {port}: "
    assert said == f"{listening}it is taken by another program; choose another with --port, or 0 for any that is free"
    assert "nothing" in refusal(run(capsys, "explore", "-m", tmp_path / "nothing", "--no-browser"))
