"""The explorer's live side: a page, and the numbers that it asks for, computed by the model itself.

    GET  /, static/{name}                 the page
    GET  api/model                        what the model is made of
    POST api/runs                         read a text: its tokens, the answer, each head in a few numbers
    GET  api/runs/{id}/tensors/{tap}      what passed a tap: little-endian float32, X-Shape and X-Axes say how it lies
    GET  api/runs/{id}/{thumbnails, lens, shares, contributions, cell}
    GET  api/positions, api/positions/tensor
    POST api/decode                       step by step, with rivals, forced words and the tree of a beam

The model works for one request at a time, in a thread of its own: whoever looks shares its taps.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, final

from fastapi import FastAPI, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp
from torch import Tensor

from clearhead.draw.page_file import static_files
from clearhead.serve.guards import RefusedError, Rules, add_refusals, guarded, host_names
from clearhead.serve.recordings import Recordings
from clearhead.tasks.cells import Place
from clearhead.tasks.contributions import contributions
from clearhead.tasks.inspecting import Inspection, check_length, inspect, off_of
from clearhead.tasks.overview import LONGEST, overview
from clearhead.tasks.pictured_positions import Picture, positions_of
from clearhead.tasks.stepwise import Asking, step_by_step
from clearhead.tasks.viewing import Viewer
from clearhead.tasks.walk import cell_of, tensor_of

__all__ = ["Bounds", "DecodeRequest", "RunRequest", "explorer_app"]

POLICY = (
    "default-src 'self'; style-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
BYTES = "application/octet-stream"
Text = Annotated[str, Field(max_length=20_000)]
Name = Annotated[str, Field(max_length=200)]
Heads = dict[Name, Annotated[list[int], Field(max_length=1_024)]]


@dataclass(frozen=True)
class Bounds:
    """How much the explorer holds: tokens of a text, bytes and number of recordings, bytes of a request."""

    longest: int = LONGEST
    memory: int = 1 << 29
    recordings: int = 64
    body: int = 1 << 20


class _Switched(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: Text
    off: Heads = Field(default_factory=dict, max_length=1_024)
    layers_off: list[Name] = Field(default_factory=list, max_length=1_024)


@final
class RunRequest(_Switched):
    """A text to read; an answer that the model is held to; heads and layers that are off."""

    answer: Text | None = None
    importance: bool = False


@final
class DecodeRequest(_Switched):
    """A text to decode from, and how; `forced` are the first tokens of the answer."""

    forced: list[int] = Field(default_factory=list, max_length=512)
    longest: int = Field(40, ge=1, le=512)
    temperature: float = Field(1.0, gt=0, le=1_000, allow_inf_nan=False)
    top_k: int = Field(0, ge=0, le=1_000_000)
    top_p: float = Field(1.0, ge=0, le=1, allow_inf_nan=False)
    min_p: float = Field(0.0, ge=0, le=1, allow_inf_nan=False)
    beams: int = Field(1, ge=1, le=16)


def explorer_app(
    viewer: Viewer,
    *,
    name: str,
    host: str = "127.0.0.1",
    bounds: Bounds | None = None,
    closing: Callable[[], bool] = lambda: False,
) -> ASGIApp:
    """The explorer of a model, to be served at `host`, until it is `closing`."""
    bounds = bounds or Bounds()
    explorer = _Explorer(viewer, name, bounds)
    app = FastAPI(title="clearhead explore", docs_url=None, redoc_url=None, openapi_url=None)
    answers: dict[str, Callable[..., Response]] = {
        "/": explorer.page,
        "/static/{name}": explorer.static,
        "/favicon.ico": explorer.nothing,
        "/api/model": explorer.model,
        "/api/runs/{id}/tensors/{tap}": explorer.tensor,
        "/api/runs/{id}/thumbnails": explorer.thumbnails,
        "/api/runs/{id}/lens": explorer.lens,
        "/api/runs/{id}/shares": explorer.shares,
        "/api/runs/{id}/contributions": explorer.contributions,
        "/api/runs/{id}/cell": explorer.cell,
        "/api/positions": explorer.positions,
        "/api/positions/tensor": explorer.positions_tensor,
    }
    for path, answer in answers.items():
        app.add_api_route(path, answer, methods=["GET"], response_model=None)
    app.add_api_route("/api/runs", explorer.run, methods=["POST"], response_model=None)
    app.add_api_route("/api/decode", explorer.decode, methods=["POST"], response_model=None)
    add_refusals(app)
    return guarded(app, Rules(hosts=host_names(host), body=bounds.body, policy=POLICY, closing=closing))


@final
class _Explorer:
    """Each method answers one address; FastAPI calls them in threads, so those that use the model wait for the lock."""

    def __init__(self, viewer: Viewer, name: str, bounds: Bounds) -> None:
        self.viewer, self.bounds = viewer, bounds
        self.about = overview(viewer, name=name, longest=bounds.longest)
        self.recordings = Recordings(bounds.memory, bounds.recordings)
        self.lock = threading.Lock()

    def page(self) -> Response:
        return self.static("index.html")

    def static(self, name: str) -> Response:
        found = static_files().get(name)
        if found is None:
            raise RefusedError(404, "the page has no such file", "no_file")
        media, content = found
        return Response(content, media_type=media)

    def nothing(self) -> Response:
        return Response(status_code=204)

    def model(self) -> Response:
        return JSONResponse(self.about)

    def run(self, request: RunRequest) -> Response:
        with self.lock:
            off = off_of(request.off, request.layers_off)
            longest = self.about["longest"]
            inspection = inspect(self.viewer, request.text, request.answer, off=off, longest=longest)
            summary = inspection.summary(importance=request.importance)
            return JSONResponse({"id": self.recordings.add(inspection), **summary}, 201)

    def tensor(self, id: str, tap: str, head: Annotated[int | None, Query(ge=0)] = None) -> Response:
        with self.lock:
            shown = tensor_of(self._at(id), tap)
            self.recordings.trim()
        if shown is None:
            raise RefusedError(404, f"nothing passes a tap {tap[:200]!r} of this model", "no_tap")
        if head is None:
            return _bytes(shown.tensor, shown.axes)
        if shown.axes[:1] not in {"H", "G"} or head >= len(shown.tensor):
            raise RefusedError(400, f"{tap!r} has the axes {shown.axes}, and no head {head}", "no_head")
        return _bytes(shown.tensor[head], shown.axes[1:])

    def thumbnails(self, id: str, side: Annotated[int, Query(ge=1, le=128)] = 32) -> Response:
        with self.lock:
            return _bytes(self._at(id).thumbnails(side), "", "|u1")

    def lens(self, id: str, top: Annotated[int, Query(ge=1, le=50)] = 5) -> Response:
        with self.lock:
            return JSONResponse(self._at(id).lens(top))

    def shares(
        self,
        id: str,
        position: Annotated[int, Query(ge=0)],
        word: int | None = None,
        against: int | None = None,
    ) -> Response:
        with self.lock:
            return JSONResponse(self._at(id).shares(position, word, against))

    def contributions(self, id: str) -> Response:
        with self.lock:
            found = contributions(self._at(id))
            self.recordings.trim()
            return JSONResponse(found)

    def cell(
        self,
        id: str,
        tap: Annotated[str, Query(max_length=200)],
        row: Annotated[int, Query(ge=0)],
        column: Annotated[int, Query(ge=0)],
        head: Annotated[int | None, Query(ge=0)] = None,
    ) -> Response:
        with self.lock:
            found = cell_of(self._at(id), Place(tap, head, row, column))
            self.recordings.trim()
        if found is None:
            raise RefusedError(404, f"there is no such cell of {tap!r} in this recording", "no_cell")
        return JSONResponse(found.as_json())

    def positions(self, count: Annotated[int, Query(ge=1, le=512)] = 64) -> Response:
        return JSONResponse(self._positions(count).about())

    def positions_tensor(self, count: Annotated[int, Query(ge=1, le=512)] = 64) -> Response:
        picture = self._positions(count)
        if picture.tensor is None:
            raise RefusedError(404, "nothing tells the positions of this model apart", "no_positions")
        return _bytes(picture.tensor, picture.axes)

    def decode(self, request: DecodeRequest) -> Response:
        asked = request.model_dump(exclude={"text", "off", "layers_off"})
        with self.lock:
            check_length(self.viewer, request.text, longest=self.about["longest"])
            off = off_of(request.off, request.layers_off)
            written = step_by_step(self.viewer, request.text, Asking(**asked), off=off)
        return JSONResponse(written.as_json())

    def _positions(self, count: int) -> Picture:
        with self.lock:
            return positions_of(self.viewer, count)

    def _at(self, id: str) -> Inspection:
        found = self.recordings.get(id)
        if found is None:
            raise RefusedError(404, "this recording is no longer kept: run the text again", "no_recording")
        return found


def _bytes(tensor: Tensor, axes: str, kind: str = "<f4") -> Response:
    headers: dict[str, Any] = {"X-Shape": ",".join(map(str, tensor.shape)), "X-Axes": axes}
    return Response(tensor.contiguous().numpy().astype(kind, copy=False).tobytes(), media_type=BYTES, headers=headers)
