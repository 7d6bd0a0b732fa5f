# SPDX-License-Identifier: BSD-3-Clause
"""Fake convolutions of the device, whose results have the strides of real ones.

The device returns convolutions in the order of dimensions that the CPU returns them in
(aten/kernels/convolution.cc). torch's rule for fake tensors knows that order for devices of its
own, and takes results of all others to be contiguous.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import fake_impls
from torch.utils._pytree import tree_leaves, tree_map_only

_aten = torch.ops.aten

_CONVOLUTIONS = (
    _aten.convolution.default,
    _aten._convolution.default,
    _aten._convolution.deprecated,
    _aten.convolution_backward.default,
)


def register(device_type: str) -> None:
    """Let torch treat fake convolutions of the device like those of the CPU."""
    rules = fake_impls.op_implementations_dict
    for operator in _CONVOLUTIONS:
        rules[operator] = _like_the_cpu(device_type, rules[operator])


def _like_the_cpu(device_type: str, rule: Callable[..., Any]) -> Callable[..., Any]:
    def convolve(mode: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        device = tensors[0].device
        if any(tensor.device != device for tensor in tensors) or device.type != device_type:
            return rule(mode, operator, *args, **kwargs)

        def move(value: Any, device: torch.device) -> Any:
            with mode:
                return tree_map_only(
                    Tensor,
                    lambda fake: torch.empty_strided(
                        fake.shape, fake.stride(), dtype=fake.dtype, device=device
                    ),
                    value,
                )

        args, kwargs = move((args, kwargs), torch.device("cpu"))
        return move(rule(mode, operator, *args, **kwargs), device)

    return convolve
