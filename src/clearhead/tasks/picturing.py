"""Pictures of a text in a model: what a `View` sees, drawn.

    view = Viewer(load_model("runs/demo")).view("le chat dort")
    picture(view, "attention", layer=1, head=3).save("head.svg")
    picture(view, "lens")                       # shows itself in a notebook

`WHAT` has all of them by name. Layers and heads are counted from 0, as in the names of the taps.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from clearhead.draw.basics import attention_graph, query_key_value
from clearhead.draw.diagram import architecture
from clearhead.draw.figure import COLUMN, Figure, Sheet
from clearhead.draw.heads import all_heads, lines, one_square
from clearhead.draw.matrix import matrix
from clearhead.draw.minimal import minimal_attention
from clearhead.draw.steps import SixSteps, all_at_once, vector_steps
from clearhead.draw.words import number
from clearhead.errors import ConfigError
from clearhead.look.ablate import attention_at
from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.scores import Dot
from clearhead.nn.tables import pick
from clearhead.tasks.picturing_decoding import beam, decoding
from clearhead.tasks.picturing_stream import circuits, flow, lens, neurons, ov, positions, qk, rollout, shares, stream
from clearhead.tasks.spots import Asked, Spot, array, heads_of, labels_of, spot_of, spots_of, weights_of
from clearhead.tasks.viewing import View
from clearhead.tasks.word_alignment import chosen_head

__all__ = ["WHAT", "attention_shown", "picture", "steps_of"]

VECTOR_BY_VECTOR = {"column": 6, "page": 17}  # tokens up to which the six steps fit as vectors


def picture(
    view: View,
    what: str = "attention",
    *,
    layer: int | str | None = None,
    head: int | Sequence[int] | None = None,
    side: str | None = None,
    position: int | None = None,
    on: Sheet = COLUMN,
) -> Figure:
    """One of the pictures that `WHAT` names.

    layer      a number, or a name (`decoder.1.cross`, `decoder.1`, any of its taps)
    head       one, or several
    side       which attention: `encoder`, `decoder` or `cross`
    position   for pictures of one position, counted from 0 or from the end as -1; of lines, whose are drawn

    Where nothing is said, attention is that of the head that the model names for alignments, or all heads at once.
    """
    heads = () if head is None else (head,) if isinstance(head, int) else tuple(head)
    return pick(WHAT, what, "picture")(view, Asked(layer, heads, side, position, on))


def attention_shown(view: View, asked: Asked) -> tuple[NDArray[np.float64], Spot, str]:
    """One matrix of attention, where it is, and what it is called: of one head, or the mean of several."""
    named = _named_head(view) if asked.layer is None and not asked.heads and asked.side in {None, "cross"} else None
    if named is not None:
        asked = Asked(named[0], (named[1],), "cross", asked.position, asked.on)
    spot = spot_of(view, asked)
    heads = heads_of(spot, asked)
    labels_of(view, spot)
    (weights,) = weights_of(view, [spot])
    return weights[list(heads)].mean(axis=0), spot, _called(spot, heads)


def _named_head(view: View) -> tuple[int, int] | None:
    """The layer and head that the model directory names for alignments."""
    settings = view.viewer.parts.settings
    chosen = chosen_head(settings) if view.viewer.mode == "encoder-decoder" else None
    return None if chosen is None else (chosen.layer, chosen.head)


def _called(spot: Spot, heads: Sequence[int]) -> str:
    if len(heads) == 1:
        return f"{spot.name}, head {heads[0]}"
    every = "all" if len(heads) == spot.place.heads else ", ".join(map(str, heads))
    return f"{spot.name}, the mean of {every} heads" if every == "all" else f"{spot.name}, the mean of heads {every}"


def _hidden(weights_LM: NDArray[np.float64], spot: Spot) -> NDArray[np.bool_] | None:
    """What may not be read by itself: of masked attention, all that comes later."""
    if spot.place.kind != "masked":
        return None
    rows, columns = weights_LM.shape
    return np.triu(np.ones((rows, columns), dtype=bool), columns - rows + 1)


def _attention(view: View, asked: Asked) -> Figure:
    if asked.layer is None and not asked.heads and (asked.side not in {None, "cross"} or _named_head(view) is None):
        return _heads(view, asked)
    weights_LM, spot, called = attention_shown(view, asked)
    rows, columns = labels_of(view, spot)
    hidden = _hidden(weights_LM, spot)
    return matrix(weights_LM, rows=rows, columns=columns, masked=hidden, heading=called, on=asked.on)


def _lines(view: View, asked: Asked) -> Figure:
    spot = spot_of(view, asked)
    heads = heads_of(spot, asked)
    queries, keys = labels_of(view, spot)
    only = None if asked.position is None else range(len(queries))[_within(asked.position, len(queries))]
    (weights,) = weights_of(view, [spot])
    return lines(
        weights[list(heads)], queries=queries, keys=keys, heads=heads, only=only, heading=spot.name, on=asked.on
    )


def _heads(view: View, asked: Asked) -> Figure:
    spots = spots_of(view, asked.side) if asked.layer is None else [spot_of(view, asked)]
    labels_of(view, spots[0])
    each = weights_of(view, spots)
    count = max(spot.place.heads for spot in spots)
    weights_NHLM = np.full((len(spots), count, *each[0].shape[1:]), np.nan)  # where heads were pruned, nothing is
    for row, weights in zip(weights_NHLM, each, strict=True):
        row[: len(weights)] = weights
    first, last = (spots[place].name for place in (0, -1))
    heading = first if first == last else f"{first} to {last}"
    top, left = [str(head) for head in range(count)], [str(spot.layer) for spot in spots]
    return all_heads(weights_NHLM, heading=heading, top=top, left=left, on=asked.on)


def _square(view: View, asked: Asked) -> Figure:
    if view.viewer.mode != "encoder-decoder":
        raise ConfigError(f"one square shows the three attentions of an encoder–decoder, and this is a {_kind(view)}")
    sides = ("encoder", "decoder", "cross")
    if isinstance(asked.layer, str):
        asked = Asked(spot_of(view, asked).layer, asked.heads, None, asked.position, asked.on)
    spots = [spot_of(view, Asked(asked.layer, asked.heads, side)) for side in sides]
    encoder, decoder, cross = (
        weights[list(heads_of(spot, asked))].mean(axis=0)
        for spot, weights in zip(spots, weights_of(view, spots), strict=True)
    )
    if len(encoder) != encoder.shape[1] or len(decoder) != decoder.shape[1]:
        raise ConfigError("one square has no room for learned slots of memory: look at one attention at a time")
    heads = f"head {asked.heads[0]}" if len(asked.heads) == 1 else "the mean of heads"
    heading = f"layer {spots[-1].layer}, {heads}"
    tokens = (view.sides[side].tokens for side in ("source", "target"))
    return one_square(encoder, decoder, cross, **dict(zip(("source", "target"), tokens, strict=True)),
                      heading=heading, on=asked.on)  # fmt: skip


def _kind(view: View) -> str:
    return f"{view.viewer.mode} alone"


def steps_of(view: View, spot: Spot, head: int) -> tuple[NDArray[np.float64], SixSteps]:
    """What an attention is given, and every quantity of one of its heads, as they passed the taps."""
    attention = attention_at(view.viewer.model, spot.name)
    given: list[NDArray[np.float64]] = []
    hook = attention.register_forward_pre_hook(
        lambda module, inputs: given.append(inputs[0][0].detach().double().numpy())
    )
    taps = ("q", "k", "v", "scores", "masked", "weights", "heads")
    try:
        seen = view.seen([f"{spot.name}.{tap}" for tap in taps])
    finally:
        hook.remove()
    q, k, v, scores, masked, weights, y = (array(seen, f"{spot.name}.{tap}", spot) for tap in taps)
    group = head * attention.kv_heads // attention.heads
    hidden = np.isneginf(masked[head])
    found = SixSteps(
        q[head], k[group], v[group], hidden, scores[head], masked[head], weights[head], y[head], _third(attention)
    )
    return given[spot.turn], found


def _third(attention: MultiHeadAttention) -> str:
    """What becomes of a score before the softmax, in the model's own numbers."""
    scale = float(attention.score.scale)
    third = f"÷ {number(1 / scale)}" if isinstance(attention.score, Dot) else f"× {number(scale)}"
    return third if attention.positions.bias is None else f"{third} + positions"


