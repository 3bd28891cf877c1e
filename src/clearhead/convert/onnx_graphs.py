"""Which graphs an architecture is written as: their files, inputs and outputs, and the function that each one computes.

A graph with a past keeps to the rule of our caches: position m of a row lies in slot m of that row. New tokens are
written behind the `past_count` positions that a row has, whatever lies there, so that rows of different lengths need no
special case.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import Tensor, nn

from clearhead.models.decoder_only import DecoderOnly
from clearhead.models.encoder_decoder import EncoderDecoder
from clearhead.models.encoder_only import EncoderOnly
from clearhead.models.ft_transformer import FTTransformer
from clearhead.models.tab_transformer import TabTransformer
from clearhead.models.vit import Vit
from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.cache import LayerCache, State

__all__ = ["GRAPHS", "Graph", "Input"]


@dataclass(frozen=True)
class Input:
    """One input; an axis is a name where its size may vary, otherwise its size."""

    name: str
    axes: tuple[str | int, ...]
    dtype: torch.dtype = torch.int64


@dataclass(frozen=True)
class Graph:
    """One file: `run(model, *inputs)` gives the outputs, both in the order of their names."""

    file: str
    run: Callable[..., tuple[Tensor, ...]]
    inputs: Sequence[Input]
    outputs: Sequence[str]


# ---------------------------------------------------------------- encoder only

# output -> the head that gives it, and which of the two first outputs that head reads
HEADS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {"words": ("word_head", 0), "follows": ("next_head", 1), "classes": ("class_head", 1), "labels": ("label_head", 0)}
)


def _heads(model: EncoderOnly) -> list[str]:
    return [name for name, (head, _) in HEADS.items() if getattr(model, head) is not None]


def _encode(
    model: EncoderOnly, token_BL: Tensor, count_B: Tensor, segment_BL: Tensor | None = None
) -> tuple[Tensor, ...]:
    hidden_BLD, rows = model.hidden(token_BL, count_B=count_B, segment_BL=segment_BL)
    vectors = hidden_BLD, model.pooled(hidden_BLD, rows)
    heads = [HEADS[name] for name in _heads(model)]
    return *vectors, *(getattr(model, head)(vectors[of]) for head, of in heads)


def _encoder_only(model: EncoderOnly) -> list[Graph]:
    inputs = [Input("token", ("batch", "length")), Input("count", ("batch",))]
    if model.config.segments:
        inputs.append(Input("segment", ("batch", "length")))
    return [Graph("model.onnx", _encode, inputs, ["hidden", "pooled", *_heads(model)])]


# ---------------------------------------------------------------- those that generate


@dataclass(frozen=True, eq=False)
class _Past:
    """A `LayerCache` as a graph can have it: without storage that is written to, or lengths that are looked at."""

    keys_BGMK: Tensor
    values_BGMK: Tensor
    length_B: Tensor

    @property
    def length(self) -> int:
        return self.keys_BGMK.shape[2]

    def positions(self, new: int, device: torch.device) -> Tensor:
        return self.length_B[:, None] + torch.arange(new, device=device)

    def extend(self, k_BGTK: Tensor, v_BGTK: Tensor, count_B: None = None) -> "_Past":
        """With the new keys and values in the slots of their positions; there is one more slot for each."""
        new = k_BGTK.shape[2]
        slot_BGTK = self.positions(new, k_BGTK.device)[:, None, :, None].expand_as(k_BGTK)
        pairs = (self.keys_BGMK, k_BGTK), (self.values_BGMK, v_BGTK)
        keys_BGMK, values_BGMK = (torch.cat(pair, dim=2).scatter(2, slot_BGTK, pair[1]) for pair in pairs)
        return _Past(keys_BGMK, values_BGMK, self.length_B + new)

    def view(self, length: int) -> tuple[Tensor, Tensor]:
        return self.keys_BGMK, self.values_BGMK


KINDS = ("key", "value")


def _pairs(flat: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of each layer, which came in turn."""
    return list(zip(flat[::2], flat[1::2], strict=True))


def _flat(caches: Sequence[LayerCache]) -> tuple[Tensor, ...]:
    """Keys and values of each layer in turn."""
    return tuple(chain.from_iterable((cache.keys_BGMK, cache.values_BGMK) for cache in caches))


def _state(past: Sequence[Tensor], past_count_B: Tensor, cross: Sequence[LayerCache] = ()) -> State:
    own = tuple(_Past(k_BGMK, v_BGMK, past_count_B) for k_BGMK, v_BGMK in _pairs(past))
    return State(cast(tuple[LayerCache, ...], own), tuple(cross))


