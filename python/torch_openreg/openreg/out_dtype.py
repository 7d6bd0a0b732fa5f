# SPDX-License-Identifier: BSD-3-Clause
"""Multiplies int8 matrices with int32 results, for programs that work on any device.

Such programs, for example torchao's layers, call
``torch.ops.higher_order.out_dtype(torch.ops.aten.mm.default, torch.int32, a, b)``. torch implements
this call with ``_int_mm`` on devices named "cuda" or "xpu", but with an int32 product on all
others. For compiled programs, ``torch_openreg_compile.device_pass`` does the same as this module.
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
    """Register the product for the device, through the operator's extension point in torch."""
    out_dtype.py_impl(DispatchKey.PrivateUse1)(_product)
