"""Attacks: each is refused with a sentence, logged in a line without secrets, and the server lives on."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from clearhead.errors import ConfigError, DataError
from clearhead.serve.guards import Rules, guarded, host_names
from clearhead.serve.keys import VARIABLE, load_keys
from clearhead.serve.limits import Limits
from clearhead.serve.models import wanted
from clearhead.serve.run import is_loopback
from tests.unit.serving import House, Tiny, code, house

KEYS = ("first-secret-key", "second-secret-key")
ASKED = {"q": "a b", "source": "fr", "target": "en"}


@pytest.fixture(scope="module")
def server(models: Tiny) -> Iterator[House]:
    with house(models, limits=Limits(body=10_000)) as made:
        yield made


@pytest.fixture(scope="module")
def locked(models: Tiny) -> Iterator[House]:
    with house(models, keys=KEYS) as made:
        yield made


@pytest.mark.parametrize(
    ("host", "served"),
    [
        ("localhost", True), ("127.0.0.1:8000", True), ("[::1]:9", True), ("LOCALHOST", True),
        ("evil.example", False), ("127.0.0.1.evil.example", False), ("localhost:80@evil", False), ("", False),
        ("10.0.0.7", False), ("a b", False),
    ],
)  # fmt: skip
def test_only_its_own_names(server: House, host: str, served: bool) -> None:
    answer = server.get("/health", headers={"host": host})
    assert answer.status_code == 200 if served else code(answer, 421) == "wrong_host"


def test_names_of_a_server_that_others_reach() -> None:
    assert "example.org" in host_names("127.0.0.1", ["Example.org"])
    assert host_names("192.168.0.5") == {"localhost", "127.0.0.1", "[::1]", "192.168.0.5"}
    assert "*" in host_names("::")
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "box")] == [True] * 3 + [
        False
    ] * 2


@pytest.mark.parametrize(("host", "status"), [("10.1.2.3", 200), ("[fe80::1]:80", 200), ("evil.example", 421)])
def test_at_every_address_any_number_will_do(models: Tiny, host: str, status: int) -> None:
    """A page can make its own name point here, but not a number."""
    with house(models, rules=Rules(hosts=host_names("0.0.0.0"))) as made:
        assert made.get("/health", headers={"host": host}).status_code == status


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost.evil.example"])
def test_pages_of_others_may_not_call(server: House, origin: str) -> None:
    assert code(server.post("/translate", ASKED, headers={"origin": origin}), 403) == "wrong_origin"


def test_own_pages_may_call(server: House) -> None:
    answer = server.post("/translate", ASKED, headers={"origin": "http://localhost"})
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


def test_cors_where_it_was_asked_for(models: Tiny) -> None:
    page = "https://page.example"
    with house(models, rules=Rules(origins=(page,))) as made:
        assert made.get("/languages", headers={"origin": page}).headers["access-control-allow-origin"] == page
        asking = {"origin": page, "access-control-request-method": "POST"}
        before = made.call(lambda client: client.options("/translate", headers=asking))
        assert before.status_code == 200
        assert code(made.get("/languages", headers={"origin": "https://other.example"}), 403) == "wrong_origin"


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/v1/models/..%2f..%2fetc%2fpasswd",
        "/v1/models/%00",
        "/static/../../x",
        "/v1/models/%2e%2e",
    ],
)
def test_paths_lead_nowhere(server: House, path: str) -> None:
    async def raw(client: httpx.AsyncClient) -> httpx.Response:
        request = client.build_request("GET", "/")
        request.url = request.url.copy_with(raw_path=path.encode())
        return await client.send(request)

    assert code(server.call(raw), 404) in ("http_error", "model_not_found")


def test_models_are_not_found_by_path(server: House, tmp_path: Path) -> None:
    body = {"model": str(tmp_path), "prompt": "a"}
    assert code(server.post("/v1/completions", body), 404) == "model_not_found"


def test_script_is_text(server: House, models: Tiny) -> None:
    script = "<script>alert(1)</script> a"
    answer = server.post("/translate", {**ASKED, "q": script})
    assert answer.json()["translatedText"] == models.translator.translate(script)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert "<script>" not in server.get("/<script>").text


def test_a_body_that_says_it_is_too_large(server: House) -> None:
    assert code(server.post("/translate", {**ASKED, "q": "a" * 20_000}), 413) == "body_too_large"


def test_a_body_without_end_is_refused_while_it_comes(server: House) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1_000
            yield b"a" * 1_000

    async def send() -> list[Any]:
        body, answers = endless(), list[Any]()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": await anext(body), "more_body": True}

        async def keep(message: Any) -> None:
            answers.append(message)

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/translate", "query_string": b"", "headers": headers}
        await server.app(scope, receive, keep)
        return answers

    answers = asyncio.run(send())
    assert answers[0]["status"] == 413
    assert sent == 11_000


def test_a_body_that_never_comes() -> None:
    async def never_called(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError

    async def run() -> int:
        answers: list[Any] = []

        async def receive() -> Any:
            await asyncio.Event().wait()

        async def keep(message: Any) -> None:
            answers.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "query_string": b"",
            "headers": [(b"host", b"localhost")],
        }
        await guarded(never_called, Rules(patience=0.01))(scope, receive, keep)
        return int(answers[0]["status"])

    assert asyncio.run(run()) == 408


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 5_000,
        b'{"model":' * 1_000,
        b'{"q": "\xff\xfe", "source": "fr", "target": "en"}',
        b'{"q": "\\ud800", "source": "fr", "target": "en"}',
        b'{"q": ',
        b"",
        b"null",
        b'{"q": 1e999}',
    ],
)
@pytest.mark.parametrize("path", ["/translate", "/v1/completions", "/v1/embeddings", "/v1/tables/classes/predict"])
def test_bodies_that_cannot_be_read(server: House, path: str, body: bytes) -> None:
    answer = server.post(path, content=body, headers={"content-type": "application/json"})
    code(answer, 400)
    assert server.get("/health").status_code == 200


def test_half_characters_in_known_fields(server: House) -> None:
    for path, body in (
        ("/v1/completions", b'{"model": "gpt", "prompt": "\\ud800"}'),
        ("/v1/embeddings", b'{"model": "bert", "input": ["\\udfff"]}'),
        ("/v1/chat/completions", b'{"model": "gpt", "messages": [{"role": "user", "content": "\\ud800"}]}'),
    ):
        answer = server.post(path, content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 400, answer.text


@pytest.mark.parametrize("key", [None, "", "wrong", KEYS[0][:-1], KEYS[0] + "x", "Bearer", "ü"])
def test_wrong_keys(locked: House, key: str | None, caplog: pytest.LogCaptureFixture) -> None:
    headers = {} if key is None else {"authorization": f"Bearer {key}".encode()}
    with caplog.at_level(logging.WARNING, "clearhead.serve"):
        for path in ("/v1/models", "/metrics", "/v1/models/gpt"):
            assert code(locked.get(path, headers=headers), 401) == "wrong_api_key"
        body = ASKED if key is None else {**ASKED, "api_key": key}
        assert code(locked.post("/translate", body, headers=headers), 401) == "wrong_api_key"
        locked.get(f"/v1/models?api_key={KEYS[1]}")
    assert len(caplog.records) == 5
    assert all(record.getMessage().startswith("401 refused") for record in caplog.records)
    assert not any(secret in caplog.text for secret in (*KEYS, "wrong_", "authorization"))


@pytest.mark.parametrize("key", KEYS)
def test_right_keys(locked: House, key: str) -> None:
    headers = {"authorization": f"Bearer {key}"}
    assert locked.get("/v1/models", headers=headers).status_code == 200
    assert locked.post("/translate", {**ASKED, "api_key": key}).status_code == 200
    assert locked.post("/translate", ASKED, headers=headers).status_code == 200
    for path in ("/health", "/ready", "/languages", "/openapi.json"):
        assert locked.get(path).status_code == 200


def test_keys_of_files_and_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# ours\n{KEYS[0]}\n\n")
    monkeypatch.setenv(VARIABLE, f"{KEYS[1]} third-secret-key")
    keys = load_keys(path)
    assert len(keys) == 3
    keys.check("third-secret-key")
    path.write_text("short\n")
    with pytest.raises(ConfigError, match="shorter than 8") as refused:
        load_keys(path)
    assert "short\n" not in str(refused.value)
    path.write_text("# none\n")
    with pytest.raises(ConfigError, match="holds no API key"):
        load_keys(path)


def test_keys_that_cannot_be_read_are_one_sentence_without_them(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(f"{KEYS[0]}\nschlüssel-{KEYS[1]}\n".encode("latin-1"))
    with pytest.raises(DataError, match=rf"^{re.escape(str(path))}, line 2: no utf-8; save .*$") as refused:
        load_keys(path)
    assert not any(secret in str(refused.value) for secret in (*KEYS, "schl"))
    for nowhere in (tmp_path, tmp_path / "none"):
        with pytest.raises(DataError, match=f"cannot be read from {re.escape(repr(str(nowhere)))}: .*; name a file"):
            load_keys(nowhere)


def test_a_line_of_the_log_stays_a_line(server: House, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "clearhead.serve"):
        server.get("/x%0a200 OK: everything is fine" + "y" * 500)
    (record,) = caplog.records
    assert "\n" not in record.getMessage()
    assert len(record.getMessage()) < 200


def test_a_server_without_any_room_does_not_even_read() -> None:
    async def never_called(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError

    async def run() -> httpx.Response:
        transport = httpx.ASGITransport(guarded(never_called, Rules(busy=lambda: True)))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.post("/translate", json=ASKED)

    answer = asyncio.run(run())
    assert code(answer, 429) == "busy"
    assert answer.headers["retry-after"] == "1"


def test_a_server_that_is_closing(models: Tiny) -> None:
    with house(models, closing=lambda: True) as made:
        answer = made.get("/ready")
        assert code(answer, 503) == "closing"
        assert answer.headers["retry-after"] == "5"


def test_a_mistake_of_ours_is_told_and_no_more(models: Tiny, caplog: pytest.LogCaptureFixture) -> None:
    with house(models) as made:
        made.models.by_name["demo"].languages = None  # type: ignore[union-attr, assignment]
        with caplog.at_level(logging.ERROR):
            answer = made.get("/languages")
    assert code(answer, 500) == "server_error"
    assert "NoneType" in caplog.text
    assert "NoneType" not in answer.text


@pytest.mark.parametrize("argument", ["a b", "x=", "=x", "/"])
def test_names_that_no_model_can_have(argument: str) -> None:
    with pytest.raises(ConfigError, match="name is made of"):
        wanted(argument)


def test_the_schema_names_every_refusal(server: House) -> None:
    schema = server.get("/openapi.json").json()
    assert {"/translate", "/v1/completions", "/v1/tables/{model}/predict"} <= set(schema["paths"])
    assert "422" not in json.dumps(schema)
    assert server.get("/docs").status_code == server.get("/redoc").status_code == 404
