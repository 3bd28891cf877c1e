"""A GPT in plain PyTorch, as one would write it today without any library: the yardstick of `train_step.py`.

Pre-norm blocks, stacked q/k/v projection, PyTorch's fused attention, exact GELU, learned positions, tied output
[radford2019]. Dropout is PyTorch's own, in its three customary places: embedding, attention weights, residual branches.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["PlainGPT"]


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.feedforward_norm = nn.LayerNorm(width)
        self.feedforward_in = nn.Linear(width, 4 * width)
        self.feedforward_out = nn.Linear(4 * width, width)
        self.dropout = dropout

    def forward(self, x_BLD: Tensor) -> Tensor:
        x_BLD = x_BLD + self.drop(self.attend(self.attention_norm(x_BLD)))
        hidden_BLF = F.gelu(self.feedforward_in(self.feedforward_norm(x_BLD)))
        return x_BLD + self.drop(self.feedforward_out(hidden_BLF))

    def attend(self, x_BLD: Tensor) -> Tensor:
        q_BHLK, k_BHLK, v_BHLK = (
            each_BLD.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for each_BLD in self.query_key_value(x_BLD).chunk(3, dim=-1)
        )
        dropout = self.dropout if self.training else 0.0
        mixed_BHLK = F.scaled_dot_product_attention(q_BHLK, k_BHLK, v_BHLK, dropout_p=dropout, is_causal=True)
        out_BLD: Tensor = self.attention_out(mixed_BHLK.transpose(1, 2).flatten(2))
        return out_BLD

    def drop(self, x_BLD: Tensor) -> Tensor:
        return F.dropout(x_BLD, self.dropout, self.training)


class PlainGPT(nn.Module):
    """Token ids to logits of the next token."""

    def __init__(self, *, vocabulary: int, context: int, layers: int, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                into_residual = name.endswith("_out.weight")
                nn.init.normal_(weight, std=0.02 / (2 * layers) ** 0.5 if into_residual else 0.02)

    def forward(self, ids_BL: Tensor) -> Tensor:
        position_L = torch.arange(ids_BL.size(1), device=ids_BL.device)
        x_BLD = self.dropout(self.tokens(ids_BL) + self.positions(position_L))
        return F.linear(self.norm(self.blocks(x_BLD)), self.tokens.weight)
