# SPDX-License-Identifier: BSD-3-Clause
"""Computes products of int8 matrices with int32 results, as device-independent programs need them.

Such programs, torchao's layers among them, call
``torch.ops.higher_order.out_dtype(torch.ops.aten.mm.default, torch.int32, a, b)``. torch computes
it with ``_int_mm`` only on devices named cuda or xpu, and in int32 on all others. The compiler's
counterpart is in ``torch_openreg_compile.device_pass``.
"""

from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._higher_order_ops.out_dtype import out_dtype, out_dtype_dense


def _product(op: torch._ops.OpOverload, dtype: torch.dtype, *args: Any) -> Tensor:
    """Return the result of ``op`` in ``dtype``, without intermediate overflow."""
    if (
        op is torch.ops.aten.mm.default
        and dtype == torch.int32
        and all(isinstance(a, Tensor) and a.dtype == torch.int8 for a in args)
    ):
        return torch._int_mm(*args)
    result: Tensor = out_dtype_dense(op, dtype, *args)
    return result


def register() -> None:
    """Register the product for the device, through torch's extension point for the operator."""
    out_dtype.py_impl(DispatchKey.PrivateUse1)(_product)
