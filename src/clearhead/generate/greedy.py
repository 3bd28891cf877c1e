"""Greedy decoding: the most probable token at each step."""

from torch import Tensor

from clearhead.generate.decode import Decoded, decode
from clearhead.generate.step import DecodingState, Step

__all__ = ["greedy"]


def greedy(
    model: Step,
    state: DecodingState,
    token_BT: Tensor,
    *,
    eos: int | None,
    longest: int,
    count_B: Tensor | None = None,
) -> list[Decoded]:
    """At most `longest` tokens after each prompt, the best at each step."""

    def best(score_BV: Tensor) -> Tensor:
        return score_BV.argmax(-1)

    return decode(model, state, token_BT, choose=best, eos=eos, longest=longest, count_B=count_B)
