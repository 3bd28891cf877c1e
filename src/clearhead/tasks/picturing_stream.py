"""Pictures of the stream: guesses of layers, shares of a logit, who gives to whom, circuits, neurons, positions."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from clearhead.draw import beam as beams
from clearhead.draw.figure import Figure
from clearhead.draw.matrix import matrix
from clearhead.draw.positions import position_maps
from clearhead.draw.stream import TOKENS, residual_stream
from clearhead.draw.tables import column_importance
from clearhead.errors import ConfigError
from clearhead.look import circuits as circuit
from clearhead.look.ablate import attention_at
from clearhead.look.anatomy import anatomy
from clearhead.look.flow import Reach, attention_flow, attention_rollout
from clearhead.look.recording import Recording
from clearhead.models.encoder_decoder import EncoderDecoder
from clearhead.nn.embed import TokenEmbedding
from clearhead.nn.feedforward import FeedForward
from clearhead.tap import named_taps
from clearhead.tasks.spots import LIMIT, Asked, Spot, array, heads_of, labels_of, spot_of, spots_of
from clearhead.tasks.viewing import View, shown

__all__ = ["circuits", "flow", "lens", "neurons", "ov", "position_of", "positions", "qk", "rollout", "shares", "stream"]

SHOWN = 14  # shares and neurons, the rest together
FLOWING = 24  # tokens up to which the greatest flow is found in a few seconds
WORDS = 3  # of a neuron
HEADS = 60  # rows of a picture of all heads that have room for their names


def position_of(view: View, asked: Asked) -> int:
    """The position that is meant, counted from 0; else the first of an answer, the last of a text, what is hidden."""
    side = view.sides[view.side]
    count = len(side.ids)
    if asked.position is not None:
        if not -count <= asked.position < count:
            raise ConfigError(f"there are {count} positions, from 0 on, and none of them is {asked.position}")
        return asked.position % count
    if view.viewer.mode == "decoder":
        return count - 1
    mask = view.viewer.parts.tokenizer.mask if view.viewer.mode == "encoder" else None
    return side.ids.index(mask) if mask in side.ids else 0


def lens(view: View, asked: Asked) -> Figure:
    """What each layer would say at each position."""
    found = view.lens()
    probability, word = (x[:, 0, :, 0] for x in found.best())
    guesses = [[shown(int(id), view.viewer.writer) for id in row] for row in word]
    tokens = view.sides[view.side].tokens
    return beams.lens(guesses, probability.numpy(), tokens=tokens, layers=found.layers, on=asked.on)


def shares(view: View, asked: Asked) -> Figure:
    """What each part adds to the logit of the word that a position says, the largest by themselves."""
    place = position_of(view, asked)
    word = view.said(place)
    of = view.shares(place, word)
    ranked = sorted(of.of.items(), key=lambda one: -abs(one[1]))
    named = {name.replace(".head.", ":"): value for name, value in ranked[:SHOWN]}
    others = ranked[SHOWN:]
    if others:
        named[f"{len(others)} others together"] = sum(value for _, value in others)
    token = view.sides[view.side].tokens[place]
    says = f"shares in the logit of “{shown(word, view.viewer.writer)}” after “{token}”; they add up to {of.total:.3f}"
    return column_importance(list(named), list(named.values()), says=says, on=asked.on)


def stream(view: View, asked: Asked) -> Figure:
    """Who gives to whom in each layer: the length of what one position adds to another, as a share of all it reads."""
    side = asked.side or ("encoder" if view.viewer.mode == "encoder" else "decoder")
    if side == "cross":
        raise ConfigError("the stream is that of one side, encoder or decoder, not of what passes between them")
    spots = spots_of(view, side)
    tokens, _ = labels_of(view, spots[0])
    if len(tokens) > TOKENS[asked.on.width]:
        raise ConfigError(
            f"the stream has room for {TOKENS[asked.on.width]} tokens, not {len(tokens)}: shorten the text"
        )
    taps = named_taps(view.viewer.model)
    added = {spot: f"{spot.name.rpartition('.')[0]}.add_feedforward" for spot in spots}
    names = {f"{spot.name}.{tap}" for spot in spots for tap in ("weights", "v")}
    names |= {f"{name}.{tap}" for name in added.values() for tap in ("branch", "sum") if f"{name}.{tap}" in taps}
    seen = view.seen(sorted(names), limit=LIMIT)
    edges_XLL = np.stack([_given(view, spot, seen) for spot in spots])
    values_XL = np.zeros(edges_XLL.shape[:2])
    for row, spot in zip(values_XL, spots, strict=True):
        if f"{added[spot]}.branch" in seen:
            branch, whole = (np.linalg.norm(array(seen, f"{added[spot]}.{t}", spot), axis=1) for t in ("branch", "sum"))
            row[:] = branch / np.maximum(whole, 1e-12)
    layers = [spot.name.rpartition(".")[0] for spot in spots]
    says = "length of what the feed-forward layer adds ÷ length of the stream behind it"
    return residual_stream(edges_XLL, values_XL, tokens=tokens, layers=layers, says=says, on=asked.on)


def _given(view: View, spot: Spot, seen: Recording) -> NDArray[np.float64]:
    """‖Σ_h w_hij W_O v_hj‖ of each pair of positions, each row brought to a sum of 1 (Kobayashi et al. 2020)."""
    attention = attention_at(view.viewer.model, spot.name)
    weights_HLM, v_GMK = (torch.from_numpy(array(seen, f"{spot.name}.{tap}", spot)) for tap in ("weights", "v"))
    v_HMK = v_GMK.repeat_interleave(attention.heads // attention.kv_heads, dim=0)
    out_HKD = attention.out.weight.detach().double().T.unflatten(0, (attention.heads, -1))
    sent_HMD = v_HMK @ out_HKD
    own_HLM = weights_HLM[:, :, weights_HLM.shape[-1] - sent_HMD.shape[1] :]
    size_LM = torch.einsum("hlm,hmd->lmd", own_HLM, sent_HMD).norm(dim=-1)
    return np.asarray((size_LM / size_LM.sum(1, keepdim=True).clamp(min=1e-12)).numpy())


def rollout(view: View, asked: Asked) -> Figure:
    """How much of each input reaches each output, over all paths."""
    return _reach(view, asked, attention_rollout, "attention rollout")


def flow(view: View, asked: Asked) -> Figure:
    """How much of each input can reach each output at most."""
    count = max(len(side.ids) for side in view.sides.values())
    if count > FLOWING:
        raise ConfigError(f"the greatest flow is found for up to {FLOWING} tokens, not {count}: ask for the rollout")
    return _reach(view, asked, attention_flow, "attention flow")


def _reach(view: View, asked: Asked, how: Callable[..., Reach], called: str) -> Figure:
    places = view.viewer.attentions()
    reach = how(view.viewer.model, view.seen([f"{place.name}.weights" for place in places], limit=LIMIT))
    tokens = list(view.sides[view.side].tokens)
    values, columns = reach.own_LL, tokens
    if reach.source_LM is not None:
        values, columns = torch.cat([reach.source_LM, values], dim=1), [*view.sides["source"].tokens, *tokens]
    says = "the mean of all heads, mixed half and half with what a position keeps"
    return matrix(values.numpy(), rows=tokens, columns=columns, heading=called, what="share", says=says, on=asked.on)


def circuits(view: View, asked: Asked) -> Figure:
    """How much each head builds on each earlier one, by what it reads as values."""
    found = circuit.composition(view.viewer.model, "v")
    names: list[str | None] = [name.replace(".head.", ":") for name in found.names]
    if len(names) > HEADS:  # then each attention is named once
        names = [name.removesuffix(".head.0") if name.endswith(".head.0") else None for name in found.names]
    says = "‖OV₂ OV₁‖ ÷ (‖OV₂‖ ‖OV₁‖), how much the head of the row reads of what that of the column writes"
    hidden = found.score_XX.numpy() == 0
    return matrix(found.score_XX.numpy(), rows=names, columns=names, masked=hidden, heading="composition of heads",
                  what="values", says=says, on=asked.on)  # fmt: skip


def qk(view: View, asked: Asked) -> Figure:
    """eᵢᵀ QK eⱼ of the text's own tokens: whom a head would read, were there nothing but embeddings."""
    spot, head = _head(view, asked)
    rows, columns = labels_of(view, spot)
    asking, asked_of = (_embedded(view, side) for side in (spot.place.queries, spot.place.keys))
    with torch.no_grad():
        values = asking @ circuit.qk(view.viewer.model, spot.name, head).double() @ asked_of.T
    says = "eᵢᵀ W_Qᵀ W_K eⱼ, of embeddings alone: no norm, no position, no scale"
    heading = f"QK circuit: {spot.name}, head {head}"
    return matrix(values.numpy(), rows=rows, columns=columns[-len(asked_of) :], heading=heading, what="scores",
                  says=says, on=asked.on)  # fmt: skip


