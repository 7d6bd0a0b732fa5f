# SPDX-License-Identifier: BSD-3-Clause
"""Contract rows for errors: the call that must raise them, and the device's state afterwards."""

from collections.abc import Callable

import torch
from torch_device_conformance.contract.row import (
    Backend,
    late,
    require,
    require_equal,
    require_error,
    row,
)


@row(
    "errors",
    "at_the_call",
    requires="a call raises the errors that follow from its shapes and dtypes",
    implement="checks (meta kernels) on the host before a kernel is queued",
    without="the stack trace points to the wrong line, or the process dies",
    shown_by="aten/structured/structured.h",
)
def at_the_call(backend: Backend) -> None:
    a, b = torch.ones(2, 3, device=backend.device), torch.ones(4, 5, device=backend.device)
    wrongs: dict[str, Callable[[], object]] = {
        "mm of 2x3 and 4x5": lambda: torch.mm(a, b),
        "add of 2x3 and 4x5": lambda: a + b,
        "cat of 2x3 and 4x5": lambda: torch.cat([a, b]),
        "view(7) of 6 elements": lambda: a.view(7),
        "sum over dimension 5": lambda: a.sum(5),
        "log_softmax of integers": lambda: torch.log_softmax(a.long(), 0, dtype=torch.int64),
        "embedding with float indices": lambda: torch.nn.functional.embedding(b, a),
    }
    for name, call in wrongs.items():
        backend.delay(1_000_000)
        try:
            call()
        except Exception:
            backend.synchronize()
            continue
        try:
            backend.synchronize()
        except Exception as error:
            late(f"{name}: synchronize() raised the error, not the call: {error}")
        require_error(name, lambda: None)


@row(
    "errors",
    "recovery",
    requires="the device continues to work after an error",
    implement="errors that are reported once and then cleared",
    without="one wrong call makes a notebook unusable",
    shown_by="runtime/c10/error.cc",
)
def recovery(backend: Backend) -> None:
    x = torch.ones(3, device=backend.device)
    for _ in range(3):
        require_error("mm of vectors", lambda: torch.mm(x, x))
        backend.synchronize()
        require_equal("a sum after the error", (x + 1).sum().item(), 6.0)


@row(
    "errors",
    "missing_operator",
    requires="an operator without a kernel raises an error that names the operator",
    implement="no fallback that returns undefined results",
    without="operators that are not implemented return wrong results",
    shown_by="aten/fallback/boxed_fallback.cc",
)
def missing_operator(backend: Backend) -> None:
    library = torch.library.Library("conformance_probe", "FRAGMENT")
    library.define("absent(Tensor x) -> Tensor")
    x = torch.ones(2, device=backend.device)
    error = require_error(
        "an operator without any kernel", lambda: torch.ops.conformance_probe.absent(x)
    )
    require("absent" in str(error), f"the error does not name the operator 'absent': {error}")
    library._destroy()


@row(
    "errors",
    "mixed_devices",
    requires="a call that mixes CPU and device tensors raises an error, except for 0-dim tensors",
    implement="common device checks (torchgen generates them), also in a boxed fallback",
    without="tensors are copied silently, or a kernel reads host memory",
    shown_by="aten/fallback/host_arguments.cc",
)
def mixed_devices(backend: Backend) -> None:
    x, host = torch.ones(3, 3, device=backend.device), torch.ones(3, 3)
    if backend.type == "cpu":
        return
    for name, call in {
        "add": lambda: x + host,
        "mm": lambda: x @ host,
        "conv1d": lambda: torch.nn.functional.conv1d(x[None], host[None]),
        "where": lambda: torch.where(x > 0, x, host),
        "cat": lambda: torch.cat([x, host]),
        "out= on the CPU": lambda: torch.add(x, x, out=host),
    }.items():
        require_error(name, call)
    require_equal("add of a 0-dim CPU tensor", x + torch.tensor(1.0), host + 1)
