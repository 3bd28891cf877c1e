"""Memory: learned keys and values, beside the input (persistent) or for the feed-forward layer (product keys)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import ShapeError
from clearhead.tap import Tap

__all__ = ["PersistentMemory", "ProductKeyMemory"]


class PersistentMemory(nn.Module):
    """Learned keys and values that every query sees beside those of the input [sukhbaatar2019 §4.1].

    With enough of them the feed-forward layer can go: "all-attention".
    """

    # DIFF[sukhbaatar2019 §4.1]: the paper's factors √K and √P on keys and values are in their first values here.
    def __init__(self, kv_heads: int, head_width: int, slots: int) -> None:
        super().__init__()
        if slots < 1:
            raise ShapeError(f"persistent memory needs at least one slot: {slots=}")
        self.slots = slots
        self.keys_GPK = nn.Parameter(torch.randn(kv_heads, slots, head_width))
        self.values_GPK = nn.Parameter(torch.randn(kv_heads, slots, head_width))

    def forward(
        self, k_BGMK: Tensor, v_BGMK: Tensor, allowed: Tensor | None, bias_BHLM: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Memory first, then the input; visible to all, without position."""
        batch, keys = k_BGMK.shape[0], k_BGMK.shape[2]
        k_BGMK = torch.cat([self.keys_GPK.expand(batch, -1, -1, -1), k_BGMK], dim=2)
        v_BGMK = torch.cat([self.values_GPK.expand(batch, -1, -1, -1), v_BGMK], dim=2)
        if allowed is not None:
            allowed = F.pad(allowed.expand(*allowed.shape[:-1], keys), (self.slots, 0), value=True)
        if bias_BHLM is not None:
            bias_BHLM = F.pad(bias_BHLM.expand(*bias_BHLM.shape[:-1], keys), (self.slots, 0))
        return k_BGMK, v_BGMK, allowed, bias_BHLM


class ProductKeyMemory(nn.Module):
    """A very wide feed-forward layer of which only the best `chosen` slots are read [lample2019].

    A key of slot (i, j) is the concatenation of half-keys a_i and b_j, so the best `chosen` of P² slots are found
    among the products of the best `chosen` of each half: exact, at the cost of 2 P instead of P² comparisons.

        s_ij = q₁ᵀa_i + q₂ᵀb_j        y = Σ_(best) softmax(s)_ij v_ij        summed over heads
    """

    def __init__(
        self, width: int, *, half_keys: int = 32, heads: int = 4, chosen: int = 8, key_width: int = 64
    ) -> None:
        super().__init__()
        if key_width % 2 or chosen > half_keys:
            raise ShapeError(
                f"a key has two halves, of each at most `half_keys` chosen: {key_width=}, {chosen=}, {half_keys=}"
            )
        self.width, self.half_keys, self.heads, self.chosen = width, half_keys, heads, chosen
        self.query = nn.Linear(width, heads * key_width)
        # DIFF[lample2019 §3.2]: the paper normalises queries over the batch; over the features, a row answers alone as
        # it does in company.
        self.norm = nn.LayerNorm(key_width, elementwise_affine=False)
        self.keys_HPK = nn.Parameter(torch.randn(2 * heads, half_keys, key_width // 2) * (key_width // 2) ** -0.5)
        self.values = nn.Embedding(half_keys**2, width)
        nn.init.normal_(self.values.weight, std=width**-0.5)
        self.see_hidden = Tap()

    def forward(self, x_BLD: Tensor) -> Tensor:
        score_BLHP, slot_BLHP = self.find(x_BLD)
        weights_BLHP = self.see_hidden(score_BLHP.softmax(-1))
        read_BLD = F.embedding_bag(
            slot_BLHP.flatten(2).flatten(0, 1),
            self.values.weight,
            per_sample_weights=weights_BLHP.flatten(2).flatten(0, 1).to(self.values.weight.dtype),  # bf16 by autocast
            mode="sum",
        )
        return read_BLD.view(*x_BLD.shape[:2], -1)

    def find(self, x_BLD: Tensor) -> tuple[Tensor, Tensor]:
        """Scores and numbers of the best slots of each head, (B, L, H, chosen) each, best first."""
        q_BLHK = self.norm(self.query(x_BLD).unflatten(-1, (self.heads, -1)))
        halves = [
            torch.einsum("blhk,hpk->blhp", half, keys).topk(self.chosen, dim=-1)
            for half, keys in zip(q_BLHK.chunk(2, dim=-1), self.keys_HPK.chunk(2), strict=True)
        ]
        (score_1, slot_1), (score_2, slot_2) = halves
        every_BLHP = (score_1[..., :, None] + score_2[..., None, :]).flatten(-2)
        slot_BLHP = (slot_1[..., :, None] * self.half_keys + slot_2[..., None, :]).flatten(-2)
        best_BLHP, index_BLHP = every_BLHP.topk(self.chosen, dim=-1)
        return best_BLHP, slot_BLHP.gather(-1, index_BLHP)

    def flops(self, positions: int) -> int:
        """Operations of the query, the comparisons with both halves, and the weighted sum of values."""
        key_width = self.query.out_features // self.heads
        per_position = self.width * self.heads * key_width + self.heads * self.half_keys * key_width
        return 2 * positions * (per_position + self.heads * self.chosen * self.width)