def _one_head(view: View, asked: Asked) -> tuple[Spot, int]:
    """The spot, and the head that is meant, the first where none is named."""
    named = _named_head(view) if asked.layer is None and not asked.heads and asked.side in {None, "cross"} else None
    spot = spot_of(view, asked if named is None else Asked(named[0], side="cross"))
    head = named[1] if named is not None else heads_of(spot, asked)[0]
    if attention_at(view.viewer.model, spot.name).memory is not None:
        raise ConfigError("the steps of a head with learned slots of memory are not drawn: look at its attention")
    return spot, head


def _steps(view: View, asked: Asked) -> Figure:
    spot, head = _one_head(view, asked)
    queries, keys = labels_of(view, spot)
    x_LD, of = steps_of(view, spot, head)
    if spot.place.kind != "cross" and len(keys) <= VECTOR_BY_VECTOR[asked.on.width]:
        at = range(len(keys))[-1 if asked.position is None else _within(asked.position, len(keys))]
        return vector_steps(x_LD, of, tokens=keys, position=at, on=asked.on)
    return all_at_once(of, tokens=keys, queries=queries, on=asked.on)


def _within(position: int, count: int) -> int:
    if not -count <= position < count:
        raise ConfigError(f"there are {count} positions, from 0 on, and none of them is {position}")
    return position


