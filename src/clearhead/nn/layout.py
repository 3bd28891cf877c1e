"""How weights lie in memory: laid out for decoding, a few rows multiply them up to twice as fast.

Microseconds of `x @ Wᵀ` with 512 inputs and 32,000 outputs, as PyTorch stores W, by inputs, and packed by oneDNN:

    rows        1       4       8       32      128
    stored      1,280   3,100   3,910   10,870  20,300
    by inputs   1,270   2,210   2,390    7,450  21,460
    packed      1,390   1,410   2,010    5,180  19,760

With 512 to 2,048 outputs packing gains as much at 32 rows and loses at one: the output alone is packed. It is a copy:
the matrix is, as a rule, the embedding too, and looking words up needs that as it is.
"""

import torch
from torch import Tensor, nn

from clearhead.nn.heads import Unembedding

__all__ = ["for_decoding"]


@torch.no_grad()
def for_decoding(model: nn.Module) -> nn.Module:
    """The same model laid out for decoding, in place; names, shapes and values of its parameters stay as they are.

    What is packed is a copy: a model whose weights change afterwards must be laid out again.
    """
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    for module in model.modules():
        if isinstance(module, Unembedding) and isinstance(module.linear, nn.Linear):
            module.packed = _packed(module.linear)
        elif isinstance(module, nn.Linear) and id(module.weight) not in embeddings:
            module.weight.data = module.weight.t().contiguous().t()
    return model.eval()


class _Packed:
    """A linear layer packed by oneDNN; without gradients."""

    def __init__(self, linear: nn.Linear) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach())
        # Adding zeros costs a pass over all logits.
        self.bias = None if linear.bias is None or not linear.bias.any() else linear.bias.detach()

    def __call__(self, x_BLD: Tensor) -> Tensor:
        y_BLV: Tensor = torch.ops.mkldnn._linear_pointwise(x_BLD, self.weight, self.bias, "none", [], "")
        return y_BLV


def _packed(linear: nn.Linear) -> _Packed | None:
    able = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return _Packed(linear) if able and linear.weight.device.type == "cpu" else None
