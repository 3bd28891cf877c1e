"""OpenAI's addresses: completions, chat, embeddings, models."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

import numpy as np
from fastapi import APIRouter, Depends, Request
from numpy.typing import NDArray
from pydantic import BaseModel
from starlette.responses import Response, StreamingResponse

from clearhead.errors import ClearheadError
from clearhead.serve.context import Context, refusals
from clearhead.serve.encoders import ServedEncoder
from clearhead.serve.forms import ChatForm, CompletionForm, Form
from clearhead.serve.guards import RefusedError, error_body
from clearhead.serve.models import Served
from clearhead.serve.schemas import (
    ChatAnswer,
    ChatRequest,
    CompletionAnswer,
    CompletionRequest,
    Embedding,
    EmbeddingAnswer,
    EmbeddingRequest,
    ModelCard,
    ModelList,
    Sampling,
    Usage,
)
from clearhead.serve.translators import ServedTranslator
from clearhead.serve.waiting import Outbox, finish
from clearhead.serve.writers import ServedWriter, Tell, Written

__all__ = ["openai_routes"]

DONE = "data: [DONE]\n\n"
EVENTS: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}}

Vector = NDArray[np.float32]


def openai_routes(context: Context) -> APIRouter:
    """The addresses below /v1, for whoever has a key."""
    routes = APIRouter(prefix="/v1", dependencies=[Depends(context.keys.check_header)], responses=refusals())
    models, limits = context.models, context.limits

    @routes.post("/completions", response_model=CompletionAnswer, responses=EVENTS)
    async def completions(request: Request, asked: CompletionRequest) -> Response:
        """Go on with a text, or with each of several."""
        writer = models.pick(asked.model, ServedWriter)
        prompts = [asked.prompt] if isinstance(asked.prompt, str) else asked.prompt
        limits.check_texts(prompts)
        limits.check("n", asked.n, "answers")
        if asked.echo and asked.logprobs is not None:
            raise RefusedError(400, "log-probabilities of the prompt are not told: leave out echo or logprobs", "echo")
        rows = writer.read(prompts)
        form = CompletionForm(f"cmpl-{token_hex(12)}", asked, [prompt if asked.echo else "" for prompt in prompts])
        return await _answer(
            _Asked(request, writer, rows, asked.max_tokens, asked.logprobs or 0), form, limits.deadline
        )

    @routes.post("/chat/completions", response_model=ChatAnswer, responses=EVENTS)
    async def chat(request: Request, asked: ChatRequest) -> Response:
        """Answer to a talk; where the model has a template for talks."""
        writer = models.pick(asked.model, ServedWriter)
        limits.check_texts([message.text for message in asked.messages])
        limits.check("n", asked.n, "answers")
        row = writer.read_talk([{"role": message.role, "content": message.text} for message in asked.messages])
        longest = asked.max_completion_tokens or asked.max_tokens or min(limits.tokens, max(1, writer.room(row)))
        form = ChatForm(f"chatcmpl-{token_hex(12)}", asked)
        return await _answer(_Asked(request, writer, [row], longest, asked.top_logprobs or 0), form, limits.deadline)

    @routes.post("/embeddings", response_model=EmbeddingAnswer)
    async def embeddings(request: Request, asked: EmbeddingRequest) -> EmbeddingAnswer:
        """The vectors of texts."""
        encoder = models.pick(asked.model, ServedEncoder)
        texts = [asked.input] if isinstance(asked.input, str) else asked.input
        limits.check_texts(texts)
        if asked.dimensions not in (None, encoder.width):
            raise RefusedError(400, f"the vectors of {encoder.name} have {encoder.width} numbers", "wrong_dimensions")
        vectors = await finish(request, encoder.encode(texts), limits.deadline)
        tokens = encoder.count(texts)
        written = _numbers if asked.encoding_format == "float" else _base64
        data = [Embedding(index=number, embedding=written(vector)) for number, vector in enumerate(vectors)]
        return EmbeddingAnswer(model=asked.model, data=data, usage=Usage(prompt_tokens=tokens, total_tokens=tokens))

    @routes.get("/models", response_model=ModelList)
    async def all_models() -> ModelList:
        """The models that are here."""
        return ModelList(data=[_card(one, models.created) for one in models])

    @routes.get("/models/{model}", response_model=ModelCard)
    async def one_model(model: str) -> ModelCard:
        """One of them."""
        found = models.by_name.get(model)
        if found is None:
            raise RefusedError(404, f"there is no model {model!r:.60} here", "model_not_found")
        return _card(found, models.created)

    return routes


@dataclass(frozen=True)
class _Asked:
    """What is asked of a language model."""

    request: Request
    writer: ServedWriter
    rows: Sequence[list[int]]
    longest: int
    rivals: int

    def begin(self, asked: Sampling, tell: Tell | None = None) -> Awaitable[list[Written]]:
        return self.writer.write(self.rows, asked.options(self.longest), rivals=self.rivals, tell=tell)

    def usage(self, written: Sequence[Written]) -> Usage:
        read, wrote = sum(map(len, self.rows)), sum(one.count for one in written)
        return Usage(prompt_tokens=read, completion_tokens=wrote, total_tokens=read + wrote)


async def _answer(work: _Asked, form: Form, deadline: float) -> Response:
    asked = form.asked
    if asked.stream:
        outbox = Outbox()
        begun = asyncio.ensure_future(work.begin(asked, outbox.tell))
        return StreamingResponse(_events(work, form, begun, outbox, deadline), media_type="text/event-stream")
    written = await finish(work.request, work.begin(asked), deadline)
    return _json(form.whole(written, work.usage(written)))


async def _events(
    work: _Asked, form: Form, begun: "asyncio.Future[list[Written]]", outbox: Outbox, deadline: float
) -> AsyncIterator[str]:
    """The answer as events, as it is written; a failure is an event, too."""
    sent = [0] * len(work.rows) * form.asked.n
    try:
        for event in form.first(len(sent)):
            yield _event(event)
        async for number, new in outbox.until(begun, deadline):
            sent[number] += len(new.text)
            yield _event(form.piece(number, new))
        written = begun.result()
        for number, one in enumerate(written):
            yield _event(form.last(number, one.text[sent[number] :], ended=one.ended))
        if form.asked.stream_options is not None and form.asked.stream_options.include_usage:
            yield _event(form.usage(work.usage(written)))
        yield DONE
    except ClearheadError as error:
        status, code = (error.status, error.code) if isinstance(error, RefusedError) else (400, "invalid_value")
        yield f"data: {json.dumps(error_body(status, str(error), code))}\n\n"
    finally:
        begun.cancel()


def _card(one: Served, created: int) -> ModelCard:
    languages = list(one.languages) if isinstance(one, ServedTranslator) else []
    return ModelCard(id=one.name, created=created, task=one.TASK, languages=languages)


def _numbers(vector: Vector) -> list[float]:
    numbers: list[float] = vector.tolist()
    return numbers


def _base64(vector: Vector) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")


def _json(answer: BaseModel) -> Response:
    return Response(answer.model_dump_json(exclude_unset=True), media_type="application/json")


def _event(answer: BaseModel) -> str:
    return f"data: {answer.model_dump_json(exclude_unset=True)}\n\n"