def ov(view: View, asked: Asked) -> Figure:
    """uᵢᵀ OV eⱼ of the text's own tokens: what a head says when it reads one of them."""
    spot, head = _head(view, asked)
    words = anatomy(view.viewer.model).words.linear.weight.detach().double()
    said = view.sides[view.side]
    read = _embedded(view, spot.place.keys)
    with torch.no_grad():
        values = words[list(said.ids)] @ circuit.ov(view.viewer.model, spot.name, head).double() @ read.T
    says = "uᵢᵀ W_O W_V eⱼ: the logit of the word of the row, when that of the column is read; embeddings alone"
    heading = f"OV circuit: {spot.name}, head {head}"
    return matrix(values.numpy(), rows=said.tokens, columns=view.sides[spot.place.keys].tokens, heading=heading,
                  what="logits", says=says, on=asked.on)  # fmt: skip


def _head(view: View, asked: Asked) -> tuple[Spot, int]:
    spot = spot_of(view, asked)
    return spot, heads_of(spot, asked)[0]


def _embed(model: nn.Module, side: str) -> tuple[str, TokenEmbedding]:
    """The embedding of one side, and its name."""
    name = f"{side}_embed" if isinstance(model, EncoderDecoder) else "embed"
    embed = model.get_submodule(name)
    assert isinstance(embed, TokenEmbedding)
    return name, embed


