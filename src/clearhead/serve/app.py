"""The server's app: all addresses, behind the guards."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp

from clearhead import __version__
from clearhead.serve.context import Context, refusals
from clearhead.serve.encoders import ServedTable
from clearhead.serve.figures import exposition
from clearhead.serve.guards import Rules, add_refusals, guarded
from clearhead.serve.libretranslate import libretranslate_routes
from clearhead.serve.openai import openai_routes
from clearhead.serve.schemas import PredictAnswer, PredictRequest, State
from clearhead.serve.waiting import finish

__all__ = ["create_app"]


def create_app(context: Context, rules: Rules, closing: Callable[[], bool] = lambda: False) -> ASGIApp:
    """Everything that is served, as one ASGI app; it ends its models when it is shut down.

    closing   whether the server is about to be, and nothing new is taken
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        context.models.close()

    # The usual documentation pages load scripts from elsewhere.
    app = FastAPI(title="clearhead", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    add_refusals(app)
    for routes in (_status_routes, openai_routes, _table_routes, libretranslate_routes):
        app.include_router(routes(context))
    app.openapi = lambda: _schema(app)  # type: ignore[method-assign]
    engines = [one.engine for one in context.models]
    rules = replace(
        rules, body=context.limits.body, watch=context.traffic.watch, closing=closing,
        busy=lambda: all(engine.full for engine in engines),
    )  # fmt: skip
    return guarded(app, rules)


def _status_routes(context: Context) -> APIRouter:
    routes = APIRouter()

    @routes.get("/health", response_model=State)
    async def health() -> State:
        """Alive."""
        return State(status="alive")

    @routes.get("/ready", response_model=State, responses=refusals(503))
    async def ready() -> State:
        """All models are loaded, and the server takes requests: one that is closing refuses this one, too."""
        return State(status="ready")

    @routes.get(
        "/metrics",
        response_class=PlainTextResponse,
        dependencies=[Depends(context.keys.check_header)],
        responses=refusals(401),
    )
    async def metrics() -> str:
        """What was counted, in Prometheus' text format."""
        return exposition(context.traffic, (one.engine for one in context.models))

    return routes


def _table_routes(context: Context) -> APIRouter:
    routes = APIRouter(dependencies=[Depends(context.keys.check_header)], responses=refusals())

    @routes.post("/v1/tables/{model}/predict", response_model=PredictAnswer, response_model_exclude_none=True)
    async def predict(request: Request, model: str, asked: PredictRequest) -> PredictAnswer:
        """What a table model says of rows."""
        table = context.models.pick(model, ServedTable)
        context.limits.check("texts", len(asked.rows), "rows")
        said = await finish(request, table.predict(asked.rows), context.limits.deadline)
        return PredictAnswer(
            model=model, target=table.target, predictions=said.values, probabilities=said.probabilities
        )

    return routes


def _schema(app: FastAPI) -> dict[str, Any]:
    """The schema, without the refusals that FastAPI would make by itself: ours have status 400."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
        for operations in schema["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
        for name in ("HTTPValidationError", "ValidationError"):
            schema["components"]["schemas"].pop(name, None)
        app.openapi_schema = schema
    found: Mapping[str, Any] = app.openapi_schema
    return dict(found)
