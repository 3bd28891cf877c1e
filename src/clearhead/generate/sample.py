"""Sampling: each token drawn from softmax(logits / temperature)."""

import torch
from torch import Tensor

from clearhead.errors import DecodingError
from clearhead.generate.decode import Decoded, decode
from clearhead.generate.step import DecodingState, Step

__all__ = ["sample"]


def sample(
    model: Step,
    state: DecodingState,
    token_BT: Tensor,
    *,
    temperature: float,
    generator: torch.Generator,
    eos: int | None,
    longest: int,
    count_B: Tensor | None = None,
) -> list[Decoded]:
    """At most `longest` tokens after each prompt; the scores are those of the model at temperature 1."""
    if not temperature > 0:
        raise DecodingError(f"a temperature lies above 0 (greedy decoding is its limit): {temperature=}")

    def draw(score_BV: Tensor) -> Tensor:
        probability_BV = (score_BV / temperature).softmax(-1).to(generator.device)
        return torch.multinomial(probability_BV, 1, generator=generator)[:, 0].to(score_BV.device)

    return decode(model, state, token_BT, choose=draw, eos=eos, longest=longest, count_B=count_B)
