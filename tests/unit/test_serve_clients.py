"""Real clients and real connections: a server at a free port of this machine."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

from clearhead.serve.connections import Patience
from clearhead.serve.guards import Rules, host_names
from clearhead.serve.schemas import ChatRequest, CompletionRequest
from clearhead.serve.work import Budget
from tests.unit.serving import Gate, House, Tiny, house, listening, within

# Who answers at which address.
NAMES = {
    "/v1/completions": "gpt",
    "/v1/chat/completions": "gpt",
    "/v1/embeddings": "bert",
    "/v1/models/{model}": "gpt",
    "/translate": "demo",
}
Address = tuple[str, House, Any]


@pytest.fixture(scope="module")
def server(models: Tiny) -> Iterator[Address]:
    with listening(models, keys=("a-secret-key",)) as found:
        yield found


@pytest.fixture(scope="module")
def client(server: Address) -> Iterator[Any]:
    openai = pytest.importorskip("openai", reason="OpenAI's client is not installed")
    with openai.OpenAI(base_url=f"{server[0]}/v1", api_key="a-secret-key", max_retries=0) as client:
        yield client


def test_openai_completes(models: Tiny, client: Any) -> None:
    answer = client.completions.create(model="gpt", prompt="the cat", max_tokens=12, temperature=0.9, seed=2)
    assert answer.choices[0].text == models.writer.generate("the cat", longest=12, temperature=0.9, seed=2)
    assert answer.usage.completion_tokens == 12


def test_openai_may_send_null_where_it_asks_for_nothing(client: Any) -> None:
    """What is Optional in the types of their client is sent as null where it is None."""
    from openai.types import completion_create_params as of_texts
    from openai.types.chat import completion_create_params as of_talks

    talk = [{"role": "user", "content": "the cat"}]
    for create, theirs, ours, given in (
        (client.completions.create, of_texts, CompletionRequest, {"prompt": "the cat"}),
        (client.chat.completions.create, of_talks, ChatRequest, {"messages": talk}),
    ):
        kinds = theirs.CompletionCreateParamsBase.__annotations__
        nulls = {name: None for name in ours.model_fields if "Optional" in str(kinds.get(name))}
        assert {"n", "max_tokens", "logprobs"} <= nulls.keys()
        found, usual = create(model="gpt", **given, **nulls, stream=None), create(model="gpt", **given)
        assert found.choices == usual.choices


def test_openai_streams(models: Tiny, client: Any) -> None:
    pieces = [
        event.choices[0].text
        for event in client.completions.create(model="gpt", prompt="the cat", max_tokens=12, stream=True)
    ]
    assert "".join(pieces) == models.writer.generate("the cat", longest=12)
    assert len(pieces) > 1


def test_openai_chats(models: Tiny, client: Any) -> None:
    talk: Any = [{"role": "user", "content": "the cat"}]
    answer = client.chat.completions.create(model="gpt", messages=talk, max_tokens=12)
    assert answer.choices[0].message.content == models.writer.chat("the cat", longest=12)
    pieces = client.chat.completions.create(model="gpt", messages=talk, max_tokens=12, stream=True)
    told = "".join(event.choices[0].delta.content or "" for event in pieces)
    assert told == "".join(models.writer.stream_chat("the cat", longest=12))


def test_openai_embeds(models: Tiny, client: Any) -> None:
    answer = client.embeddings.create(model="bert", input=["a b", "c"])
    np.testing.assert_allclose([one.embedding for one in answer.data], models.encoder.encode(["a b", "c"]), atol=1e-5)


def test_openai_is_refused_in_its_own_words(client: Any) -> None:
    import openai

    assert {model.id for model in client.models.list()} >= {"gpt", "demo"}
    with pytest.raises(openai.NotFoundError, match="no model 'nobody'"):
        client.completions.create(model="nobody", prompt="a")
    with pytest.raises(openai.AuthenticationError, match="API key"):
        client.with_options(api_key="wrong").models.list()


def test_libretranslatepy_translates(models: Tiny, server: Address) -> None:
    library = pytest.importorskip("libretranslatepy", reason="LibreTranslate's client is not installed")
    client = library.LibreTranslateAPI(server[0], api_key="a-secret-key")
    assert client.translate("a b c", "fr", "en") == models.translator.translate("a b c")
    assert client.languages() == [{"code": "fr", "name": "French", "targets": ["en"]}]


def connect(address: str) -> socket.socket:
    """A connection that takes little before it is read."""
    host, _, port = address.removeprefix("http://").partition(":")
    connection = socket.socket()
    connection.settimeout(60)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    try:
        connection.connect((host, int(port)))
    except ConnectionError:
        connection.close()
        raise
    return connection


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side has ended it; waits until it does."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("said", ["", "GET / HTTP/1.1\r\nHost: loc", "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_a_connection_without_a_request_is_closed(models: Tiny, said: str) -> None:
    with listening(models, patience=Patience(silent=0.05)) as (address, _, _), connect(address) as silent:
        silent.sendall(said.encode())
        while not is_closed(silent):
            pass
        assert httpx.get(f"{address}/health").status_code == 200


def test_silent_connections_make_room(models: Tiny) -> None:
    """More of them than there is room for: those who speak are heard, and the silent ones go."""
    with listening(models, patience=Patience(silent=1000, most=20)) as (address, _, server):
        silent = [connect(address) for _ in range(100)]
        assert httpx.get(f"{address}/health").status_code == 200
        within(lambda: len(server.server_state.connections) <= 20)
        assert sum(map(is_closed, silent[:70])) == 70
        for one in silent:
            one.close()


def test_a_client_that_does_not_read_is_cut_and_harms_nobody(models: Tiny) -> None:
    """Its answers pile up until no buffer takes more, and the server cuts the line; others are answered meanwhile."""
    with (
        listening(models, patience=Patience(silent=1000, unread=0.2)) as (address, _, server),
        connect(address) as deaf,
    ):
        deaf.setblocking(False)
        request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
        unsent, asked = b"", 0

        def cut() -> bool:
            nonlocal unsent, asked
            try:
                for _ in range(100):
                    unsent = unsent or request
                    unsent = unsent[deaf.send(unsent) :]
                    asked += 1
            except BlockingIOError:
                pass
            except ConnectionError:
                return True
            assert httpx.get(f"{address}/languages").status_code == 200
            return not server.server_state.connections

        within(cut)
        assert asked > 100
        assert httpx.post(f"{address}/translate", json={"q": "a", "model": "demo"}).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_work_stops_when_the_client_leaves(models: Tiny, stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(models) as (address, made, _):
        engine = made.models.by_name["gpt"].engine
        engine._running.model = gate = Gate(models.writer.model)
        accepted, write = list[Any](), engine.write
        monkeypatch.setattr(engine, "write", lambda lines: accepted.append(write(lines)) or accepted[0])
        asked = httpx.Client(base_url=address).build_request(
            "POST", "/v1/completions", json={"model": "gpt", "prompt": "the", "max_tokens": 60, "stream": stream}
        )
        head = "".join(f"{name}: {value}\r\n" for name, value in asked.headers.items())
        with connect(address) as leaving:
            leaving.sendall(f"POST /v1/completions HTTP/1.1\r\n{head}\r\n".encode() + asked.content)
            assert gate.arrived.wait(60)
        within(lambda: accepted[0].cancelled())
        gate.open.set()
        within(lambda: engine.running == engine.waiting == 0)
        assert len(gate.rows) < 5


def test_a_full_server_says_so_at_once_and_recovers(models: Tiny) -> None:
    with listening(models, budget=Budget(rows=1, waiting=2)) as (address, made, _), ThreadPoolExecutor(9) as pool:
        engine = made.models.by_name["gpt"].engine
        engine._running.model = gate = Gate(models.writer.model)
        ask: Callable[[int], httpx.Response] = lambda number: httpx.post(  # noqa: E731
            f"{address}/v1/completions", json={"model": "gpt", "prompt": "the", "max_tokens": 5}, timeout=60
        )
        accepted = [pool.submit(ask, 0)]
        assert gate.arrived.wait(60)
        accepted += [pool.submit(ask, number) for number in (1, 2)]
        within(lambda: engine.waiting == 2)
        refused = [ask(number) for number in range(3)]
        assert {answer.status_code for answer in refused} == {429}
        assert {answer.headers["retry-after"] for answer in refused} == {"1"}
        gate.open.set()
        expected = models.writer.generate("the", longest=5)
        assert [future.result().json()["choices"][0]["text"] for future in accepted] == [expected] * 3
        assert ask(0).status_code == 200


def test_what_was_accepted_is_answered_before_the_end(models: Tiny) -> None:
    with listening(models) as (address, made, server), ThreadPoolExecutor(9) as pool:
        engine = made.models.by_name["gpt"].engine
        engine._running.model = gate = Gate(models.writer.model)
        body = {"model": "gpt", "prompt": "the", "max_tokens": 5}
        plain = [pool.submit(httpx.post, f"{address}/v1/completions", json=body, timeout=60)]
        assert gate.arrived.wait(60)
        plain += [pool.submit(httpx.post, f"{address}/v1/completions", json=body, timeout=60) for _ in range(3)]
        streamed = pool.submit(httpx.post, f"{address}/v1/completions", json={**body, "stream": True}, timeout=60)
        within(lambda: engine.waiting == 4)
        server.should_exit = True
        within(lambda: not is_accepting(address))
        gate.open.set()
        expected = models.writer.generate("the", longest=5)
        assert [one.result().json()["choices"][0]["text"] for one in plain] == [expected] * 4
        assert streamed.result().text.endswith("data: [DONE]\n\n")


def is_accepting(address: str) -> bool:
    try:
        connect(address).close()
    except ConnectionError:
        return False
    return True


def test_no_request_that_the_schema_allows_breaks_the_server(models: Tiny) -> None:
    """schemathesis makes requests from our own schema: nothing but what the schema promises comes back."""
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    from hypothesis import HealthCheck, given, settings
    from hypothesis.errors import Unsatisfiable
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    wanted = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    ]
    statuses: set[tuple[str, int]] = set()
    with house(models, rules=Rules(hosts=host_names("testserver"))) as made:
        schema = schemathesis.openapi.from_asgi("/openapi.json", made.app)
        for found in schema.get_all_operations():
            operation = found.ok()

            def run(case: Any) -> None:
                name = NAMES.get(case.path)
                if name and isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
                    case.body["model"] = name
                if name and "model" in (case.path_parameters or {}):
                    case.path_parameters["model"] = name
                answer = case.call()
                statuses.add((case.path, answer.status_code))
                case.validate_response(answer, checks=wanted)

            for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
                try:
                    strategy = operation.as_strategy(generation_mode=mode)
                    few = settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
                    few(given(case=strategy)(run))()
                except Unsatisfiable:
                    assert mode == schemathesis.GenerationMode.NEGATIVE  # an address that takes nothing
    answered = {path for path, status in statuses if status == 200}
    assert answered >= {"/health", "/languages", "/metrics", "/v1/models/{model}"}
    assert len(answered & {*NAMES}) > 2


def test_many_clients_of_many_kinds(models: Tiny) -> None:
    """Each gets its own answer, whoever else is there."""
    texts = ["a b", "c d e", "f", "b\na c", "e e e e", "d c b a"]
    alone = models.translator.translate(texts)
    said = models.writer.generate("the", longest=9, temperature=1.0, seed=1)

    async def run(address: str) -> None:
        async with httpx.AsyncClient(base_url=address, timeout=60) as client:
            asked = [client.post("/translate", json={"q": text, "model": "demo"}) for text in texts * 5]
            body = {"model": "gpt", "prompt": "the", "max_tokens": 9, "temperature": 1.0, "seed": 1}
            others = [client.post("/v1/completions", json=body) for _ in range(10)]
            translated, completed = await asyncio.gather(asyncio.gather(*asked), asyncio.gather(*others))
        assert [one.json()["translatedText"] for one in translated] == alone * 5
        assert [one.json()["choices"][0]["text"] for one in completed] == [said] * 10

    with listening(models) as (address, _, _):
        asyncio.run(run(address))


def test_threads_end_with_the_server(models: Tiny) -> None:
    before = engine_threads()
    with listening(models):
        assert engine_threads() > before
    assert engine_threads() == before


def engine_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("engine")}
