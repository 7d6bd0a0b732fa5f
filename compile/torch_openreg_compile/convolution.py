# SPDX-License-Identifier: BSD-3-Clause
"""Convolution operators for compiled graphs, with results in a known memory format.

The memory format of a convolution's result depends on the formats of its operands. Moreover, for
devices other than the CPU, torch's compiler separates the bias from the convolution and does not
select the fastest format. Therefore compiled graphs call the operators defined here. They convert
images to channels-last, the fastest format for CPU kernels, and do not convert weights.
"""

from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

_LIBRARY = torch.library.Library("openreg_compile", "DEF")

_FAST_IN_CHANNELS_LAST = (torch.float32, torch.bfloat16, torch.float16)


def _format(image: Tensor) -> torch.memory_format:
    if image.dim() == 4 and image.dtype in _FAST_IN_CHANNELS_LAST:
        return torch.channels_last
    return torch.contiguous_format


def _convolution(image: Tensor, *others: Any) -> Tensor:
    order = _format(image)
    result: Tensor = aten.convolution.default(image.contiguous(memory_format=order), *others)
    return result.contiguous(memory_format=order)


def _convolution_backward(
    gradient: Tensor, image: Tensor, *others: Any
) -> tuple[Tensor | None, ...]:
    order = _format(image)
    of_image, *of_weights = aten.convolution_backward.default(
        gradient.contiguous(memory_format=order), image.contiguous(memory_format=order), *others
    )
    return (
        None if of_image is None else of_image.contiguous(memory_format=order),
        *(None if result is None else result.contiguous() for result in of_weights),
    )


def _define(operator: torch._ops.OpOverload, function: Any) -> torch._ops.OpOverload:
    """Define an operator with the name and schema of ``operator``; operands may have any format."""
    name = operator._schema.name.removeprefix("aten::")
    schema = str(operator._schema).removeprefix("aten::")
    _LIBRARY.define(schema, tags=(torch.Tag.flexible_layout,))
    _LIBRARY.impl(name, function, "PrivateUse1")
    torch.library.register_fake(f"openreg_compile::{name}", function, lib=_LIBRARY)
    defined: torch._ops.OpOverload = getattr(torch.ops.openreg_compile, name).default
    return defined


#: Maps each of torch's operators to its replacement in compiled graphs.
REPLACEMENTS = {
    operator: _define(operator, function)
    for operator, function in (
        (aten.convolution.default, _convolution),
        (aten.convolution_backward.default, _convolution_backward),
    )
}
