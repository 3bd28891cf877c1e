"""The explorer's page with a recording in it: one file that opens from disk, and what a notebook shows."""

import base64
from collections.abc import Iterator
from html import escape
from typing import Any, final

from torch import Tensor

from clearhead.draw.page_file import page_file
from clearhead.errors import ConfigError
from clearhead.nn.attention import MultiHeadAttention
from clearhead.tasks.contributions import contributions
from clearhead.tasks.inspecting import Inspection
from clearhead.tasks.overview import EMBEDS, attentions_of, overview, stacks, sublayers
from clearhead.tasks.pictured_positions import positions_of
from clearhead.tasks.stepwise import Asking, step_by_step
from clearhead.tasks.viewing import View

__all__ = ["Explorer", "page_of", "recording_of"]

Json = dict[str, Any]
LIMIT = 48 << 20  # bytes of tensors in one page; in it they take a third more
POSITIONS, SHARES, SIDE, TOP = 64, 64, 32, 10
WORK = 3e11  # operations that all shares together may cost: each position's take a pass
STEPS = ("q", "k", "v", "scores", "scaled", "bias", "masked", "heads", "output")


def page_of(view: View, *, name: str = "", limit: int = LIMIT) -> str:
    """One HTML text that shows what the model does with this view's text, and asks nobody for anything.

    limit   bytes of tensors that are put in; where more would be wanted, weights come first, then the other steps of
            attention, then the stream, and the page says what it lacks
    """
    return page_file(recording_of(view, name=name, limit=limit))


def recording_of(view: View, *, name: str = "", limit: int = LIMIT) -> Json:
    """All that the explorer's server would answer about this view, as one value."""
    viewer, inspection = view.viewer, Inspection(view)
    count = min(POSITIONS, max(len(side.ids) for side in view.sides.values()))
    positions = positions_of(viewer, count)
    return {
        "model": overview(viewer, name=name or viewer.parts.settings.task.replace("_", " ")),
        "run": {"id": "recording", **inspection.summary(importance=True)},
        "tensors": {tap: _packed(tensor, axes) for tap, tensor, axes in _within(_tensors(inspection), limit)},
        "thumbnails": _packed(inspection.thumbnails(SIDE), "", "uint8"),
        "decode": _decoded(view),
        "positions": {
            "about": positions.about(),
            "tensor": None if positions.tensor is None else _packed(positions.tensor, positions.axes),
        },
        "contributions": contributions(inspection),
        **_said(inspection),
    }


def _said(inspection: Inspection) -> Json:
    """What only a model with words can tell: each layer's guess, and the shares of what is said."""
    try:
        guesses = inspection.lens(TOP)
    except ConfigError:  # an encoder without a head for words
        return {"lens": None, "shares": {}}
    view, model = inspection.view, inspection.viewer.model
    count = len(view.sides[view.side].ids)
    tokens = sum(len(side.ids) for side in view.sides.values())
    passes = int(WORK / (2 * tokens * sum(parameter.numel() for parameter in model.parameters())))
    chosen = [count - 1, *range(count - 1)][: max(1, min(passes, SHARES))]  # the page begins with the last
    return {"lens": guesses, "shares": {str(at): inspection.shares(at) for at in sorted(chosen)}}


def _decoded(view: View) -> Json | None:
    if view.viewer.mode == "encoder":
        return None
    return step_by_step(view.viewer, view.text, Asking(), off=view.off).as_json()


def _tensors(inspection: Inspection) -> Iterator[tuple[str, Tensor, str]]:
    """What a page can show, the most wanted first; read when it is its turn."""
    viewer = inspection.viewer
    places = attentions_of(viewer)
    names = [f"{place.name}.weights" for place in places]
    names += [f"{place.name}.{tap}" for place in places for tap in STEPS]
    names += [f"{EMBEDS[side]}.{tap}" for _, _, side in stacks(viewer) for tap in ("tokens", "placed", "sum")]
    for layer in sublayers(viewer):
        for one in layer:
            names += [f"{one.residual}.branch", f"{one.residual}.sum"]
            names += [] if isinstance(one.module, MultiHeadAttention) else [f"{one.name}.hidden"]
    for name in names:
        shown = inspection.tensor(name)
        if shown is not None:
            yield name, *shown


def _within(tensors: Iterator[tuple[str, Tensor, str]], limit: int) -> Iterator[tuple[str, Tensor, str]]:
    """The first of them that fit together."""
    for name, tensor, axes in tensors:
        limit -= tensor.nbytes
        if limit < 0:
            return
        yield name, tensor, axes


def _packed(tensor: Tensor, axes: str, dtype: str = "float32") -> Json:
    kind = {"float32": "<f4", "uint8": "|u1"}[dtype]
    data = tensor.contiguous().numpy().astype(kind, copy=False).tobytes()
    return {"shape": list(tensor.shape), "axes": axes, "dtype": dtype, "data": base64.b64encode(data).decode()}


@final
class Explorer:
    """A view that shows itself in a notebook: the page, in a frame of its own.

    Explorer(Viewer(load_model("runs/demo")).view("je suis étudiant"))
    """

    def __init__(self, view: View, *, name: str = "", height: int = 820) -> None:
        self.view, self.name, self.height = view, name, height

    def _repr_html_(self) -> str:
        page = escape(page_of(self.view, name=self.name))
        allowed = "allow-scripts allow-downloads allow-same-origin"
        return (
            f'<iframe srcdoc="{page}" sandbox="{allowed}" title="clearhead explorer" '
            f'style="width: 100%; height: {self.height}px; border: 0"></iframe>'
        )
