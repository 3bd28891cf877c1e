"""What attention moves from place to place, what feed-forward layers add, and how long the stream is."""

from typing import Any

import torch
from torch import Tensor

from clearhead.nn.attention import MultiHeadAttention
from clearhead.tasks.head_statistics import moved
from clearhead.tasks.inspecting import Inspection
from clearhead.tasks.overview import Sublayer, attentions_of, plain_name, sublayers
from clearhead.tasks.walk import Walk

__all__ = ["contributions"]


def contributions(inspection: Inspection) -> dict[str, Any]:
    """Lengths of vectors: ‖Σ_h w_hij W^O_h v_hj‖ of attention, of what feed-forward layers add, of the stream.

    A layer that is off moves and adds nothing, and leaves the stream as it was. What positions add to the values
    (Shaw) and what biases add belongs to no key, and is not in it.
    """
    viewer, off = inspection.viewer, inspection.view.off
    layers, walk = sublayers(viewer), Walk(inspection)
    inspection.record(f"{one.name}.v" for one in attentions_of(viewer))
    inspection.record(f"{one.residual}.{tap}" for layer in layers for one in layer for tap in ("branch", "sum"))
    norms, feedforward, stream = {}, {}, {}
    for layer in layers:
        block = layer[0].block
        heard = plain_name(block)[0] not in off.layers
        for one in layer:
            if isinstance(one.module, MultiHeadAttention):
                norms[one.name] = (_moved(inspection, one, one.module) * heard).tolist()
            else:
                feedforward[one.name] = (inspection.at(f"{one.residual}.branch").norm(dim=-1) * heard).tolist()
        stream[block] = walk.values(walk.streams[block]).norm(dim=-1).tolist()
    return {
        "side": inspection.view.side,
        "layers": [one.name for layer in layers for one in layer],
        "norms": norms,
        "feedforward": feedforward,
        "stream": stream,
    }


def _moved(inspection: Inspection, place: Sublayer, attention: MultiHeadAttention) -> Tensor:
    weights_HLM, v_GMK = inspection.at(f"{place.name}.weights"), inspection.at(f"{place.name}.v")
    if attention.memory is not None:
        v_GMK = torch.cat([attention.memory.values_GPK.detach().cpu().float(), v_GMK], dim=1)
    heard_H = torch.ones(attention.heads)
    heard_H[list(inspection.view.off.heads.get(plain_name(place.name)[0], ()))] = 0
    v_HMK = v_GMK.repeat_interleave(attention.heads // attention.kv_heads, dim=0)
    out_DHK = attention.out.weight.detach().cpu().unflatten(1, (attention.heads, -1))
    return moved(weights_HLM * heard_H[:, None, None], v_HMK, out_DHK)
