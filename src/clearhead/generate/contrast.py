"""Contrastive search: of the k likeliest tokens the one that repeats least what was said [su2022].

choose v that maximises (1 − α) · p(v) − α · max_j cos(h_v, h_j)          h the last layer's vectors
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.errors import DecodingError
from clearhead.generate.best import best
from clearhead.generate.branches import branches_of
from clearhead.generate.decode import Decoded, Prompts, done, filtered, normaliser
from clearhead.generate.decoding import Decoding
from clearhead.generate.ensemble import Ensemble
from clearhead.generate.filters import Row, history_filters
from clearhead.generate.step import DecodingState
from clearhead.tap import watching

__all__ = ["contrast"]

LAST = "decoder.output"


@torch.inference_mode()
def contrast(model: Any, state: DecodingState, prompts: Prompts, *, decoding: Decoding) -> Iterator[list[Decoded]]:
    """Go on with each prompt, all rows as they stand after each step."""
    if isinstance(model, Ensemble):
        raise DecodingError("contrastive search compares the vectors of one model: it cannot be asked of several")
    written = [Decoded() for _ in range(len(prompts))]
    going, texts = list(range(len(prompts))), prompts.lists()
    filters = history_filters(decoding, prompts.ends)
    hidden = _Hidden()
    with watching(model, {LAST: hidden}):
        logits_BTV, state = model.step(prompts.token_BT, state, count_B=prompts.count_B)
        said_BLD = _real(hidden.seen_BLD, prompts.count_B)
        branches = branches_of(model, state)
        last_B = torch.tensor([len(text) - 1 for text in texts], device=logits_BTV.device)
        logits_BV = logits_BTV[torch.arange(len(texts), device=last_B.device), last_B]
        parent_B1 = torch.zeros_like(last_B)[:, None]
        while True:
            score_BV = logits_BV.float() - normaliser(logits_BV)
            if filters:
                score_BV = filtered(score_BV, filters, [Row(texts[row], written[row].tokens) for row in going])
            score_BK, token_BK = best(score_BV, decoding.top_k)
            logits_BKV = branches.advance(parent_B1.expand(token_BK.shape), token_BK)
            said_BKD = F.normalize(hidden.seen_BLD.reshape(*token_BK.shape, -1), dim=-1)
            alike_BK = (said_BKD @ said_BLD.transpose(1, 2)).amax(-1)
            worth_BK = (1 - decoding.contrast) * score_BK.exp() - decoding.contrast * alike_BK
            chosen_B1 = worth_BK.masked_fill(score_BK == float("-inf"), float("-inf")).argmax(1, keepdim=True)
            token_B, score_B = (x_BK.gather(1, chosen_B1)[:, 0].tolist() for x_BK in (token_BK, score_BK))
            for row, token, score in zip(going, token_B, score_B, strict=True):
                written[row].add(token, score, prompts.ends)
            yield written
            staying = [place for place, row in enumerate(going) if not done(written[row], prompts.longest_B[row])]
            if not staying:
                return
            going = [going[place] for place in staying]
            row_B = torch.tensor(staying, device=chosen_B1.device)
            if len(staying) < len(chosen_B1):
                branches.select(row_B)
            parent_B1 = chosen_B1[row_B]
            logits_BV = logits_BKV[row_B, parent_B1[:, 0]]
            said_BLD = torch.cat([said_BLD[row_B], said_BKD[row_B, parent_B1[:, 0]][:, None]], dim=1)


class _Hidden:
    """A hook that keeps what it sees."""

    seen_BLD: Tensor

    def __call__(self, x_BLD: Tensor) -> Tensor:
        self.seen_BLD = x_BLD
        return x_BLD


def _real(x_BLD: Tensor, count_B: Tensor | None) -> Tensor:
    """Unit vectors of what was read; padding is the first of them again, which changes no maximum."""
    unit_BLD = F.normalize(x_BLD, dim=-1)
    if count_B is None:
        return unit_BLD
    real_BL = torch.arange(x_BLD.shape[1], device=x_BLD.device) < count_B[:, None]
    return torch.where(real_BL[..., None], unit_BLD, unit_BLD[:, :1])
