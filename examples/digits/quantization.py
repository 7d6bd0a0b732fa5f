# SPDX-License-Identifier: BSD-3-Clause
"""Quantizes the linear layers of a trained network: int8 weights, int8 inputs, int32 sums.

Weights have one constant scale per output feature. Inputs have one scale per row, which is computed
in each call. All scales are symmetric: 127 represents the largest magnitude.
"""

import torch
from torch import Tensor, nn

LARGEST = 127


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rounds each row to int8.

    Args:
        x: a floating-point tensor, (rows, columns).

    Returns:
        The values, int8 (rows, columns), and the scale of each row, float (rows, 1).
    """
    scales = x.abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny) / LARGEST
    return (x / scales).round().clamp(-LARGEST, LARGEST).to(torch.int8), scales


class Int8Linear(nn.Module):
    """A linear layer that multiplies int8 values.

    Args:
        linear: the layer to replace; its weight is rounded to int8 (out, in).
    """

    weight: Tensor
    scales: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight, scales = quantize_rows(linear.weight.detach())
        self.register_buffer("weight", weight)
        # The scales of the columns of the result, with shape (1, out).
        self.register_buffer("scales", scales.t().contiguous())
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """Maps (..., in) to (..., out)."""
        rows, scales = quantize_rows(x.reshape(-1, x.shape[-1]))
        out = torch._int_mm(rows, self.weight.t()) * scales * self.scales
        if self.bias is not None:
            out = out + self.bias
        return out.view(*x.shape[:-1], -1)


def quantize(model: nn.Module) -> None:
    """Replaces all linear layers of a model in place."""
    for name, child in model.named_children():
        if isinstance(child, nn.Linear):
            setattr(model, name, Int8Linear(child))
        else:
            quantize(child)