def _embedded(view: View, side: str) -> Tensor:
    """The embeddings of a side's tokens, without positions, as wide as the stream."""
    name, _ = _embed(view.viewer.model, side)
    tokens = view.seen(f"{name}.tokens")[f"{name}.tokens"].tensor[0]
    widen = getattr(view.viewer.model, "widen", None)
    with torch.no_grad():
        return (tokens if widen is None else widen(tokens)).double()


def neurons(view: View, asked: Asked) -> Figure:
    """The neurons of a feed-forward layer that a position excites most, with the words that they speak for."""
    place, parts = position_of(view, asked), anatomy(view.viewer.model)
    layers = [(one[-1].name, one[-1].sublayer) for one in parts.places()]
    number = _layer_number(asked, len(layers), parts.stack_name)
    name, layer = layers[number]
    if not isinstance(layer, FeedForward):
        raise ConfigError(f"{name!r} has no neurons: it is a {type(layer).__name__}")
    turn = [other for other, _ in layers[:number]].count(name)
    hidden_F = view.seen(f"{name}.hidden")[f"{name}.hidden"].values[turn][0, place].double()
    weight_F = hidden_F * layer.narrow.weight.detach().double().norm(dim=0)
    chosen = weight_F.abs().topk(min(SHOWN, len(weight_F))).indices.tolist()
    labels = []
    for neuron in chosen:
        words = circuit.words_of_neuron(view.viewer.model, name, neuron, WORDS)
        labels.append(f"{neuron}: " + " ".join(shown(word, view.viewer.writer).strip() for word, _ in words))
    token = view.sides[view.side].tokens[place]
    says = f"{name} at “{token}”: how much a neuron adds, excitement × length of its value; beside it its words"
    return column_importance(labels, weight_F[chosen].numpy(), says=says, on=asked.on)


def _layer_number(asked: Asked, count: int, stack: str) -> int:
    """The number of a layer of the stack that ends in words, the last where none is named."""
    layer = asked.layer
    if isinstance(layer, str):
        start, _, rest = layer.partition(".")
        digits = rest.split(".")[0]
        layer = int(digits) if start == stack and digits.isdecimal() else -1
    if layer is None:
        return count - 1
    if not 0 <= layer < count:
        raise ConfigError(f"there are the layers 0 to {count - 1} of the {stack}, and none is {asked.layer!r}")
    return layer


def positions(view: View, asked: Asked) -> Figure:
    """How the model knows where a token stands, in its own numbers."""
    spot = spot_of(view, asked if asked.layer is not None or asked.side else Asked(0, asked.heads, _own(view)))
    head, model = heads_of(spot, asked)[0], view.viewer.model
    name, embed = _embed(model, spot.place.queries)
    length = len(view.sides[spot.place.queries].ids)
    place_BL = torch.arange(length)[None]
    tables: dict[str, NDArray[np.float64]] = {}
    with torch.no_grad():
        zero_BLD = torch.zeros(1, length, embed.tokens.weight.shape[1], device=embed.tokens.weight.device)
        added_LD = embed.place(zero_BLD, place_BL)[0]
        if bool(added_LD.any()):
            tables[f"{name}: what is added to each token"] = added_LD.double().numpy()
        attention = attention_at(model, spot.name)
        if attention.positions.rotate is not None:
            ones_BHLK = torch.ones(1, 1, length, attention.head_width)
            turned = attention.positions.rotate(ones_BHLK, place_BL)[0, 0]
            tables[f"{spot.name}: what becomes of a vector of ones"] = turned.double().numpy()
    if attention.positions.bias is not None:
        seen = view.seen([f"{spot.name}.bias"])
        term_HLM = array(seen, f"{spot.name}.bias", spot)
        tables[f"{spot.name}, head {head}: what is added to the score of each key"] = term_HLM[head % len(term_HLM)]
    if not tables:
        raise ConfigError("this model does not know where a token stands: it has no positions to draw")
    return position_maps(tables, on=asked.on)


def _own(view: View) -> str:
    return "encoder" if view.viewer.mode == "encoder" else "decoder"
