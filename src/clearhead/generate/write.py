"""Decoding of any kind, as a `Decoding` asks for it."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from clearhead.generate.beam import Found, beam
from clearhead.generate.contrast import contrast
from clearhead.generate.decode import Decoded, Prompts, decode
from clearhead.generate.decoding import Decoding
from clearhead.generate.filters import history_filters
from clearhead.generate.greedy import take_best
from clearhead.generate.guess import guess_ahead
from clearhead.generate.sample import drawing
from clearhead.generate.step import DecodingState, Step

__all__ = ["search", "write"]


def write(model: Step, state: DecodingState, prompts: Prompts, decoding: Decoding) -> Iterator[list[Decoded]]:
    """Without search, a token at a time: all rows as they stand after each step."""
    if decoding.contrast:
        return contrast(model, state, prompts, decoding=decoding)
    filters = history_filters(decoding, prompts.ends)
    if decoding.guess and not filters:
        return guess_ahead(model, state, prompts, count=decoding.guess)
    choose = drawing(decoding, len(prompts)) if decoding.temperature else take_best
    return decode(model, state, prompts, choose=choose, filters=filters)


def search(
    model: Step,
    state: DecodingState,
    prompts: Prompts,
    decoding: Decoding,
    *,
    attention: Callable[[], Tensor] | None = None,
) -> list[Found]:
    """The `best` answers for each row, however they are decoded."""
    if decoding.searches:
        return beam(model, state, prompts, decoding=decoding, attention=attention)
    times = decoding.best
    if times > 1:
        state = state.select(torch.arange(len(prompts), device=prompts.token_BT.device).repeat_interleave(times))
        prompts = prompts.repeated(times)
    *_, written = write(model, state, prompts, decoding)
    rows = [written[start : start + times] for start in range(0, len(written), times)]
    return [Found(row, [one.score for one in row]) for row in rows]
