"""How likely a given text is: the log-probability of each of its tokens."""

import torch
from torch import Tensor

from clearhead.generate.decode import normaliser
from clearhead.generate.step import DecodingState, Step

__all__ = ["score"]


@torch.inference_mode()
def score(
    model: Step, state: DecodingState, token_BT: Tensor, target_BT: Tensor, count_B: Tensor | None = None
) -> Tensor:
    """log p of each target after its token and all before: (B, T); beyond `count_B[b]` it means nothing."""
    logits_BTV, _ = model.step(token_BT, state, count_B=count_B)
    chosen_BT1 = logits_BTV.gather(-1, target_BT[..., None]).float()
    return (chosen_BT1 - normaliser(logits_BTV))[..., 0]