def _step(model: DecoderOnly, token_BT: Tensor, past_count_B: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
    logits_BTV, state = model.step(token_BT, _state(past, past_count_B))
    return logits_BTV, *_flat(state.own)


def _read_source(model: EncoderDecoder, source_BM: Tensor, source_count_B: Tensor) -> tuple[Tensor, ...]:
    return _flat(model.start(source_BM, source_count_B).cross)


def _step_across(
    model: EncoderDecoder, token_BT: Tensor, past_count_B: Tensor, source_count_B: Tensor, *remembered: Tensor
) -> tuple[Tensor, ...]:
    middle = len(remembered) // 2
    cross = [LayerCache.of(k_BGMK, v_BGMK, source_count_B) for k_BGMK, v_BGMK in _pairs(remembered[middle:])]
    logits_BTV, state = model.step(token_BT, _state(remembered[:middle], past_count_B, cross))
    return logits_BTV, *_flat(state.own)


def _names(of: str, model: DecoderOnly | EncoderDecoder) -> list[str]:
    return [f"{of}.{i}.{kind}" for i in range(len(model.decoder)) for kind in KINDS]


def _remembered(of: str, axis: str, attentions: Sequence[nn.Module | None]) -> list[Input]:
    """Keys and values of each layer, (batch, key-value heads, axis, head width) each; one that was pruned has fewer."""
    return [
        Input(f"{of}.{i}.{kind}", ("batch", attention.kv_heads, axis, attention.head_width), torch.float32)
        for i, attention in enumerate(attentions)
        for kind in KINDS
        if isinstance(attention, MultiHeadAttention)
    ]


STEP = (Input("token", ("batch", "length")), Input("past_count", ("batch",)))
SOURCE = (Input("source", ("batch", "source_length")), Input("source_count", ("batch",)))


def _decoder_only(model: DecoderOnly) -> list[Graph]:
    past = _remembered("past", "past_length", [block.attention for block in model.decoder.layers])
    return [Graph("decoder.onnx", _step, [*STEP, *past], ["logits", *_names("present", model)])]


def _encoder_decoder(model: EncoderDecoder) -> list[Graph]:
    layers = model.decoder.layers
    past = _remembered("past", "past_length", [block.attention for block in layers])
    cross = _remembered("cross", "source_length", [block.cross for block in layers])
    return [
        Graph("encoder.onnx", _read_source, SOURCE, _names("cross", model)),
        Graph("decoder.onnx", _step_across, [*STEP, SOURCE[1], *past, *cross], ["logits", *_names("present", model)]),
    ]


# ---------------------------------------------------------------- images and tables


def _see(model: Vit, image_BCLM: Tensor) -> tuple[Tensor, ...]:
    hidden_BLD = model(image_BCLM)
    pooled_BD = model.pooled(hidden_BLD)
    return hidden_BLD, pooled_BD, *([] if model.class_head is None else [model.class_head(pooled_BD)])


def _vit(model: Vit) -> list[Graph]:
    c = model.config
    image = Input("image", ("batch", c.channels, c.image, c.image), torch.float32)
    return [Graph("model.onnx", _see, [image], ["hidden", "pooled", *(["classes"] if c.classes else [])])]


def _answer(model: FTTransformer | TabTransformer, *columns: Tensor) -> tuple[Tensor, ...]:
    given, rows = iter(columns), columns[0].shape[0]
    number_BC = next(given) if model.config.numbers else columns[0].new_zeros(rows, 0, dtype=torch.float32)
    code_BC = next(given) if model.config.categories else columns[0].new_zeros(rows, 0, dtype=torch.int64)
    return (model(number_BC, code_BC),)


def _table(model: FTTransformer | TabTransformer) -> list[Graph]:
    numbers, categories = model.config.numbers, len(model.config.categories)
    number, code = Input("number", ("batch", numbers), torch.float32), Input("code", ("batch", categories))
    inputs = [given for given, columns in ((number, numbers), (code, categories)) if columns]
    return [Graph("model.onnx", _answer, inputs, ["outputs"])]


# ---------------------------------------------------------------- the table

# the model's class -> what it is written as
GRAPHS: Mapping[type[nn.Module], Callable[[Any], list[Graph]]] = MappingProxyType(
    {
        EncoderOnly: _encoder_only,
        DecoderOnly: _decoder_only,
        EncoderDecoder: _encoder_decoder,
        Vit: _vit,
        FTTransformer: _table,
        TabTransformer: _table,
    }
)
