"""What a head does, in a few numbers: from its weights and the tokens alone.

Rows are means over the queries that have something to say: of the weight on earlier equal tokens, for example, over
the positions whose token has occurred before. Memory slots, which stand before the first key, count in the entropy
alone.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["head_statistics", "moved"]


def head_statistics(
    weights_HLM: Tensor, queries: Sequence[int], keys: Sequence[int], *, within: bool, slots: int = 0
) -> dict[str, list[float]]:
    """Entropy in bits, mean distance |i − j|, and the mean weight on certain keys, a number for each head.

    within      queries and keys are the same tokens, so that `earlier` means something; otherwise all equal ones count
    previous    on the key just before the query's place
    duplicate   on (earlier) keys with the query's own token
    induction   on the keys just after those
    """
    weights_HLM = weights_HLM.double()
    entropy_HL = -torch.xlogy(weights_HLM, weights_HLM).sum(-1) / torch.tensor(2.0).log()
    weights_HLM = weights_HLM[..., slots:]
    place_L, place_M = torch.arange(len(queries))[:, None], torch.arange(len(keys))
    equal_LM = torch.tensor(queries)[:, None] == torch.tensor(keys)
    if within:
        equal_LM &= place_M < place_L
    after_LM = torch.zeros_like(equal_LM)
    after_LM[:, 1:] = equal_LM[:, :-1]
    patterns = {"previous": place_M == place_L - 1, "duplicate": equal_LM, "induction": after_LM}
    distance_HL = (weights_HLM * (place_L - place_M).abs()).sum(-1)
    found = {"entropy": entropy_HL.mean(-1), "distance": distance_HL.mean(-1)}
    found |= {name: _on(weights_HLM, pattern_LM) for name, pattern_LM in patterns.items()}
    return {name: value_H.tolist() for name, value_H in found.items()}


def _on(weights_HLM: Tensor, pattern_LM: Tensor) -> Tensor:
    """The mean weight on the keys of a pattern, over the queries for which it names any; 0 where there is none."""
    concerned = int(pattern_LM.any(-1).sum())
    return (weights_HLM * pattern_LM).sum((-1, -2)) / max(concerned, 1)


def moved(weights_HLM: Tensor, v_HMK: Tensor, out_DHK: Tensor) -> Tensor:
    """‖Σ_h w_hij W^O_h v_hj‖ for each query i and key j (L, M): how much attention moved from j to i, in double.

    The square is Σ_hg w_hij w_gij ⟨u_hj, u_gj⟩ with u_hj = W^O_h v_hj, so no vector is made for each pair of i and j.
    """
    u_HMD = torch.einsum("hmk,dhk->hmd", v_HMK.double(), out_DHK.double())
    gram_MHH = torch.einsum("hmd,gmd->mhg", u_HMD, u_HMD)
    weights_HLM = weights_HLM.double()
    square_LM = torch.einsum("hlm,mhg,glm->lm", weights_HLM, gram_MHH, weights_HLM)
    return square_LM.clamp(min=0).sqrt()
