"""A server of tiny models that have learned nothing, in this process; and a real one in a thread."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from socket import SO_SNDBUF, SOL_SOCKET
from typing import Any, TypeVar

import httpx
import pytest

pytest.importorskip("fastapi", reason="the server needs fastapi")
pytest.importorskip("uvicorn", reason="the server needs uvicorn")

from clearhead.serve.app import create_app
from clearhead.serve.connections import Patience
from clearhead.serve.context import Context
from clearhead.serve.guards import Rules
from clearhead.serve.keys import Keys
from clearhead.serve.limits import Limits
from clearhead.serve.models import Models, served
from clearhead.serve.run import bind, make_server
from clearhead.serve.work import Budget
from clearhead.tasks.language_model import LanguageModel
from clearhead.tasks.masked_model import MaskedModel
from clearhead.tasks.sentence_encoder import SentenceEncoder
from clearhead.tasks.table_estimators import TableClassifier, TableRegressor
from clearhead.tasks.translator import Translator
from tests.unit.small_tables import classifier, frame, regressor
from tests.unit.tiny_tasks import ENCODER, random_translator, random_writer, tiny_recipe

__all__ = ["Gate", "House", "Tiny", "code", "house", "listening", "tiny", "within"]

T = TypeVar("T")
TEMPLATE = "{% for m in messages %}{{ m.content }}\n{% endfor %}"


@dataclass(frozen=True)
class Tiny:
    """The models as they are without a server: what they say is right."""

    translator: Translator
    writer: LanguageModel
    encoder: SentenceEncoder
    classes: TableClassifier
    numbers: TableRegressor


def tiny() -> Tiny:
    translator, writer = random_translator(), random_writer(length=64)
    parts = translator.parts
    recipe = tiny_recipe("masked_model", ENCODER, train={"steps": 1})
    encoder = SentenceEncoder(MaskedModel.fit(["a b c d"] * 4, recipe=recipe).parts)
    rows, target = frame(48)
    rows.loc[0, "b"] = None
    return Tiny(
        Translator(replace(parts, settings=replace(parts.settings, languages=("fr", "en")))),
        LanguageModel(replace(writer.parts, chat=TEMPLATE)),
        encoder,
        classifier(epochs=1).fit(rows, target),
        regressor(epochs=1).fit(rows, rows["a"].to_numpy()),
    )


@dataclass
class House:
    """An app and what it is made of."""

    app: Any
    models: Models
    context: Context

    def call(self, ask: Callable[[httpx.AsyncClient], Awaitable[T]]) -> T:
        """What an HTTP client gets, without a network."""

        async def run() -> T:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await ask(client)

        return asyncio.run(run())

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.call(lambda client: client.get(path, **more))

    def post(self, path: str, body: Any = None, **more: Any) -> httpx.Response:
        given = more if body is None else {"json": body, **more}
        return self.call(lambda client: client.post(path, **given))


@contextmanager
def house(
    of: Tiny,
    *,
    budget: Budget | None = None,
    limits: Limits | None = None,
    keys: tuple[str, ...] = (),
    rules: Rules | None = None,
    closing: Callable[[], bool] = lambda: False,
) -> Iterator[House]:
    budget, limits, rules = budget or Budget(), limits or Limits(), rules or Rules()
    each = {"demo": of.translator, "gpt": of.writer, "bert": of.encoder, "classes": of.classes, "numbers": of.numbers}
    models = Models([served(name, task, budget, limits) for name, task in each.items()])
    context = Context(models, limits, Keys(keys))
    try:
        yield House(create_app(context, rules, closing), models, context)
    finally:
        models.close()


@contextmanager
def listening(of: Tiny, *, patience: Patience | None = None, **more: Any) -> Iterator[tuple[str, House, Any]]:
    """A real server at a free port: its address, what it is made of, and itself."""
    server: Any = None
    with house(of, closing=lambda: server.should_exit, **more) as made, bind("127.0.0.1", 0) as socket:
        # Small buffers of the system, so that what is not read is noticed soon.
        socket.setsockopt(SOL_SOCKET, SO_SNDBUF, 4096)
        server = make_server(lambda closing: made.app, patience or Patience())
        thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]})
        thread.start()
        try:
            within(lambda: server.started)
            yield f"http://127.0.0.1:{socket.getsockname()[1]}", made, server
        finally:
            server.should_exit = True
            thread.join()


def within(happens: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until something happens; that it does is the claim, not how long it takes."""
    again = threading.Event()
    for _ in range(int(seconds * 200)):
        if happens():
            return
        again.wait(0.005)
    raise AssertionError("it never happened")


@dataclass
class Gate:
    """A model whose steps wait until they are let through; `rows` notes how many rows each had."""

    inner: Any
    open: threading.Event = field(default_factory=threading.Event)
    arrived: threading.Event = field(default_factory=threading.Event)
    rows: list[int] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def step(self, token_BT: Any, state: Any, **more: Any) -> Any:
        self.arrived.set()
        assert self.open.wait(60)
        self.rows.append(len(token_BT))
        return self.inner.step(token_BT, state, **more)


def code(answer: httpx.Response, status: int) -> str:
    """The code of a refusal with this status."""
    assert answer.status_code == status, answer.text
    return str(answer.json()["error"]["code"])
