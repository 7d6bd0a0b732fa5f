# SPDX-License-Identifier: BSD-3-Clause
"""Contract rows for torch.compile, from graph capture to code generation."""

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch_device_conformance.contract.row import Backend, missing, require, require_equal, row

INTERFACE = "torch._dynamo.device_interface.register_interface_for_device"


def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The rows compile this function and its backward."""
    return torch.nn.functional.gelu(x @ y).softmax(-1) + y.sum()


def compare(backend: Backend, compiler: str | Callable[..., Any]) -> None:
    """Compiles `function` and its backward, and compares the results with eager mode."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=compiler, fullgraph=True)
    results = []
    for call in (function, compiled):
        x, y = (torch.linspace(-1, 1, 16, device=backend.device).view(4, 4) for _ in range(2))
        x.requires_grad_()
        out = call(x, y)
        out.pow(2).sum().backward()
        results.append((out.detach().cpu(), x.grad.cpu() if x.grad is not None else None))
    for name, found, wanted in zip(("result", "gradient"), results[1], results[0], strict=True):
        assert found is not None
        assert wanted is not None
        require(
            torch.allclose(found, wanted, atol=1e-5),
            f"the {name} of the compiled function differs from eager mode",
        )


@row(
    "compiler",
    "fake_tensors",
    requires="fake tensors of the device propagate shapes without allocating memory",
    implement="torch.<device>.is_available; meta kernels for the backend's own operators",
    without="torch.compile and torch.export fail",
    shown_by="python/torch_openreg/openreg/fakes.py",
)
def fake_tensors(backend: Backend) -> None:
    with FakeTensorMode():
        x = torch.empty(4, 8, device=backend.device)
        y = x @ x.t()
    require_equal("shape", tuple(y.shape), (4, 4))
    require_equal("device", y.device.type, backend.type)


@row(
    "compiler",
    "dynamo",
    requires="dynamo captures a graph of operators on the device",
    implement=INTERFACE,
    without="torch.compile raises an error at the first call",
    shown_by="compile/torch_openreg_compile/device_interface.py",
    seconds=120,
)
def dynamo(backend: Backend) -> None:
    compare(backend, "eager")


@row(
    "compiler",
    "aot_autograd",
    requires="forward and backward are traced ahead of time",
    implement=INTERFACE + "; the same strides for fake and real tensors",
    without="torch.compile backends fail in training",
    shown_by="compile/torch_openreg_compile/device_interface.py",
    seconds=120,
)
def aot_autograd(backend: Backend) -> None:
    compare(backend, "aot_eager")


@row(
    "compiler",
    "inductor",
    requires="torch.compile with its default backend generates code for the device",
    implement="register_backend_for_device, register_device_op_overrides, a wrapper code generator",
    without="torch.compile is no faster than eager mode, or raises an error",
    shown_by="compile/torch_openreg_compile/inductor.py",
    required=False,
    seconds=240,
)
def inductor(backend: Backend) -> None:
    from torch._inductor.codegen.common import get_scheduling_for_device

    try:
        compare(backend, "inductor")
    except Exception:
        # Without a code generator, the error depends on the first operator.
        if get_scheduling_for_device(backend.type) is None:
            missing(f"Inductor has no code generator for {backend.type}")
        raise


@row(
    "compiler",
    "streams_and_guards",
    requires="dynamo's device interface describes streams, devices and capabilities",
    implement=INTERFACE + ": Event, Stream, Worker, current_device, get_raw_stream, ...",
    without="Inductor raises an error when it generates code",
    shown_by="compile/torch_openreg_compile/device_interface.py",
    required=False,
)
def streams_and_guards(backend: Backend) -> None:
    from torch._dynamo.device_interface import get_interface_for_device

    interface = get_interface_for_device(backend.type)
    require_equal("current_device()", interface.current_device(), backend.device.index or 0)
    require_equal("device_count()", interface.device_count(), backend.count())
    require(interface.is_available(), "is_available() is false")
    interface.get_device_properties(backend.device)
    interface.synchronize(backend.device)
