"""Linear layers with 8-bit weights, for decoding on a CPU: a quarter of the memory to read, and faster arithmetic.

    y_o = round(127 x / m) · round(127 W_o / s_o) · m s_o / 127² + b_o          m = max |x| of the row, s_o = max |W_o|

Weights are scaled by output, inputs by row, as they come. A row therefore answers alike alone and in a batch, which
PyTorch's own dynamic quantisation (one scale for the whole batch) does not give.
"""

import warnings
from typing import NamedTuple

import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError

__all__ = ["Int8Linear", "to_int8"]

LEAST = 1e-30


class _Grid(NamedTuple):
    """Inputs in [−1, 1] become `middle` ± `steps`, which are unsigned bytes."""

    steps: int
    middle: int


# Without VNNI instructions FBGEMM adds pairs of products in 16 bits, which seven bits of input cannot overflow.
FINE, COARSE = _Grid(127, 128), _Grid(63, 64)


class Int8Linear(nn.Module):
    """A linear layer whose weights are 8-bit integers, packed as FBGEMM wants them."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight_WD = linear.weight.detach().float().contiguous()
        scale_W = weight_WD.abs().amax(1).clamp(min=LEAST).double() / FINE.steps
        with warnings.catch_warnings():
            # PyTorch means to move these functions elsewhere, which is no news for whoever uses a model.
            warnings.filterwarnings("ignore", message="torch.quantize_per_tensor", category=UserWarning)
            rounded_WD = torch.quantize_per_channel(
                weight_WD, scale_W, torch.zeros_like(scale_W).long(), 0, torch.qint8
            )
        self.packed = torch.ops.quantized.linear_prepack(rounded_WD, None)
        self.bias = None if linear.bias is None else linear.bias.detach().float()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.grid = FINE if torch.cpu.get_capabilities().get("avx512_vnni") else COARSE

    @property
    def weight(self) -> Tensor:
        """The weights as numbers again, rounded as they are."""
        weight_WD: Tensor = torch.ops.quantized.linear_unpack(self.packed)[0].dequantize()
        return weight_WD

    def forward(self, x_BLD: Tensor) -> Tensor:
        # Two passes, and yet ten times faster than the norm of the largest magnitude.
        largest_BL1 = x_BLD.abs().amax(-1, keepdim=True).clamp_(min=LEAST)
        y_BLW: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            x_BLD / largest_BL1, 1 / self.grid.steps, self.grid.middle, self.packed
        )
        return y_BLW.mul_(largest_BL1) if self.bias is None else torch.addcmul(self.bias, y_BLW, largest_BL1, out=y_BLW)


def to_int8(model: nn.Module) -> nn.Module:
    """The same model with every linear layer in 8 bits; for use, not for training."""
    device = next(model.parameters()).device
    if device.type != "cpu":
        raise ConfigError(f"8-bit weights are for the CPU: this model lies on {device}")
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                setattr(module, name, Int8Linear(child))
    return model.eval().requires_grad_(False)
