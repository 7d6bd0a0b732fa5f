# SPDX-License-Identifier: BSD-3-Clause
"""Fake kernels, whose results have the same strides and dtypes as those of the real kernels.

Convolutions: the device returns the same memory format as the CPU (aten/kernels/convolution.cc).
torch's rule for fake tensors implements the formats of its built-in devices and assumes contiguous
results for all other devices.

Attention: for float64 operands the logsumexp is float64 (aten/kernels/attention.cc). torch's rule
always returns float32, so compiled code would misread the data.

Grouped matrix products: each row of the result is aligned to 16 bytes, as on the CPU. torch's rule
aligns rows only for CUDA, but its compiler assumes the alignment on every device.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._meta_registrations import meta_grouped_mm
from torch._subclasses import fake_impls
from torch.utils._pytree import tree_leaves, tree_map_only

_aten = torch.ops.aten

_CONVOLUTIONS = (
    _aten.convolution.default,
    _aten._convolution.default,
    _aten._convolution.deprecated,
    _aten.convolution_backward.default,
)

_GROUPS = _aten._grouped_mm.default
_ALIGNMENT = 16  # bytes

_ATTENTION = _aten._scaled_dot_product_fused_attention_overrideable.default


def register(device_type: str) -> None:
    """Register the fake kernels of convolutions, attention and grouped matrix products."""
    rules = fake_impls.op_implementations_dict
    for operator in _CONVOLUTIONS:
        rules[operator] = _like_the_cpu(device_type, rules[operator])
    rules[_ATTENTION] = _attention(device_type)
    rules[_GROUPS] = _groups(device_type)


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


def _attention(device_type: str) -> Callable[..., Any]:
    def attend(mode: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
        query = args[0]
        if query.device.type != device_type or query.dtype != torch.float64:
            return NotImplemented  # torch then uses its own rule

        def change(value: Any, old: torch.dtype, new: torch.dtype) -> Any:
            return tree_map_only(
                Tensor, lambda fake: fake.to(new) if fake.dtype == old else fake, value
            )

        with mode:
            args = change(args, torch.float64, torch.float32)
            return change(operator(*args, **kwargs), torch.float32, torch.float64)

    return attend


def _groups(device_type: str) -> Callable[..., Any]:
    def multiply(mode: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
        if args[0].device.type != device_type:
            return NotImplemented
        with mode:
            result = meta_grouped_mm(*args, **kwargs)
            step = _ALIGNMENT // result.element_size()
            row = (result.shape[-1] + step - 1) // step * step
            strides = [result.shape[-2] * row, row, 1][-result.dim() :]
            return torch.empty_strided(
                result.shape, strides, dtype=result.dtype, device=result.device
            )

    return multiply
