"""What the positions of a model look like, as its own modules have them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.nn.attention import MultiHeadAttention
from clearhead.nn.embed import TokenEmbedding
from clearhead.nn.positions import Unmoved
from clearhead.nn.positions_absolute import LearnedEmbedding, angles, frequencies
from clearhead.nn.positions_relative import DistanceBias
from clearhead.nn.positions_rotary import Rotation
from clearhead.tasks.overview import EMBEDS, stacks
from clearhead.tasks.viewing import Viewer

__all__ = ["Picture", "positions_of"]


@dataclass(frozen=True)
class Picture:
    """What tells positions apart.

    what   table: a vector per position, added to the embedding; of Shaw's, one per distance, met by the queries
           bias: a term on the score, by head, query and key; where it depends on the text too, the part that does not
           rotation: the angle of each pair of columns at each position
           none: nothing
    """

    kind: str
    what: str
    axes: str = ""
    tensor: Tensor | None = None

    def about(self) -> dict[str, Any]:
        """The same as JSON, but for the numbers."""
        shape = [] if self.tensor is None else list(self.tensor.shape)
        return {"kind": self.kind, "what": self.what, "axes": self.axes, "shape": shape, "tensor": "positions"}


@torch.no_grad()
def positions_of(viewer: Viewer, count: int) -> Picture:
    """Positions 0 to `count` − 1 of the stack that speaks."""
    *_, (_, stack, side) = stacks(viewer)
    kind = viewer.parts.settings.config.positions
    embed, attention = viewer.model.get_submodule(EMBEDS[side]), stack.layers[0].attention
    if isinstance(embed, TokenEmbedding) and not isinstance(embed.place, Unmoved):
        return Picture(kind, "table", "LD", _table(embed, count))
    for slot, draw in DRAWN.items():
        module = getattr(attention.positions, slot)
        if module is not None and isinstance(attention, MultiHeadAttention):
            return Picture(kind, *draw(attention, module, count))
    return Picture(kind, "none")


def _table(embed: TokenEmbedding, count: int) -> Tensor:
    if isinstance(embed.place, LearnedEmbedding):
        count = min(count, embed.place.table.num_embeddings)
    weight = embed.tokens.weight
    nothing_BLD = torch.zeros(1, count, weight.shape[1], device=weight.device)
    return embed.place(nothing_BLD, torch.arange(count, device=weight.device)[None])[0].float().cpu()


def _rotation(attention: MultiHeadAttention, rotate: Rotation, count: int) -> tuple[str, str, Tensor]:
    device = attention.out.weight.device
    frequency = rotate.stretch(frequencies(rotate.head_width, rotate.base, device))
    return "rotation", "LD", angles(torch.arange(count, device=device), frequency).cpu()


def _bias(attention: MultiHeadAttention, bias: nn.Module, count: int) -> tuple[str, str, Tensor]:
    if isinstance(bias, DistanceBias):
        return "table", "LD", bias.table_RK.detach().float().cpu()
    device, width = attention.out.weight.device, attention.head_width
    q_BHLK = torch.zeros(1, attention.heads, count, width, device=device)
    k_BGMK = torch.zeros(1, attention.kv_heads, count, width, device=device)
    term_BHLM = bias(q_BHLK, k_BGMK, torch.arange(count, device=device)[None])
    term_BHLM = term_BHLM * attention.score.scale if bias.inside else term_BHLM
    return "bias", "HLM", term_BHLM[0].expand(attention.heads, count, count).float().cpu()


# the slot of a scheme -> what is shown of it, its axes, and the numbers
DRAWN: dict[str, Callable[[MultiHeadAttention, Any, int], tuple[str, str, Tensor]]] = {
    "rotate": _rotation,
    "bias": _bias,
}