def _qkv(view: View, asked: Asked) -> Figure:
    if asked.layer is None and asked.side is None and view.viewer.mode == "encoder-decoder":
        asked = Asked(None, asked.heads, "encoder", asked.position, asked.on)
    spot, head = _one_head(view, asked)
    if spot.place.kind == "cross":
        raise ConfigError("queries, keys and values of the same tokens are those of self-attention: choose a side")
    x_LD, of = steps_of(view, spot, head)
    return query_key_value(x_LD, of, tokens=labels_of(view, spot)[0], on=asked.on)


def _graph(view: View, asked: Asked) -> Figure:
    if asked.layer is None and asked.side is None and view.viewer.mode == "encoder-decoder":
        asked = Asked(None, asked.heads, "encoder", asked.position, asked.on)
    weights_LM, spot, _ = attention_shown(view, asked)
    if spot.place.kind == "cross":
        raise ConfigError("a graph is one of tokens that read each other, not of cross-attention: choose a side")
    return attention_graph(weights_LM, tokens=labels_of(view, spot)[1], on=asked.on)


def _minimal(view: View, asked: Asked) -> Figure:
    return minimal_attention(attention_at(view.viewer.model, spot_of(view, asked).name), on=asked.on)


def _diagram(view: View, asked: Asked, depth: str = "block") -> Figure:
    return architecture(view.viewer.model, depth=depth, on=asked.on)


Draw = Callable[[View, Asked], Figure]

WHAT: Mapping[str, Draw] = MappingProxyType(
    {
        "attention": _attention,  # one head as a matrix, the mean of several, or all heads at once
        "lines": _lines,  # who reads whom, heads as colours
        "heads": _heads,  # every head of every layer at a glance
        "square": _square,  # the three attentions of an encoder–decoder in one square
        "graph": _graph,  # attention as arrows between tokens
        "steps": _steps,  # the six steps of one head
        "qkv": _qkv,  # each token's query, key and value
        "lens": lens,  # what each layer would say
        "shares": shares,  # what made a logit
        "stream": stream,  # who gives to whom, from layer to layer
        "rollout": rollout,  # how much of an input reaches an output, over all paths
        "flow": flow,  # the same as the greatest flow
        "neurons": neurons,  # feed-forward neurons that were excited, and the words that they speak for
        "circuits": circuits,  # how heads build on heads
        "qk": qk,  # what a head would read, from its matrices alone
        "ov": ov,  # what a head would say of what it reads, from its matrices alone
        "positions": positions,  # how the model knows where a token stands
        "decoding": decoding,  # word by word, with its rivals
        "beam": beam,  # the search as a tree
        "minimal": _minimal,  # one attention as a diagram
        "diagram": _diagram,  # the model as a diagram; below, at other depths of zoom
        "box": partial(_diagram, depth="black box"),
        "stack": partial(_diagram, depth="stack"),
        "blocks": partial(_diagram, depth="two blocks"),
    }
)
