"""The best few of very many scores."""

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Best", "best"]

CHUNK = 128


class Best(NamedTuple):
    """The k largest values of each row, largest first, and where they stand."""

    value_NK: Tensor
    place_NK: Tensor


def best(score_NV: Tensor, count: int) -> Best:
    """The `count` largest of each row; of the row's end, as many as there are.

    The largest k values lie in the k chunks with the largest maxima: one pass for the maxima and a look into k chunks
    are several times faster than PyTorch's partial sort of the whole.
    """
    values = score_NV.shape[-1]
    count = min(count, values)
    chunks = values // CHUNK
    if chunks <= 2 * count:
        return Best(*score_NV.topk(count))
    whole = chunks * CHUNK
    chunk_NCW = score_NV[..., :whole].unflatten(-1, (chunks, CHUNK))
    which_NK = chunk_NCW.amax(-1).topk(count).indices
    near_NKW = chunk_NCW.gather(-2, which_NK[..., None].expand(*which_NK.shape, CHUNK))
    place_NKW = which_NK[..., None] * CHUNK + torch.arange(CHUNK, device=score_NV.device)
    value_NX, place_NX = near_NKW.flatten(-2), place_NKW.flatten(-2)
    if whole < values:
        rest_R = torch.arange(whole, values, device=score_NV.device)
        value_NX = torch.cat([value_NX, score_NV[..., whole:]], dim=-1)
        place_NX = torch.cat([place_NX, rest_R.expand(*place_NX.shape[:-1], -1)], dim=-1)
    value_NK, within_NK = value_NX.topk(count)
    return Best(value_NK, place_NX.gather(-1, within_NK))
