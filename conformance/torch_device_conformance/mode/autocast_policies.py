# SPDX-License-Identifier: BSD-3-Clause
"""What autocast must do with each operator: torch's lists of operators in Python.

The lists are read from the torch header with which backends are compiled. `call` treats a call as
its list requires, so that the CPU can compute the reference for a device.
"""

import functools
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

HEADER = Path(torch.__file__).parent / "include/ATen/autocast_mode.h"

LOWER = "LOWER_PRECISION_FP"
FLOAT32 = "FP32"
FLOAT32_UNLESS_GIVEN = "FP32_SET_OPT_DTYPE"
FLOAT32_APPENDED = "DIFFERENT_REDISPATCH_SIGNATURE"
WIDEST = "PROMOTE"

# Maps overloads without a dtype argument to the overload that has one.
WITH_DTYPE = {
    "aten::norm.Scalar": "aten::norm.ScalarOpt_dtype",
    "aten::norm.ScalarOpt_dim": "aten::norm.ScalarOpt_dim_dtype",
}


@functools.cache
def lists() -> dict[str, str]:
    """Maps each operator in torch's lists, as ``aten::name.overload``, to the name of its list."""
    # Join the lines of each macro, because each line ends with a backslash.
    text = re.sub(r"\\\n", " ", HEADER.read_text())
    found: dict[str, str] = {}
    for policy in (LOWER, FLOAT32, FLOAT32_UNLESS_GIVEN, FLOAT32_APPENDED, WIDEST):
        (body,) = re.findall(rf"^#define AT_FORALL_{policy}\(_\)(.*)$", text, re.MULTILINE)
        if policy == FLOAT32_APPENDED:
            names = re.findall(r'"([\w.]+)"', body)
        else:
            names = [re.sub(r",\s*", ".", entry) for entry in re.findall(r"_\(([\w, ]+)\)", body)]
        found |= {f"aten::{name}": policy for name in names}
    return found


def overload(name: str) -> torch._ops.OpOverload:
    """Returns the operator ``aten::name.overload``."""
    base, _, variant = name.removeprefix("aten::").partition(".")
    found: torch._ops.OpOverload = getattr(getattr(torch.ops.aten, base), variant or "default")
    return found


class Casts:
    """Casts the tensors of one device, and caches the casts of weights.

    Args:
        device: type of the device. Tensors on other devices are not changed.
        lower: dtype of the region.
    """

    def __init__(self, device: str, lower: torch.dtype) -> None:
        self.device = device
        self.lower = lower
        self.kept = WeakTensorKeyDictionary()

    def eligible(self, value: Any) -> bool:
        """Returns whether a value is a tensor that autocast may cast."""
        return (
            isinstance(value, Tensor)
            and value.device.type == self.device
            and value.is_floating_point()
            and value.dtype != torch.float64
        )

    def __call__(self, value: Any, dtype: torch.dtype) -> Any:
        """Casts an argument to `dtype`. If it is a list, casts each of its tensors."""
        if isinstance(value, (list, tuple)):
            return [self(element, dtype) for element in value]
        if not self.eligible(value) or value.dtype == dtype:
            return value
        weight = value.requires_grad and value.is_leaf and not value._is_view()
        if dtype != self.lower or value.dtype != torch.float32 or not weight:
            return value.to(dtype)
        if value not in self.kept:
            self.kept[value] = value.to(dtype)
        return self.kept[value]

    def widest(self, values: Any) -> torch.dtype:
        """Returns float32 if any of the tensors has this dtype, otherwise the region's dtype."""
        result = self.lower
        for value in values:
            if isinstance(value, (list, tuple)):
                found = self.widest(value)
            elif self.eligible(value):
                found = value.dtype
            else:
                continue
            if found not in (torch.float32, self.lower):
                # Use the text of torch's error, because the messages are compared.
                raise RuntimeError("Unexpected floating ScalarType in at::autocast::prioritize")
            result = torch.float32 if found == torch.float32 else result
        return result


def call(name: str, casts: Casts, *args: Any, **kwargs: Any) -> Any:
    """Calls an operator as its list requires. The caller must have disabled autocast.

    Args:
        name: name of the operator, ``aten::name.overload``.
        casts: casts of the region.
        *args: positional arguments of the operator.
        **kwargs: keyword arguments of the operator.
    """
    operator, policy = overload(name), lists()[name]
    given = zip(operator._schema.arguments, args, strict=False)
    values = {argument.name: value for argument, value in given} | kwargs
    first = values[operator._schema.arguments[0].name]
    if policy in (LOWER, FLOAT32, WIDEST):
        dtype = {LOWER: casts.lower, FLOAT32: torch.float32}.get(policy)
        wanted = dtype or casts.widest(values.values())
        values = {key: casts(value, wanted) for key, value in values.items()}
    elif policy == FLOAT32_UNLESS_GIVEN:
        if casts.eligible(first) and values.get("dtype") is None:
            values["dtype"] = torch.float32
    else:
        for argument in operator._schema.arguments:
            if argument.has_default_value():
                values.setdefault(argument.name, argument.default_value)
        values["dtype"] = torch.float32 if casts.eligible(first) else first.dtype
        operator = overload(WITH_DTYPE[name])
    return operator(**values)
