# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions in compiled graphs: those of the device, with results in the order of their sizes.

torch traces a convolution of a device as one whose results are contiguous; the device itself
returns what the CPU does, which depends on the order of the operands. And for any device but the
CPU the compiler takes the bias out of a convolution. So graphs get operators of their own.
"""

from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

_LIBRARY = torch.library.Library("openreg_compile", "DEF")


def _contiguous(results: Any) -> Any:
    if isinstance(results, Tensor):
        return results.contiguous()
    return tuple(None if result is None else result.contiguous() for result in results)


def _define(operator: torch._ops.OpOverload) -> torch._ops.OpOverload:
    """Define an operator with the name and the schema of another, and contiguous results."""
    name = operator._schema.name.removeprefix("aten::")
    _LIBRARY.define(str(operator._schema).removeprefix("aten::"))

    def run(*args: Any) -> Any:
        return _contiguous(operator(*args))

    _LIBRARY.impl(name, run, "PrivateUse1")
    torch.library.register_fake(f"openreg_compile::{name}", run, lib=_LIBRARY)
    defined: torch._ops.OpOverload = getattr(torch.ops.openreg_compile, name).default
    return defined


#: What stands in a compiled graph for an operator of torch.
REPLACEMENTS = {
    operator: _define(operator)
    for operator in (aten.convolution.default, aten.convolution_backward.default)
}
